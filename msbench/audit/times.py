"""Times the files of a task that are right on the paper's sizes, against our own version and the library baselines.

All are timed as whole calls (see ``gpu/timing/whole.py``), in one group, so that their ratios compare like with like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from msbench import roofline
from msbench.audit import adapter
from msbench.audit.subjects import Subject
from msbench.audit.verdict import CaseTimes, Speed, Verdict
from msbench.errors import WorkerError
from msbench.harness.protocols import Executor, Plan, Progress, Runner
from msbench.model import BuildResult, Candidate, Fault, Measurement, Origin
from msbench.operators import versions
from msbench.spec import Case, Problem, Task
from msbench.statistics import bootstrap_geometric_mean, log_ratios, median, round_centres


@dataclass(eq=False)
class _Version:
    """What is timed: an audited file, or one of its rivals."""

    candidate: Candidate
    open: Callable[[], Runner]
    runner: Runner | None = None
    measured: dict[Case, Measurement] = field(default_factory=dict)
    failure: str = ""
    wrong: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Give it a process."""
        try:
            self.runner = self.open()
        except WorkerError as error:
            self.failure = str(error)

    def close(self) -> None:
        """End its process."""
        if self.runner is not None:
            self.runner.close()

    @property
    def is_library(self) -> bool:
        return self.candidate.origin is Origin.LIBRARY


def rivals_of(task: Task, host_pointers: bool) -> list[Candidate]:
    """Our best version (the naive one where there is no better) and the library baselines."""
    found = versions(task)
    ours = next((c for c in reversed(found) if c.origin is Origin.EXPERT), found[0])
    wanted = [ours, *(c for c in found if c.origin is Origin.LIBRARY)]
    return [replace(c, entry=adapter.staged(task)) for c in wanted] if host_pointers else wanted


def time_files(
    executor: Executor,
    subjects: Sequence[Subject],
    rivals: Mapping[Candidate, BuildResult],
    cases: Sequence[Case],
    plan: Plan,
    progress: Progress,
) -> dict[str, Verdict]:
    """The verdicts of files that are right, with their times, by file.

    Args:
        subjects: of one task.
        rivals: ``rivals_of`` the task, with their builds; one that has failed is left out.
        cases: the paper's sizes, cheap ones first.
        plan: the budget and the seed; a time is a whole call's.

    Raises:
        DeviceError: the device is lost.
    """
    task = subjects[0].task
    with ExitStack() as stack:
        timed = {subject.found.name: _Version(subject.candidate, subject.open) for subject in subjects}
        against = [
            _Version(candidate, partial(executor.open, task.operator, build, candidate))
            for candidate, build in rivals.items()
            if build.failure is None
        ]
        for rival in against:
            stack.callback(rival.close)
        everyone = [*timed.values(), *against]
        for version in everyone:
            version.start()
        for done, case in enumerate(cases, 1):
            if all(version.failure for version in timed.values()):
                break
            _time_case(executor, task.at(case), everyone, plan)
            progress.advanced(done, len(cases), case.id)
        return {s.found.name: _told(s.verdict(), timed[s.found.name], against, cases, plan.seed) for s in subjects}


def _time_case(executor: Executor, problem: Problem, everyone: Sequence[_Version], plan: Plan) -> None:
    case = problem.case
    taking_part = {version: version.runner for version in everyone if version.runner and not version.failure}
    try:
        measured = executor.measure(problem, list(taking_part.values()), replace(plan, cases=(case,)))
    except MemoryError:
        for version in taking_part:
            version.failure = f"Case {case.id}: the device has not enough memory to time it."
        return
    for version, one in zip(taking_part, measured, strict=True):
        if version.is_library and one.failure and one.failure.fault is Fault.UNSUPPORTED:
            continue
        impossible = None if one.failure else _impossible(executor, problem, one)
        if one.failure or impossible:
            version.failure = one.failure.message if one.failure else f"Case {case.id}: {impossible}"
            version.wrong[case.id] = version.failure
        else:
            version.measured[case] = one


def _impossible(executor: Executor, problem: Problem, one: Measurement) -> str | None:
    ceilings = executor.ceilings()
    if ceilings is None:
        return None
    return roofline.impossible(
        median([sample for samples in one.samples_ns for sample in samples]),
        nbytes=problem.nbytes,
        flops=problem.flops,
        ceilings=ceilings,
        l2_bytes=executor.device().l2_bytes,
        floor_ns=one.floor_ns,
    )


def _told(verdict: Verdict, own: _Version, rivals: Sequence[_Version], cases: Sequence[Case], seed: int) -> Verdict:
    """The verdict with what was measured; a ratio only where there is one for every case.

    A file that fails while it is timed is wrong on that size, whatever its check said.
    """
    if own.failure:
        paper = replace(verdict.paper, wrong={**verdict.paper.wrong, **own.wrong})
        return replace(verdict, paper=paper, untimed=own.failure)
    ours = [r for r in rivals if not r.is_library]
    libraries = [r for r in rivals if r.is_library]
    return replace(
        verdict,
        ours=_speed(own, ours, cases, seed),
        library=_speed(own, libraries, cases, seed),
        times=tuple(_case_times(own, rivals, case) for case in cases),
    )


def _speed(own: _Version, rivals: Sequence[_Version], cases: Sequence[Case], seed: int) -> Speed | None:
    """Against the fastest of ``rivals`` on each case."""
    logs: list[Any] = []
    names: list[str] = []
    for case in cases:
        able = [r for r in rivals if case in r.measured]
        if not able:
            return None
        fastest = min(able, key=lambda r: _centre(r.measured[case]))
        logs.append(log_ratios(fastest.measured[case].samples_ns, own.measured[case].samples_ns))
        names.append(fastest.candidate.label)
    ratio, low, high = bootstrap_geometric_mean(logs, seed)
    return Speed(", ".join(dict.fromkeys(names)), ratio, low, high)


def _case_times(own: _Version, rivals: Sequence[_Version], case: Case) -> CaseTimes:
    there = {"file": own.measured[case]} | {r.candidate.label: r.measured[case] for r in rivals if case in r.measured}
    return CaseTimes(
        case=case.id,
        cold_ns={n: tuple(map(_kept, round_centres(m.samples_ns).tolist())) for n, m in there.items()},
        hot_ns={n: m.hot_ns for n, m in there.items()},
        noisy=own.measured[case].noisy,
    )


def _kept(centre: float) -> float | None:
    return None if math.isnan(centre) else round(centre, 1)


def _centre(one: Measurement) -> float:
    return median([sample for samples in one.samples_ns for sample in samples])
