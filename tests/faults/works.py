"""The commands that are killed: what each starts from, how it goes on after a kill, and what it must have come to."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench import agents, executors, operators
from msbench.archive.union import union
from msbench.harness.evaluate import Plan
from msbench.operators import select_cases
from msbench.optimize import optimize
from msbench.spec import Precision, Task
from msbench.store.store import Store
from tests import factories, optimizing

TASK = "vector_add/fp32"
_NO_CONTENT = {"id", "run_id", "evaluation_id", "started_at", "finished_at"}
_OF_TIMES = {"action", "outcome", "held", "lesson", "speedup", "parent_version_id", "plan", "hypothesis"}

State = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """One command.

    ``prepare`` fills a folder that it starts in. ``arguments`` says what to type there, the first time and after a kill.
    ``state`` is what is compared with an uninterrupted run's. ``database`` is the file that it writes ("": none), and
    ``left`` what the folder may hold in the end. What ``prepare`` fills a folder with repeats after ``beginnings`` numbers.
    ``in_order``: a replay takes its answers in their order, see that module.
    """

    name: str
    prepare: Callable[[Path, int], None]
    arguments: Callable[[Path], list[str]]
    state: Callable[[Path], State]
    database: str
    left: frozenset[str]
    beginnings: int = 1
    in_order: bool = False


NAMES = ("optimize", "bench", "merge", "build-site")


def works(template: Path, executor: str, names: Collection[str] = NAMES) -> list[Work]:
    """Those of these names. ``template`` gets what they start from; ``executor`` is ``cpu`` or ``cuda``."""
    template.mkdir(parents=True, exist_ok=True)
    if {"optimize", "bench"} & set(names):
        _record(template / "recording.sqlite", executor)
    for name, kinds in (("ours", ("scale",)), ("theirs", ("scale", "shift"))):
        with Store(template / f"{name}.sqlite") as store:
            factories.story(store, [factories.operator(kind) for kind in kinds])
    timed = executor != "cpu"
    # Where there are times there have to be ceilings, which take longer to measure than all the rest.
    recording = {"recording.sqlite": "work.sqlite"}
    measured: tuple[dict[str, str], dict[str, str]] = (recording, {})
    unmeasured: tuple[dict[str, str], dict[str, str]] = ({}, recording)
    every = (
        Work(
            "optimize", _copies(template, {"recording.sqlite": "work.sqlite"}), lambda at: _optimize(at, executor),
            lambda at: _run(at, timed), "work.sqlite", frozenset({"work.sqlite"}), in_order=timed,
        ),
        Work(
            "bench", _copies(template, *(measured if timed else unmeasured)),
            lambda at: ["bench", "vector_add", "relu/fp32", *_quickly(executor), "--versions", "naive", "--db", "work.sqlite", "--resume"],
            _benched, "work.sqlite", frozenset({"work.sqlite"}),
        ),
        Work(
            "merge", _copies(template, {"theirs.sqlite": "theirs.sqlite"}, sometimes={"ours.sqlite": "work.sqlite"}),
            lambda at: ["db", "merge", "theirs.sqlite", "--db", "work.sqlite"],
            lambda at: {"rows": rows(at / "work.sqlite")}, "work.sqlite", frozenset({"theirs.sqlite", "work.sqlite"}), 2,
        ),
        Work(
            "build-site", _with_site(template),
            lambda at: ["build-site", "--db", "theirs.sqlite", "--out", "site"],
            lambda at: {"site": tree(at / "site")}, "", frozenset({"theirs.sqlite", "site"}), 3,
        ),
    )  # fmt: skip
    return [work for work in every if work.name in names]


def _quickly(executor: str) -> list[str]:
    return ["--executor", executor, "--cases", "smallest", "--quick", "--seed", "0"]


def _copies(
    template: Path, files: dict[str, str], sometimes: dict[str, str] | None = None
) -> Callable[[Path, int], None]:
    def prepare(folder: Path, number: int) -> None:
        chosen = {**files, **((sometimes or {}) if number % 2 else {})}
        for source, target in chosen.items():
            shutil.copy(template / source, folder / target)

    return prepare


def _with_site(template: Path) -> Callable[[Path, int], None]:
    """Two times out of three there is a site already, of another database."""
    lock = threading.Lock()

    def prepare(folder: Path, number: int) -> None:
        with lock:
            if not (template / "site").exists():
                from msbench.sitegen.build import build

                with union([template / "ours.sqlite"]) as store:
                    build(store, template / "site")
        shutil.copy(template / "theirs.sqlite", folder / "theirs.sqlite")
        if number % 3:
            shutil.copytree(template / "site", folder / "site")

    return prepare


# ------------------------------------------------------------------ optimize


def _record(path: Path, executor: str) -> None:
    """A conversation about vector_add in which a draft does not compile and is repaired, one is wrong, and one passes.

    The last is left out on a GPU, where profiling each takes seconds.
    """
    operator = operators.load("vector_add")
    naive = (Path(operator.folder) / "naive.cu").read_text(encoding="utf-8")
    drafts = (
        naive.replace("cudaGetLastError()", "cudaGetLastErrors()"),
        naive.replace("A[i]) +", "A[i]) -"),
        naive.replace("threads = 256", "threads = 128"),
    )
    answers = {
        "planner": [optimizing.planned(p) for p in (1.1, 1.2, 1.3)],
        "coder": optimizing.coded(*drafts),
        "debugger": optimizing.coded(*[naive.replace("threads = 256", f"threads = {n}") for n in (64, 96, 160, 192)]),
    }
    plan = Plan(select_cases(operator, "smallest"), heldout=1, profile=True, time_budget_s=0.1, sittings=1)
    with Store(path) as store, executors.pick(executor) as chosen:
        optimize(
            Task(operator, Precision.FP32), strategy=agents.pick("cudamaster"),
            provider=optimizing.Scripted(answers), executor=chosen, store=store, plan=plan, rounds=3 if executor == "cpu" else 2,
        )  # fmt: skip


def _optimize(folder: Path, executor: str) -> list[str]:
    where = ["--executor", executor, "--db", "work.sqlite"]
    with Store(folder / "work.sqlite", read_only=True) as store:
        replays = [run.id for run in store.runs() if run.provider == "replay"]
    if replays:
        return ["optimize", "--resume", replays[0], *where]
    return ["optimize", TASK, "--provider", "replay", *where]


def _run(folder: Path, timed: bool) -> State:
    """What the replayed run left, without names and clocks; with times, also without what depends on them."""
    with Store(folder / "work.sqlite", read_only=True) as store:
        (run,) = [run for run in store.runs() if run.provider == "replay"]
        steps = store.steps(run.id)
        calls = store.calls(run.id)
        made = [
            (version.id, e.status)
            for version in store.versions(run.task_id)
            for e in store.evaluations(version.id)
            if e.started_at >= run.started_at[:23] and (not timed or version.origin == "agent")
        ]
    # What a draft is measured beside is evaluated as often as there are drafts; without times nothing is beside it.
    drafts = {step.version_id for step in steps if step.evaluation_id}
    content = _NO_CONTENT | (_OF_TIMES if timed else set())
    return {
        "run": (run.status, *(() if timed else (run.note, run.best_version_id))),
        "steps": [step.model_dump(exclude=content) for step in steps],
        "calls": [
            (c.row.number, c.row.step_number, c.row.agent, c.reply.content, *(() if timed else (c.row.prompt_id,)))
            for c in calls
        ],
        "evaluations": sorted(set(made) if timed else Counter(made).items()),
        "drafts": sorted(str(draft) for draft in drafts),
    }


# ------------------------------------------------------------------ the others


def _benched(folder: Path) -> State:
    with Store(folder / "work.sqlite", read_only=True) as store:
        found = Counter(
            (version.task_id, version.id, e.status, e.command)
            for version in store.versions()
            for e in store.evaluations(version.id)
            if e.command.startswith("msbench bench vector_add")
        )
    return {"evaluations": sorted(found.items())}


def rows(path: Path) -> dict[str, list[Any]]:
    """Every row of every table but the one that says when a schema was made."""
    connection = sqlite3.connect(path)
    try:
        tables = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {t: sorted(map(repr, connection.execute(f'SELECT * FROM "{t}"'))) for t in tables if t != "migration"}
    finally:
        connection.close()


def ids(path: Path) -> set[tuple[str, str]]:
    """The rows that anybody who looks now would see, by table and id."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=1)
    except sqlite3.Error:
        return set()
    try:
        connection.execute("PRAGMA query_only=ON")
        tables = [
            name
            for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            if "\tid " in sql
        ]
        return {(name, str(row[0])) for name in tables for row in connection.execute(f'SELECT id FROM "{name}"')}
    except sqlite3.Error:
        return set()
    finally:
        connection.close()


def tree(folder: Path) -> dict[str, str]:
    """Every file of a folder, by path, with a hash of its content."""
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()[:16]
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
