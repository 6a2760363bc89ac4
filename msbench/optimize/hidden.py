"""What a run may reveal of hidden cases: what kind of case failed and how badly, never its sizes, its seed or its values.

A repair that special-cases one hidden size would pass as long as that size stays the same. So agents, lessons and whoever
watches hear of properties only, and each step of a run draws its own hidden cases.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from dataclasses import replace

from msbench.harness.evaluate import Plan
from msbench.model import CheckResult, Evaluation, Failure, Fault
from msbench.operators import elements
from msbench.spec import Case, Operator, Split

SEEDS = 2**48  # JSON holds them exactly

_SENTENCES = {
    Fault.MISMATCH: "values are wrong",
    Fault.UNWRITTEN: "elements of an output still hold what was there before the launch: write every output, add to none",
    Fault.NONDETERMINISTIC: "the same inputs gave different bits in another launch",
    Fault.OUT_OF_BOUNDS: "the kernel wrote or read outside its arrays",
    Fault.INPUT_CHANGED: "the kernel wrote to an input",
    Fault.TIMEOUT: "the kernel did not end in time",
    Fault.CRASH: "the process that ran the kernel crashed",
    Fault.LAUNCH: "the launcher returned an error",
}
_VARIANTS = {
    "misaligned": "arrays aligned to one element only",
    "repeat": "several launches in a row",
    "aba": "other inputs in the same memory between two launches",
    "touched": "a second launch after which few elements of the inputs differ",
}
_LINE = re.compile(r"\.cu:(\d{1,6})\b")


def plan_of_step(plan: Plan, step: int) -> Plan:
    """The plan that a run evaluates step ``step`` by: hidden cases and inputs of its own, the same for every resumption."""
    return replace(plan, seed=random.Random(f"{plan.seed}:step {step}").randrange(SEEDS))


def plan_of_proof(plan: Plan, steps: int) -> Plan:
    """Full checks and nothing else, by a seed that no step of a run of ``steps`` steps has."""
    used = {plan.seed, *(plan_of_step(plan, step).seed for step in range(steps))}
    draw = random.Random(f"{plan.seed}:proof after {steps}")
    seed = draw.randrange(SEEDS)
    while seed in used:
        seed = draw.randrange(SEEDS)
    return replace(plan, seed=seed, measure=False, profile=False)


def is_hidden(case: Case, known: Collection[Case]) -> bool:
    """Whether a case was drawn, and is none of those that a run was told to time."""
    return case.split is Split.HELDOUT and case not in known


def told(evaluation: Evaluation, operator: Operator, known: Collection[Case]) -> Failure | None:
    """The failure as agents and people are told it; ``known`` are the run's own cases. None where nothing failed.

    That of a public case is told as it is. Of a check's failure the log says which other cases passed and failed.
    """
    failure = evaluation.failure
    if failure is None:
        return None
    failed = [check for check in evaluation.checks if not check.passed and check.failure]
    first = failed[0] if failed else None
    if first is None or first.failure is None:
        return failure
    if is_hidden(first.case, known):
        message = f"{_named(first, operator)}: {_what(first, evaluation)}."
        failure = Failure(failure.fault, message, "")
    if failure.log:
        return failure
    lines = [
        f"failed, {check.variant}: "
        + (check.failure.message if not is_hidden(check.case, known) else f"{_named(check, operator)}.")
        for check in failed[:12]
        if check.failure
    ]
    lines.append(f"passed before it: {_passed(evaluation, known)}")
    return replace(failure, log="\n".join(lines))


def _named(check: CheckResult, operator: Operator) -> str:
    parts = [*_properties(check.case, operator)]
    if check.variant in _VARIANTS:
        parts.append(_VARIANTS[check.variant])
    return f"A hidden case ({'; '.join(parts)})"


def _properties(case: Case, operator: Operator) -> list[str]:
    """What kind of case it is, beside the public ones."""
    public = {one.dims for one in operator.cases}
    found = []
    if case.dims in public:
        found.append("a public size, scalars that are drawn")
    else:
        sizes = [elements(operator, dict(dims)) for dims in public]
        own = elements(operator, dict(case.dims))
        below = sum(size < own for size in sizes)
        where = (
            "below all public sizes"
            if not below
            else "above all public sizes"
            if below == len(sizes)
            else "between public sizes"
        )
        found.append(f"a size {where}")
        odd = [name for name, size in case.dims if size % 2 and size > 1]
        if odd:
            found.append(f"odd {' and '.join(odd)}")
    return [*found, f"{case.distribution} inputs"]


def _what(check: CheckResult, evaluation: Evaluation) -> str:
    failure = check.failure
    assert failure is not None
    said = _SENTENCES.get(failure.fault, failure.fault.value.replace("_", " "))
    if failure.fault is Fault.MISMATCH and check.worst is not None:
        over = "more than ten times" if check.worst > 10 else "up to ten times"
        said += f", by {over} the accepted error"
    lines = _source_lines(failure, evaluation.candidate.source)
    return f"{said}, seen at {lines} of the source" if lines else said


def _source_lines(failure: Failure, source: str) -> str:
    """The lines of the source that a sanitizer or a compiler named; nothing else of a log is handed on."""
    last = source.count("\n") + 1
    found = {int(number) for number in _LINE.findall(f"{failure.message}\n{failure.log}")}
    lines = sorted(number for number in found if 0 < number <= last)[:8]
    if not lines:
        return ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"


def _passed(evaluation: Evaluation, known: Collection[Case]) -> str:
    # in an order that the stored results have no part in: a replay's briefing is to be the recorded one
    ordered = sorted({c.case for c in evaluation.checks if c.passed}, key=lambda case: (case.dims, case.id))
    public = list(dict.fromkeys(case.id for case in ordered if not is_hidden(case, known)))
    hidden = sum(is_hidden(case, known) for case in ordered)
    if hidden:
        public.append("one hidden case" if hidden == 1 else f"{hidden} hidden cases")
    return "; ".join(public) or "nothing"
