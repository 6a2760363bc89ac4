"""Measures identical and slowed down kernels against each other, like any versions, and judges the results."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from msbench.errors import DeviceError, MsbenchError
from msbench.harness.batch.coordinator import evaluate_all
from msbench.harness.batch.job import Job
from msbench.harness.digest import harness_digest
from msbench.harness.protocols import Checks, Executor, Plan, Progress
from msbench.model import Candidate, Evaluation, Measurement, Origin, Status, Study, Trial
from msbench.statistics import bootstrap_ratio, log_ratios, median, proportion_interval
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

_FIRST_LOOK_S = 0.5
_SETTLE_S = 600.0  # of one case, so that all its sessions are had

_EXPECTED = {
    Study.SAME: f"1 inside the 95 % interval, median within {OFF:.0%}",
    Study.SLOWDOWN: "95 % interval above 1",
}


@dataclass(frozen=True)
class Settings:
    """``pairs`` of each kind are measured together, on every subject, in ``sittings`` sessions."""

    kinds: tuple[Study, ...]
    pairs: int
    sittings: int
    seed: int


@dataclass(frozen=True)
class _Slowed:
    """Copies of a kernel, and as many of a slower one that takes ``delay_ns`` longer."""

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

    Each kind is a group of its own: ``2 * pairs`` copies of the kernel, compared by two and two; or ``pairs`` copies of a slower
    one, each compared with a copy of one that is not. Every copy has processes of its own, and none is in two pairs.

    Raises:
        DeviceError: the device does not report its clock, which a known delay needs; or what ``evaluate_all`` raises.
        MsbenchError: a naive kernel can't be measured.
    """
    slowed = _slowed_versions(executor, subjects, settings, progress)
    jobs = [
        _job(subject, (subject.naive,) * (2 * settings.pairs) if kind is Study.SAME else slow.candidates, settings)
        for subject, slow in zip(subjects, slowed, strict=True)
        for kind in settings.kinds
    ]
    found = evaluate_all(executor, jobs, command=command, progress=progress, batch=1)
    for subject, slow in zip(subjects, slowed, strict=True):
        trials = []
        for kind in settings.kinds:
            _, results = next(found)
            if isinstance(results, MsbenchError):
                raise results
            trials += [
                _trial(kind, f"{subject.name} #{number}", subject, pair, slow.delay_ns, executor, command, created_at)
                for number, pair in enumerate(_pairs(kind, results, settings), 1)
            ]
        yield subject, trials


def _job(subject: Subject, candidates: tuple[Candidate, ...], settings: Settings) -> Job:
    plan = Plan((subject.case,), Checks.QUICK, seed=settings.seed, sittings=settings.sittings, settle_s=_SETTLE_S)
    return Job(subject.task, candidates, plan)


def _pairs(kind: Study, results: Sequence[Evaluation], settings: Settings) -> list[tuple[Evaluation, Evaluation]]:
    if kind is Study.SLOWDOWN:
        return list(zip(results[: settings.pairs], results[settings.pairs :], strict=True))
    return list(pairwise(results))[::2]


def _slowed_versions(
    executor: Executor, subjects: Sequence[Subject], settings: Settings, progress: Progress
) -> list[_Slowed]:
    """How long a slower copy has to wait follows from what one that waits as little as the others takes."""
    if Study.SLOWDOWN not in settings.kinds:
        return [_Slowed((), 0.0)] * len(subjects)
    once = replace(settings, sittings=1)
    jobs = [_job(subject, (_waiting(subject, BASE),), once) for subject in subjects]
    jobs = [replace(job, plan=replace(job.plan, time_budget_s=_FIRST_LOOK_S)) for job in jobs]
    first = {job.task.id: results for job, results in evaluate_all(executor, jobs, command="", progress=progress)}
    return [_slowed(subject, first[job.task.id], settings.pairs) for subject, job in zip(subjects, jobs, strict=True)]


def _slowed(subject: Subject, results: list[Evaluation] | MsbenchError, pairs: int) -> _Slowed:
    if isinstance(results, MsbenchError):
        raise results
    (waiting,) = results
    if waiting.status is not Status.PASSED:
        why = waiting.failure.message if waiting.failure else waiting.note
        raise MsbenchError(f"{subject.name}: the naive kernel can't be measured: {why}")
    (measured,) = waiting.measurements
    clock_mhz = measured.sm_clock_mhz
    if clock_mhz is None:
        raise DeviceError(
            "The GPU does not report its clock, so no kernel can be slowed down by a known time. "
            "Install nvidia-ml-py (it is in the `cuda` extra), or choose --kind same."
        )
    cycles = round(SLOWDOWN * _time_ns(measured) * clock_mhz / 1e3)
    reference, slower = _waiting(subject, BASE), _waiting(subject, BASE + cycles)
    return _Slowed((reference,) * pairs + (slower,) * pairs, cycles * 1e3 / clock_mhz)


def _waiting(subject: Subject, cycles: int) -> Candidate:
    source, label = delayed(subject.naive.source, cycles), f"waits for {cycles} cycles"
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
    """The result of a study's trials: one sentence, and whether the criterion is met."""

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
        sentence = f"The slower kernel was found in {found} of {len(trials)} pairs ({_sure(found, len(trials))}; at least {FOUND:.0%} required)."
        return Judgement(sentence + lost, share >= FOUND)
    covered = sum(one["low"] <= 1 <= one["high"] for one in ratios)
    share = covered / len(trials)
    worst = max((abs(one["median"] - 1) for one in ratios), default=0.0)
    sentence = (
        f"The interval contains 1 in {covered} of {len(trials)} pairs ({_sure(covered, len(trials))}; at least {COVERED:.0%} required), "
        f"and the medians are off by at most {worst:.2%} (limit {OFF:.0%})."
    )
    return Judgement(sentence + lost, share >= COVERED and worst <= OFF)


def _sure(held: int, trials: int) -> str:
    """A share with its 95 % interval."""
    low, high = proportion_interval(held, trials)
    return f"{held / trials:.1%}, 95 % interval {low:.0%} to {high:.0%}"
