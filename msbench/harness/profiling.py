"""The stage that profiles: which versions, on which cases. gpu/profile/ interprets profiles."""

from __future__ import annotations

from collections.abc import Sequence

from msbench.harness.entry import Entry
from msbench.harness.protocols import Executor, Plan, Progress
from msbench.model import Stage
from msbench.spec import Case, Task
from msbench.statistics import median


def profile(executor: Executor, task: Task, plan: Plan, entries: Sequence[Entry], progress: Progress) -> None:
    """Profile the versions that are alive on the cases that the plan names, or on the largest (of twins, on the uniform one)."""
    progress.started(f"profiling {task.id}")
    nbytes = {case: task.at(case).nbytes for case in plan.cases}
    cases = plan.profile_cases or tuple(
        sorted(nbytes, key=lambda case: (nbytes[case], case.distribution == "uniform"))[-1:]
    )
    todo: dict[str, tuple[Entry, list[Case]]] = {}
    for case in cases:
        for entry in _worth_profiling(plan, [e for e in entries if e.alive and case.dims not in e.refused], case):
            todo.setdefault(entry.candidate.id, (entry, []))[1].append(case)
    for done, (entry, its_cases) in enumerate(todo.values(), 1):
        assert entry.build is not None
        measured = {m.case: m for m in entry.measurements}
        with entry.at(Stage.PROFILE):
            pairs = [(case, measured.get(case)) for case in its_cases]
            found = executor.profile(task, pairs, entry.build, entry.candidate)
            entry.profiles += found
            failure = next((one.failure for one in found if one.failure), None)
            if failure:
                entry.fail(Stage.PROFILE, failure)
        progress.advanced(done, len(todo), f"{entry.name} at {' and '.join(case.id for case in its_cases)}")


def _worth_profiling(plan: Plan, entries: Sequence[Entry], case: Case) -> Sequence[Entry]:
    if not plan.profile_fastest:
        return entries
    times = {
        number: median([sample for samples in measurement.samples_ns for sample in samples])
        for number, entry in enumerate(entries)
        for measurement in entry.measurements
        if measurement.case == case and any(measurement.samples_ns)
    }
    return [entries[min(times, key=lambda number: times[number])]] if times else []
