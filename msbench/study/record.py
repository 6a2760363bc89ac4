"""Measures identical and slowed down kernels against each other, the way any versions are, and says what came out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from msbench.errors import DeviceError, MsbenchError
from msbench.harness.batch import Job, evaluate_all
from msbench.harness.evaluate import harness_digest
from msbench.harness.protocols import Checks, Executor, Plan, Progress
from msbench.model import Candidate, Evaluation, Measurement, Origin, Status, Study, Trial
from msbench.statistics import bootstrap_ratio, log_ratios, median
from msbench.study.delay import BASE, delayed
from msbench.study.subjects import Subject

SLOWDOWN = 0.03
"""By how much of its time a kernel is slowed down."""

COVERED = 0.93
"""Identical kernels: the least share of pairs whose interval contains 1."""

OFF = 0.01
"""Identical kernels: the most that any median may be off."""

FOUND = 0.95
"""Slowed down kernels: the least share of pairs whose interval lies above 1."""

_USUAL_REGISTERS = 32  # of a thread: a version that is timed once need not wait in all blocks of its first wave

_EXPECTED = {
    Study.SAME: f"1 inside the 95 % interval, median within {OFF:.0%}",
    Study.SLOWDOWN: "95 % interval above 1",
}


@dataclass(frozen=True)
class Settings:
    """``pairs`` (even) of each kind are measured together, on every subject, in ``sittings``."""

    kinds: tuple[Study, ...]
    pairs: int
    sittings: int
    seed: int


@dataclass(frozen=True)
class _Versions:
    """What is measured in one group: copies of a kernel, and copies of a slower one that takes ``delay_ns`` longer."""

    candidates: tuple[Candidate, ...]
    delay_ns: float


def record(
    executor: Executor,
    subjects: Sequence[Subject],
    settings: Settings,
    *,
    command: str,
    created_at: str,
    progress: Progress,
) -> Generator[tuple[Subject, list[Trial]], None, None]:
    """The trials of each subject, as soon as it is measured.

    A group has ``pairs`` copies of the kernel and as many of the slower one, each in processes of its own. Each slower copy
    is compared with one of the others; identical ones by two and two. No copy is in two pairs of a kind.

    Raises:
        DeviceError: the device does not tell its clock, which a known delay needs; or what ``evaluate_all`` raises.
        MsbenchError: a naive kernel can't be measured.
    """
    versions = _versions(executor, subjects, settings, progress)
    jobs = [
        Job(
            subject.task.operator,
            subject.task.precision,
            group.candidates,
            Plan((subject.case,), Checks.QUICK, seed=settings.seed, sittings=settings.sittings),
        )
        for subject, group in zip(subjects, versions, strict=True)
    ]
    found = evaluate_all(executor, jobs, command=command, progress=progress, batch=1)
    for subject, group, (_, results) in zip(subjects, versions, found, strict=True):
        if isinstance(results, MsbenchError):
            raise results
        yield (
            subject,
            [
                _trial(kind, f"{subject.name} #{number}", subject, pair, group.delay_ns, executor, command, created_at)
                for kind in settings.kinds
                for number, pair in enumerate(_pairs(kind, results, settings), 1)
            ],
        )


def _pairs(kind: Study, results: Sequence[Evaluation], settings: Settings) -> list[tuple[Evaluation, Evaluation]]:
    if kind is Study.SLOWDOWN:
        return list(zip(results[: settings.pairs], results[settings.pairs :], strict=True))
    return list(pairwise(results))[::2]


def _versions(
    executor: Executor, subjects: Sequence[Subject], settings: Settings, progress: Progress
) -> list[_Versions]:
    if Study.SLOWDOWN not in settings.kinds:
        return [_Versions((subject.naive,) * (2 * settings.pairs), 0.0) for subject in subjects]
    multiprocessors = executor.device().multiprocessors
    jobs = [
        Job(
            subject.task.operator,
            subject.task.precision,
            (subject.naive, _waiting(subject, BASE, multiprocessors, _USUAL_REGISTERS)),
            Plan((subject.case,), Checks.QUICK, seed=settings.seed, sittings=1, time_budget_s=0.5),
        )
        for subject in subjects
    ]
    first = evaluate_all(executor, jobs, command="", progress=progress, batch=len(jobs))
    return [
        _slowed(subject, results, multiprocessors, settings.pairs)
        for subject, (_, results) in zip(subjects, first, strict=True)
    ]


def _slowed(subject: Subject, results: list[Evaluation] | MsbenchError, multiprocessors: int, pairs: int) -> _Versions:
    """``results`` are the naive kernel's, which tells its registers, and those of one that waits a little."""
    if isinstance(results, MsbenchError):
        raise results
    naive, waiting = results
    for one in results:
        if one.status is not Status.PASSED or one.build is None:
            why = one.failure.message if one.failure else one.note
            raise MsbenchError(f"{subject.name}: the naive kernel can't be measured: {why}")
    assert naive.build is not None
    (measured,) = waiting.measurements
    clock_mhz = measured.sm_clock_mhz
    if clock_mhz is None:
        raise DeviceError(
            "The GPU does not tell its clock, so nothing can be slowed down by a known time. "
            "Install nvidia-ml-py (it is in the `cuda` extra), or choose --kind same."
        )
    cycles = round(SLOWDOWN * _time_ns(measured) * clock_mhz / 1e3)
    registers = max((int(kernel.get("registers", 0)) for kernel in naive.build.kernels), default=0)

    reference, slower = (_waiting(subject, wait, multiprocessors, registers) for wait in (BASE, BASE + cycles))
    return _Versions((reference,) * pairs + (slower,) * pairs, cycles * 1e3 / clock_mhz)


