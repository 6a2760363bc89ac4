"""The stage that measures: versions against each other, case by case, in as many sessions as needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from msbench import roofline
from msbench.harness import sessions as sittings
from msbench.harness.check.cost import work
from msbench.harness.entry import Entry, open_anew
from msbench.harness.gpu_memory import memory_for
from msbench.harness.protocols import ONLY_TURN, Executor, Plan, Prepares, Progress, TakesTurns
from msbench.harness.spans import span
from msbench.model import Failure, Fault, Measurement, Origin, Stage
from msbench.spec import Case, Problem, Task
from msbench.statistics import median

Room = Callable[[Problem], AbstractContextManager[object]]
"""What is entered for each case."""


def measure(
    executor: Executor, task: Task, plan: Plan, entries: Sequence[Entry], progress: Progress, room: Room
) -> None:
    """Measure the versions still alive against each other, on each case of the plan; one that fails stops there.

    The first session uses the processes in which they were checked, where those still exist.
    """
    op = task.operator
    progress.started(f"measuring {task.id}")
    began = _own_time(executor)
    cases = sorted(plan.cases, key=lambda case: work(op, case))
    parts: dict[Case, list[dict[int, Measurement]]] = {}
    open_anew(executor, op, [entry for entry in entries if entry.alive and not entry.runner])
    for done, case in enumerate(cases, 1):
        parts[case] = [_measure_group(executor, task.at(case), plan, entries, room)]
        progress.advanced(done, len(cases), case.id)
    numbers = {case: sittings.number_for(list(found.values()), plan.sittings) for case, (found,) in parts.items()}
    number = 2
    while again := [case for case in parts if numbers[case] >= number]:
        session_began = _own_time(executor)
        open_anew(executor, op, [entry for entry in entries if entry.alive])
        for case in again:
            parts[case].append(_measure_group(executor, task.at(case), plan, entries, room))
        progress.advanced(number, max(numbers.values()), f"{len(again)} cases, in new processes")
        if plan.settle_s and number == plan.sittings:
            numbers |= {case: sittings.number_needed(_whole(parts[case])) for case in again}
        now = _own_time(executor)
        limit_s = plan.settle_s if number >= plan.sittings else 2 * plan.settle_s
        if plan.settle_s and now - began + (now - session_began) > limit_s:
            break
        number += 1
    for sat in parts.values():
        joined = sittings.join(_whole(sat), plan.half_width)
        for entry_number, measurement in (sat[0] | dict(zip(_in_all(sat), joined, strict=True))).items():
            entries[entry_number].measurements.append(measurement)
    for entry in entries:
        entry.tell_untimed()


def _in_all(sat: Sequence[dict[int, Measurement]]) -> list[int]:
    """The versions that took part in all sessions."""
    return [number for number in sat[0] if all(number in part for part in sat)]


def _whole(sat: Sequence[dict[int, Measurement]]) -> list[list[Measurement]]:
    """The sessions of the versions that took part in all."""
    return [[part[number] for number in _in_all(sat)] for part in sat]


def _measure_group(
    executor: Executor, problem: Problem, plan: Plan, entries: Sequence[Entry], room: Room
) -> dict[int, Measurement]:
    """The measurement of each entry that is alive, by its number; what fails stops there."""
    case = problem.case
    group = {number: entry for number, entry in enumerate(entries) if entry.alive and case.dims not in entry.refused}
    if not group:
        return {}
    runners = [entry.runner for entry in group.values() if entry.runner is not None]
    with room(problem), memory_for("measure", executor, problem), span("judge rounds"):
        start = _own_time(executor)
        measurements = executor.measure(problem, runners, plan)
        seconds = _own_time(executor) - start
    found = {}
    for (number, entry), measured in zip(group.items(), measurements, strict=True):
        found[number] = measurement = _possible(executor, problem, measured)
        entry.note_record()
        entry.seconds += seconds / len(group)
        if measurement.failure:
            entry.fail(Stage.MEASURE, measurement.failure)
        elif isinstance(entry.runner, Prepares) and entry.candidate.origin is Origin.LIBRARY:
            with entry.at(Stage.MEASURE):
                entry.untimed_ns[case] = max(entry.untimed_ns.get(case, 0.0), entry.runner.untimed_ns())
    return found


def _own_time(executor: Executor) -> float:
    """A clock in seconds that stands still while other tasks are waited for."""
    turn = executor.turn if isinstance(executor, TakesTurns) else ONLY_TURN
    return time.perf_counter() - turn.waited_s


def _possible(executor: Executor, problem: Problem, measurement: Measurement) -> Measurement:
    """The measurement, failed if it is faster than the device can be."""
    ceilings = executor.ceilings()
    samples = [sample for samples in measurement.samples_ns for sample in samples]
    if measurement.failure or ceilings is None or not samples:
        return measurement
    reason = roofline.impossible(
        median(samples),
        nbytes=problem.nbytes,
        flops=problem.flops,
        ceilings=ceilings,
        l2_bytes=executor.device().l2_bytes,
        floor_ns=measurement.floor_ns,
    )
    if reason is None:
        return measurement
    message = f"Case {measurement.case.id}: {reason}"
    return replace(measurement, failure=Failure(Fault.IMPOSSIBLE, message))
