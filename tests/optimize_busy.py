"""How busy the GPU is while models think: many tasks, and a stand-in for a model that takes its time.

    python -m tests.optimize_busy relu rms_norm softmax silu_and_mul --wait 20 --rounds 3

The stand-in's drafts are the kernels of ``kernels/``, each made unlike the ones before it. The GPU is at work while a run waits for
an evaluation: whatever is asked for is begun at once. ``nvidia-smi`` says besides for what part of the time a kernel ran.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from statistics import fmean

from msbench import operators
from msbench.model import Origin
from msbench.spec import Precision, Task
from msbench.store.store import Store
from tests.optimizing import fenced, planned
from tests.providers.misbehaving import Request, Server

_LAUNCHER = re.compile(r"cudaError_t (\w+)\(")


class StandIn:
    """Answers like a planner, or like a coder who knows the task's best kernel."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._drafts: Counter[str] = Counter()

    def __call__(self, request: Request) -> None:
        request.server.leaving.wait(self._wait_s)
        system, asked = (str(message["content"]) for message in request.body["messages"][:2])
        found = _LAUNCHER.search(system)
        assert found
        text = planned(1.2) if "You are the planner" in asked else self._draft(found[1], system)
        message = {"role": "assistant", "content": text}
        request.send(request.whole(message=message))

    def _draft(self, operator: str, system: str) -> str:
        precision = Precision.BF16 if "here `__nv_bfloat16`" in system else Precision.FP32
        known = operators.versions(Task(operators.load(operator), precision))
        best = next(version for version in known if version.origin is Origin.EXPERT)
        task = f"{operator}/{precision}"
        self._drafts[task] += 1
        return fenced(f"{best.source}\nconstexpr int kDraft = {self._drafts[task]};\n")


def at_work(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The seconds in which at least one of the spans (begin, end) goes on, and those from the first begin to the last end."""
    busy, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    return busy, until - min(begin for begin, _ in spans)


def _spans(store: Store) -> list[tuple[float, float]]:
    """When each evaluation was asked for, and when it was there."""
    found = []
    for run in store.runs():
        for entry in store.ledger(run.id):
            if entry.kind in ("evaluation", "proof"):
                asked = datetime.fromisoformat(entry.created_at).timestamp()
                found.append((asked, asked + entry.seconds))
    return found


def main(arguments: Sequence[str]) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.optimize_busy")
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--wait", type=float, default=20.0)
    parser.add_argument("--rounds", default="3")
    parser.add_argument("options", nargs="*", help="of msbench optimize, after --")
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    given = parser.parse_args(arguments[:cut])
    with tempfile.TemporaryDirectory() as folder, closing(Server(StandIn(given.wait))) as server:
        db, smi = Path(folder) / "busy.sqlite", None
        with suppress(FileNotFoundError):
            query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
            smi = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
        command = [
            sys.executable,
            "-m",
            "msbench",
            "optimize",
            *given.tasks,
            "--provider",
            "openai",
            "--model",
            "stand-in",
        ]
        command += ["--db", str(db), "--rounds", given.rounds, *arguments[cut + 1 :]]
        environment = {**os.environ, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        process = subprocess.Popen(command, env=environment)
        try:
            code = process.wait()
        except KeyboardInterrupt:  # of the process, too: what came of it until then is told
            code = process.wait()
        if smi:
            smi.terminate()
            shares = [float(line) for line in (smi.stdout or ()) if line.strip().isdigit()]
            print(f"nvidia-smi: a kernel ran for {fmean(shares):.0f} % of {len(shares) / 5:.0f} s")
        busy, whole = at_work(_spans(Store(db)))
        print(f"exit code {code}; the GPU was at work for {busy:.1f} of {whole:.1f} s: {100 * busy / whole:.1f} %")


if __name__ == "__main__":
    main(sys.argv[1:])
