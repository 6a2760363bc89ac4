"""Evaluates for one run: its references, its drafts rung by rung, profiles; all on its ledger.

All checks of a step draw their hidden cases by a seed of the step's own, the proof of the best version by one that no step has.
What checks no hidden cases (screening, profiles, trials) has the run's seed, which therefore proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from msbench.harness.evaluate import Executor, Plan, Progress
from msbench.model import Candidate, Evaluation, Origin
from msbench.optimize import rungs
from msbench.optimize.budget import Ledger
from msbench.optimize.comparison import Ratio, overall, paired
from msbench.optimize.deadline import Deadline
from msbench.optimize.hidden import plan_of_proof, plan_of_step, told
from msbench.optimize.journal import Journal
from msbench.optimize.judge import USABLE, clearly_slower
from msbench.spec import Case, Task


class Evaluate(Protocol):
    """``harness.evaluate.evaluate``, or what gathers the groups of many runs."""

    def __call__(
        self,
        executor: Executor,
        task: Task,
        candidates: Sequence[Candidate],
        plan: Plan,
        *,
        command: str,
        progress: Progress | None = None,
    ) -> list[Evaluation]: ...


@dataclass(frozen=True)
class Climbed:
    """How far a draft came: its evaluation, whether the screening was the end, and the seconds of each rung."""

    evaluation_id: str
    screened: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)


class Evaluating:
    """See the module's docstring."""

    def __init__(
        self, task: Task, plan: Plan, executor: Executor, journal: Journal, ledger: Ledger, evaluate: Evaluate,
        command: str, progress: Progress | None, tell: Callable[[str, str, int], None],
    ) -> None:  # fmt: skip
        self._task = task
        # Profiles are taken where they are needed, and steps are judged by cold calls alone.
        self._plan = replace(plan, profile=False, hot=False)
        self._profiles = plan.profile
        self._executor = executor
        self._journal = journal
        self._ledger = ledger
        self._evaluate = evaluate
        self._command = command
        self._progress = progress
        self._tell = tell
        self._ceilings = executor.ceilings() if executor.measures else None
        self._screening = rungs.screening(task, self._plan, self._ceilings)

    def baseline(self, candidates: Sequence[Candidate]) -> str:
        """The references against each other; returns the id of the last one's evaluation."""
        results = self._group(0, "full", candidates, self._plan_of_step(0))
        ids = self._store(results)
        self._tell("evaluated", results[-1].status.value, 0)
        return ids[-1]

    def drafts(
        self,
        number: int,
        drafts: Mapping[int, Candidate],
        parents: Mapping[int, Candidate],
        yardsticks: Sequence[Candidate],
        *,
        again: bool = False,
    ) -> dict[int, Climbed]:
        """Drafts that are proposed together, by their steps' numbers; the first step of them is ``number``.

        All that is measured of them is stored in one transaction. ``parents``: by step, the measured version that it came
        from; ``yardsticks``: all that they are held against, which fail from now on if they fail here. ``again``: in full, whatever
        is stored of them.
        """
        done = {} if again else {step: self._journal.already_evaluated(draft) for step, draft in drafts.items()}
        found = {step: Climbed(one, self._was_screened(one)) for step, one in done.items() if one is not None}
        left = {step: draft for step, draft in drafts.items() if step not in found}
        if not left:
            return found
        seconds: dict[int, dict[str, float]] = {step: {} for step in left}
        results: dict[int, tuple[Evaluation, bool]] = {}
        stored: list[Evaluation] = []
        if self._executor.measures and self._screening and parents and not again:
            bases = list({one.id: one for one in parents.values()}.values())
            screened = self._group(number, "screening", [*bases, *left.values()], self._screening)
            beside, own = screened[: len(bases)], screened[len(bases) :]
            for step, evaluation in zip(list(left), own, strict=True):
                _count(seconds[step], "screening", evaluation)
                base = next((one for one in beside if one.candidate == parents.get(step)), None)
                slower = base is not None and clearly_slower(self._over(base, evaluation))
                if evaluation.status not in USABLE or slower:
                    results[step] = evaluation, slower
                    left.pop(step)
            if any(slower for _, slower in results.values()) or any(one.status not in USABLE for one in beside):
                stored += beside
        if left:
            group = self._group(number, "full", [*yardsticks, *left.values()], self._plan_of_step(number))
            stored += group[: len(yardsticks)]
            for step, evaluation in zip(left, group[len(yardsticks) :], strict=True):
                _count(seconds[step], "full", evaluation)
                results[step] = evaluation, not self._executor.measures and self._is_part(evaluation)  # as recorded
        own_ids = self._store(stored, [evaluation for evaluation, _ in results.values()])
        for step in results:
            self._tell("evaluated", results[step][0].status.value, step)
        for (step, (_, slower)), one in zip(results.items(), own_ids, strict=True):
            found[step] = Climbed(one, slower, {rung: round(s, 3) for rung, s in seconds[step].items()})
        return found

    def profiled(self, candidate: Candidate) -> None:
        """Have a version profiled that a draft is to go on from, unless it was, or can't be."""
        if not self._executor.measures or not self._profiles or self._journal.profiles(candidate.id):
            return
        known = next((s.evaluation_id for s in reversed(self._journal.steps) if s.version_id == candidate.id), None)
        measured = self._journal.evaluation(known) if known else None
        plan = rungs.profiling(self._task, self._plan, self._ceilings, measured)
        step = len(self._journal.steps)
        self._store(self._group(step, "profile", [candidate], plan))
        self._tell("evaluated", "profiled", step)

    def proof(self, candidate: Candidate) -> Evaluation:
        """A version checked in full on hidden cases that no step used; it counts as no evaluation."""
        steps = len(self._journal.steps)
        results = self._group(steps, "full", [candidate], plan_of_proof(self._plan, steps), apart=True)
        self._store(results)
        return results[0]

    def told(self, evaluation: Evaluation, known: Sequence[Case] = ()) -> Evaluation:
        """The evaluation as agents and people are told of its failure; ``known`` are further cases that are no secret."""
        return replace(evaluation, failure=told(evaluation, self._task.operator, (*self._plan.cases, *known)))

    def tried(
        self, step: int, source: str, cases: Sequence[Case], against: Candidate | None, profile: bool
    ) -> list[Evaluation]:
        """A source for the engine's tools, which store nothing; beside ``against``, which comes first, if it is given."""
        chosen = tuple(cases) or (self._screening or self._plan).cases
        plan = rungs.quick(self._plan, chosen)
        if profile:
            plan = rungs.profiling(self._task, plan, self._ceilings)
        candidate = Candidate(self._task.operator.name, self._task.precision, source, Origin.AGENT, "a trial")
        beside = [against] if against and self._executor.measures else []
        return self._group(step, "trial", [*beside, candidate], plan)

    def _was_screened(self, evaluation_id: str) -> bool:
        """Whether a stored evaluation is that of a draft that the screening gave up."""
        return self._is_part(self._journal.evaluation(evaluation_id))

    def _is_part(self, evaluation: Evaluation) -> bool:
        """Whether only some of the cases were timed."""
        measured = {m.case.id for m in evaluation.measurements}
        return evaluation.status in USABLE and 0 < len(measured) < len(self._plan.cases)

    def _over(self, reference: Evaluation, evaluation: Evaluation) -> Ratio | None:
        logs = paired(reference, evaluation, self._plan.cases)
        return overall(logs) if logs else None

    def _plan_of_step(self, number: int) -> Plan:
        return replace(plan_of_step(self._plan, number), recorded_with=self._journal.recorded_step(number))

    def _group(
        self, step: int, rung: str, candidates: Sequence[Candidate], plan: Plan, *, apart: bool = False
    ) -> list[Evaluation]:
        """Evaluate on the budget. What does not come back counts with all the time since it was asked for."""
        entry = self._ledger.reserve_evaluation(step, rung, apart=apart)
        begun, results = time.monotonic(), None
        try:
            results = self._evaluate(
                self._executor, self._task, candidates, plan, command=self._command,
                progress=Deadline(self._ledger, self._progress, (*self._task.operator.cases, *self._plan.cases)),
            )  # fmt: skip
        finally:
            seconds = time.monotonic() - begun
            on_device = seconds if results is None else sum(map(rungs.device_seconds, results))
            self._ledger.settle_evaluation(
                entry,
                seconds,
                gpu_seconds=on_device if self._executor.measures else 0.0,
                note="It did not come to an end." if results is None else "",
            )
        return results

    def _store(self, known: Sequence[Evaluation], drafts: Sequence[Evaluation] = ()) -> list[str]:
        """Commit what was evaluated, and what that says of versions that were ``known``; returns the ids of the last."""
        ids = self._journal.add_evaluations([*known, *drafts], spend=self._ledger.stored())
        self._journal.refute_failed([one.candidate for one in known], ids[: len(known)])
        return ids[len(known) :] if drafts else ids


def _count(seconds: dict[str, float], rung: str, evaluation: Evaluation) -> None:
    """What an evaluation took: building apart, which no device waits for. A cached build took what it took once."""
    seconds.setdefault("build", evaluation.build.seconds if evaluation.build else 0.0)
    seconds[rung] = rungs.device_seconds(evaluation)