def _waiting(subject: Subject, cycles: int, multiprocessors: int, registers: int) -> Candidate:
    source = delayed(subject.naive.source, cycles, multiprocessors=multiprocessors, registers=registers)
    label = f"waits for {cycles} cycles"
    return Candidate(subject.naive.operator, subject.naive.precision, source, Origin.EXTERNAL, label)


def _trial(
    kind: Study,
    name: str,
    subject: Subject,
    pair: tuple[Evaluation, Evaluation],
    delay_ns: float,
    executor: Executor,
    command: str,
    created_at: str,
) -> Trial:
    details: dict[str, Any] = {
        "task": f"{subject.task.operator.name}/{subject.task.precision}",
        "case": subject.case.id,
    }
    failed = next((one for one in pair if one.status is not Status.PASSED), None)
    if failed is not None:
        outcome, held = failed.failure.message if failed.failure else failed.note, False
    else:
        reference, other = (one.measurements[0] for one in pair)
        details |= _figures(kind, reference, other, delay_ns)
        ratio, low, high = details["median"], details["low"], details["high"]
        outcome = f"{ratio:.4f}, {low:.4f} to {high:.4f}"
        held = low > 1 if kind is Study.SLOWDOWN else low <= 1 <= high and abs(ratio - 1) <= OFF
    return Trial(
        study=kind,
        subject=name,
        expected=_EXPECTED[kind],
        outcome=outcome,
        held=held,
        details=details,
        device_id=executor.device().id,
        harness=harness_digest(),
        command=command,
        created_at=created_at,
    )


def _figures(kind: Study, reference: Measurement, other: Measurement, delay_ns: float) -> dict[str, Any]:
    """How many times as long ``other`` takes as ``reference``, and what there is to judge that by.

    ``between``: the standard deviation between the sittings' ratios, None of a single one. ``factor``: the true ratio.
    """
    sittings = reference.sittings
    ratio, low, high = bootstrap_ratio(other.samples_ns, reference.samples_ns, reference.seed, sittings)
    logs = log_ratios(other.samples_ns, reference.samples_ns, sittings)
    duration_ns = _time_ns(reference)
    return {
        "median": ratio,
        "low": low,
        "high": high,
        "duration_ns": duration_ns,
        "factor": 1 + delay_ns / duration_ns if kind is Study.SLOWDOWN else 1.0,
        "sittings": sittings,
        "samples": sum(map(len, reference.samples_ns)),
        "between": float(np.std([np.median(one) for one in logs], ddof=1)) if len(logs) > 1 else None,
        "floor_ns": reference.floor_ns,
        "sm_clock_mhz": reference.sm_clock_mhz,
        "disturbed": reference.throttle,
    }


def _time_ns(one: Measurement) -> float:
    return median([sample for samples in one.samples_ns for sample in samples])


# ------------------------------------------------------------------ what it comes to


@dataclass(frozen=True)
class Judgement:
    """What a study's trials come to: one sentence, and whether the criterion is met."""

    sentence: str
    held: bool


def judge(kind: Study, trials: Sequence[Trial]) -> Judgement:
    """Judge all trials of one study; a pair that could not be measured counts against it.

    Raises:
        ValueError: there is no trial.
    """
    if not trials:
        raise ValueError("no trials")
    ratios = [one.details for one in trials if "median" in one.details]
    lost = f" {len(trials) - len(ratios)} pairs could not be measured." if len(ratios) < len(trials) else ""
    if kind is Study.SLOWDOWN:
        found = sum(one["low"] > 1 for one in ratios)
        share = found / len(trials)
        sentence = f"The slower kernel was found in {found} of {len(trials)} pairs ({share:.1%}; at least {FOUND:.0%} are asked)."
        return Judgement(sentence + lost, share >= FOUND)
    covered = sum(one["low"] <= 1 <= one["high"] for one in ratios)
    share = covered / len(trials)
    worst = max((abs(one["median"] - 1) for one in ratios), default=0.0)
    sentence = (
        f"The interval contains 1 in {covered} of {len(trials)} pairs ({share:.1%}; at least {COVERED:.0%} are asked), "
        f"and the median that is off the most is off by {worst:.2%} (at most {OFF:.0%} is asked)."
    )
    return Judgement(sentence + lost, share >= COVERED and worst <= OFF)
