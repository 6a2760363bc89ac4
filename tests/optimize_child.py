"""Runs the engine on the made-up world, and kills itself with SIGKILL at the instant that it is told.

Reads jobs from standard input, one JSON object a line; answers each with one line: ``killed``, ``done`` or an error. A job runs
in a fork, so that a kill costs no new interpreter.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msbench import agents
from msbench.optimize import engine, optimize
from msbench.store import store as storing
from msbench.store.store import Store
from tests import optimizing

WRITES = ("start_run", "update_run", "add_steps", "add_call", "add_evaluations")


def run(job: dict[str, Any]) -> None:
    """One session: ``db``, ``folder`` of the operator, ``kill_at`` (an instant, or 0 for never), perhaps ``strategy``."""
    instants = 0
    counting = threading.Lock()  # drafts are made side by side

    def tick(what: str) -> None:
        nonlocal instants
        with counting:
            instants += 1
            if instants == job["kill_at"]:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            tick(f"before {name}")
            result = write(*args, **kwargs)
            tick(f"after {name}")
            return result

        return wrapped

    world = optimizing.World(tick=tick)

    def evaluate(executor: Any, task: Any, candidates: Any, plan: Any, **options: Any) -> Any:
        draft = candidates[-1]  # the others are what it is measured beside, as often as there are drafts
        assert plan.profile or not plan.measure or not store.evaluations(draft.id), f"{draft.label} is evaluated again"
        return world.evaluate(executor, task, candidates, plan, **options)

    engine.evaluate = evaluate
    storing.put_all = around("put_all", storing.put_all)  # between the evaluations of one transaction
    for name in WRITES:
        setattr(Store, name, around(name, getattr(Store, name)))
    task = optimizing.task(Path(job["folder"]))
    with Store(job["db"]) as store:
        runs = store.runs()
        sampled = job.get("strategy") == "best_of_n"
        provider = (
            optimizing.Sampled(optimizing.SAMPLES, tick) if sampled else optimizing.Scripted(optimizing.story(), tick)
        )
        log = Path(job["db"]).with_suffix(".log").open("a", buffering=1)
        optimize(
            task, strategy=agents.pick(job.get("strategy", "cudamaster")), provider=provider, executor=optimizing.FakeExecutor(), store=store,
            plan=optimizing.plan(task), rounds=None if runs else optimizing.ROUNDS, resume=runs[0].id if runs else None,
            watch=lambda event: print(event.kind, event.step, event.text, file=log),
        )  # fmt: skip
        log.close()
    print(instants, flush=True)


def main() -> None:
    """Serve jobs until standard input ends."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(json.loads(line))
            except BaseException as error:
                print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print("killed", flush=True)


if __name__ == "__main__":
    main()
