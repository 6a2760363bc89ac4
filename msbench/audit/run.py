"""Audits the files of a folder, task by task; what one of them does to its process stays there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from msbench import operators
from msbench.audit.files import Found
from msbench.audit.subjects import Item, Kind, Subject, planned
from msbench.audit.times import time_files
from msbench.audit.verdict import Verdict
from msbench.harness.check import CaseCheck
from msbench.harness.evaluate import harness_digest
from msbench.harness.protocols import Executor, Plan, Progress
from msbench.model import digest


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
        UnknownNameError: ``settings.cases`` names a case that an operator does not have.
    """
    for file in found:
        if file.symbol is None:
            yield Verdict(file.name, file.sha256, problem=file.problem)
    kernels = sorted((f for f in found if f.symbol is not None), key=_task)
    for _, files in groupby(kernels, key=_task):
        yield from _audit_task(executor, list(files), settings, progress)


def _task(file: Found) -> str:
    assert file.symbol is not None
    return file.symbol.task


def _audit_task(executor: Executor, files: Sequence[Found], settings: Settings, progress: Progress) -> list[Verdict]:
    symbol = files[0].symbol
    assert symbol is not None
    op = operators.load(symbol.function.operator)
    items, too_large = planned(op, symbol, settings.cases, settings.seed, executor.check_limit)
    with ExitStack() as processes:
        subjects = [Subject(file, op, executor, left_out=dict(too_large)) for file in files]
        for subject in subjects:
            processes.callback(subject.close)
        progress.started(f"building {symbol.task}")
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="msbench-build") as pool:
            list(pool.map(Subject.make, subjects))
        progress.started(f"checking {symbol.task}")
        for done, item in enumerate(items, 1):
            _check(executor, subjects, item, settings.seed)
            progress.advanced(done, len(items), item.case.id)
        right = [subject for subject in subjects if subject.right]
        sizes = [item.case for item in items if item.kind is Kind.PAPER]
        for subject in right:
            subject.count_memory(sizes[0], settings.seed)
        timed: dict[str, Verdict] = {}
        if right and executor.measures:
            progress.started(f"measuring {symbol.task}")
            plan = Plan(cases=(), seed=settings.seed, time_budget_s=settings.budget_s, sittings=1, whole_calls=True)
            timed = time_files(executor, right, sizes, plan, progress)
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
        with CaseCheck(executor, waiting[0].op, waiting[0].precision, item.case, seed) as check:
            while waiting:
                waiting[0].try_on(check, item)
                waiting.pop(0)
    except MemoryError:
        for subject in waiting:
            subject.leave_out(item)
