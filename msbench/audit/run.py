"""Audits the files of a folder, task by task; what one of them does to its process stays there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from msbench import operators
from msbench.audit.files import Found
from msbench.audit.subjects import Item, Kind, Subject, planned, see_that_known
from msbench.audit.times import rivals_of, time_files
from msbench.audit.verdict import Verdict
from msbench.harness.check.case import CaseCheck
from msbench.harness.digest import harness_digest
from msbench.harness.protocols import Executor, Plan, Progress
from msbench.model import BuildResult, Candidate, digest
from msbench.spec import Task


@dataclass(frozen=True)
class Settings:
    """How files are audited. ``cases``: the sizes, as on the command line; ``budget_s``: of measuring a case."""

    cases: str = "paper+odd+heldout"
    seed: int = 0
    budget_s: float = 0.5


@cache
def audit_digest() -> str:
    """The hash of the source that verdicts depend on: the harness's, and this package's."""
    folder = Path(__file__).parent
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".toml"))
    return digest(harness_digest(), *(part for p in files for part in (p.name, p.read_bytes())))


def audit(executor: Executor, found: Sequence[Found], settings: Settings, progress: Progress) -> Iterator[Verdict]:
    """A verdict for each file: those that are no kernels of the convention first, then task by task.

    Raises:
        ToolchainError: nothing can be built.
        DeviceError: the device is missing or lost.
    """
    for file in found:
        if file.symbol is None:
            yield Verdict(file.name, file.sha256, problem=file.problem)
    kernels = sorted((f for f in found if f.symbol is not None), key=_task)
    tasks = [_Task(executor, list(files)) for _, files in groupby(kernels, key=_task)]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), thread_name_prefix="msbench-ahead") as pool:
        try:
            for task in tasks:
                task.begin(pool)
            for task in tasks:
                yield from task.verdicts(settings, progress)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def see_that_cases_are_known(found: Sequence[Found], cases: str) -> None:
    """That every case that is asked for is one of an operator of these files; those without it leave it out.

    Raises:
        UnknownNameError: one is none of any.
    """
    names = {file.symbol.function.operator for file in found if file.symbol is not None}
    see_that_known([operators.load(name) for name in sorted(names)], cases)


def _task(file: Found) -> str:
    assert file.symbol is not None
    return file.symbol.task


class _Task:
    """The files of one task, and what they are compared with; all are built ahead."""

    def __init__(self, executor: Executor, files: Sequence[Found]) -> None:
        symbol = files[0].symbol
        assert symbol is not None
        self._executor = executor
        self._symbol = symbol
        self._op = operators.load(symbol.function.operator)
        self._subjects = [Subject(file, self._op, executor) for file in files]
        task = Task(self._op, symbol.precision)
        self._rivals = rivals_of(task, symbol.host_pointers) if executor.measures else []
        self._begun: dict[Candidate, Future[BuildResult]] = {}

    def begin(self, pool: ThreadPoolExecutor) -> None:
        """Begin to build everything."""
        for candidate in (*(subject.candidate for subject in self._subjects), *self._rivals):
            self._begun[candidate] = pool.submit(self._executor.build, self._op, candidate)

    def verdicts(self, settings: Settings, progress: Progress) -> list[Verdict]:
        """Check and time the files; one verdict for each."""
        name, op, executor, subjects = self._symbol.task, self._op, self._executor, self._subjects
        items, too_large = planned(op, self._symbol, settings.cases, settings.seed, executor.check_limit)
        with ExitStack() as processes:
            progress.started(f"building {name}")
            for subject in subjects:
                processes.callback(subject.close)
                subject.built(self._begun[subject.candidate].result())
                subject.left_out |= too_large
            progress.started(f"checking {name}")
            for done, item in enumerate(items, 1):
                _check(executor, subjects, item, settings.seed)
                progress.advanced(done, len(items), item.case.id)
            right = [subject for subject in subjects if subject.right]
            sizes = [item.case for item in items if item.kind is Kind.PAPER]
            for subject in right:
                subject.count_memory(sizes[0], settings.seed)
            timed: dict[str, Verdict] = {}
            if right and executor.measures:
                progress.started(f"measuring {name}")
                plan = Plan(cases=(), seed=settings.seed, time_budget_s=settings.budget_s, sittings=1, whole_calls=True)
                rivals = {candidate: self._begun[candidate].result() for candidate in self._rivals}
                timed = time_files(executor, right, rivals, sizes, plan, progress)
            return [timed.get(subject.found.name) or subject.verdict() for subject in subjects]


def _check(executor: Executor, subjects: Sequence[Subject], item: Item, seed: int) -> None:
    """Check one case on every file that it suits."""
    suited = [subject for subject in subjects if subject.suits(item.case)]
    waiting = [subject for subject in suited if subject.alive]
    for subject in suited:
        if subject not in waiting:
            subject.leave_out(item)
    if not waiting:
        return
    try:
        with CaseCheck(executor, waiting[0].task.at(item.case), seed) as check:
            while waiting:
                waiting[0].try_on(check, item)
                waiting.pop(0)
    except MemoryError:
        for subject in waiting:
            subject.leave_out(item)
