"""The rungs that a draft climbs: the cheapest tests that show it to be wrong or slow come first.

1. **build** and screen of the source;
2. **screening**: quick checks of a few cases, one of each regime and an odd one, and a quick time beside the parent;
3. **full**: all checks, and the measurement beside naive, the fastest library, the parent and the best version so far;
4. **profile**: of a version that a draft is to go on from, one case of each regime.
"""

from __future__ import annotations

from dataclasses import replace

from msbench import roofline
from msbench.harness.check.cost import work
from msbench.harness.evaluate import Checks, Plan
from msbench.model import Ceilings, Evaluation
from msbench.optimize.comparison import rated, times_ns
from msbench.spec import Case, Split, Task

QUICK_S = 0.3
"""The time budget of a case in the screening: its ratios are known to some percent then."""

QUICK_WIDTH = 0.03

PROFILED_NS = 1e7
"""Longer calls are not profiled, if there are shorter ones: a profiler repeats each for every set of counters, and copies memory."""

PROFILED_KERNELS = 8
"""Of a version whose call has more, one case is profiled: the profiler's time grows with their number."""

_LAUNCH_BOUND, _WIDE = 3.0, 30.0
"""Up to so many times an empty launch a bound is the launch's; from so many on the regime is bandwidth or compute."""


def regimes(task: Task, cases: tuple[Case, ...], ceilings: Ceilings | None) -> tuple[Case, ...]:
    """One case for each regime that there is, the largest of it: launch-bound, in between, bandwidth or compute.

    Without ceilings the smallest, the middle and the largest case stand for them.
    """
    ordered = sorted(rated(cases), key=lambda case: task.at(case).nbytes)
    if not ordered:
        return ()
    if ceilings is None:
        return tuple(dict.fromkeys((ordered[0], ordered[len(ordered) // 2], ordered[-1])))
    found: dict[int, Case] = {}
    for case in ordered:
        problem, compute = task.at(case), task.operator.compute_in(task.precision)
        bound = roofline.bound_ns(problem.nbytes, problem.flops, compute, ceilings)
        launches = bound.time_ns / ceilings.launch_ns
        found[(launches > _LAUNCH_BOUND) + (launches > _WIDE)] = case
    return tuple(found[regime] for regime in sorted(found))


def screening(task: Task, plan: Plan, ceilings: Ceilings | None) -> Plan | None:
    """What a draft must pass before the full check and measurement; None if that would be no cheaper."""
    by_work = sorted(plan.cases, key=lambda case: work(task.operator, case))
    odd = [case for case in by_work if case.split is Split.ODD][:1]
    cases = tuple(dict.fromkeys((*by_work[:1], *odd, *regimes(task, plan.cases, ceilings))))
    return None if len(cases) >= len(plan.cases) else quick(plan, cases)


def quick(plan: Plan, cases: tuple[Case, ...]) -> Plan:
    """Few checks and short measurements of some cases."""
    return replace(
        plan,
        cases=cases,
        checks=Checks.QUICK,
        heldout=0,
        profile=False,
        time_budget_s=min(QUICK_S, plan.time_budget_s),
        half_width=QUICK_WIDTH,
        sittings=1,
        settle_s=0.0,
    )


def profiling(task: Task, plan: Plan, ceilings: Ceilings | None, measured: Evaluation | None = None) -> Plan:
    """What profiling a version takes: one case of each regime. Of one that was ``measured`` long calls are left out, and all
    regimes but the last if a call has many kernels.
    """
    times = times_ns(measured, plan.cases) if measured else {}
    short = [case for case in plan.cases if times.get(case.id, 0.0) <= PROFILED_NS]
    chosen = short or sorted(plan.cases, key=lambda case: times[case.id])[:1]
    cases = plan.profile_cases or regimes(task, tuple(chosen), ceilings)
    nodes = (measured.record or {}).get("nodes", ()) if measured else ()
    if sum(node["kind"] == "kernel" for node in nodes) > PROFILED_KERNELS:
        cases = cases[-1:]
    return replace(quick(plan, cases), profile=True, profile_cases=cases)


def device_seconds(evaluation: Evaluation) -> float:
    """An evaluation's time without the compiler's."""
    return max(0.0, evaluation.seconds - (evaluation.build.seconds if evaluation.build else 0.0))
