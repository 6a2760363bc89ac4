"""Drafts on their way to a verdict: measured beside what they have to beat, and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from msbench import operators
from msbench.agents import Draft, History, Proposal
from msbench.model import Candidate, Evaluation, Origin, Outcome
from msbench.optimize.briefings import newest
from msbench.optimize.comparison import Ratio, overall, paired, rated, score
from msbench.optimize.evaluating import Climbed, Evaluating
from msbench.optimize.hidden import told
from msbench.optimize.journal import Journal
from msbench.optimize.judge import USABLE, Verdict, judge
from msbench.spec import Case, Task
from msbench.statistics import Logs


@dataclass
class Drafted:
    """One step on its way: its proposal and draft, then its version, evaluation and verdict."""

    number: int
    proposal: Proposal
    draft: Draft
    candidate: Candidate | None = None
    version: str | None = None
    evaluation_id: str | None = None
    verdict: Verdict | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Judging:
    """Evaluates and judges the drafts of one run; ``naive`` and ``libraries`` are the task's own."""

    def __init__(
        self, task: Task, cases: Sequence[Case], measures: bool, journal: Journal, evaluating: Evaluating
    ) -> None:
        self._task = task
        self._cases = cases
        self._measures = measures
        self._journal = journal
        self._evaluating = evaluating
        versions = operators.versions(task)
        self.naive = next(c for c in versions if c.origin is Origin.NAIVE)
        self.libraries = [c for c in versions if c.origin is Origin.LIBRARY]

    def told(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation as agents and people are told of its failure."""
        return replace(evaluation, failure=told(evaluation, self._task.operator, self._cases))

    def library_scores(self, naive: Evaluation) -> list[tuple[Candidate, float]]:
        """The libraries that were measured with ``naive`` on every case, the fastest first."""
        found = newest([e for e in self._journal.companions(naive) if e.candidate.origin is Origin.LIBRARY])
        scores = [(e.candidate, score(paired(naive, e, self._cases), self._cases)) for e in found if e.status in USABLE]
        return sorted(((c, s) for c, s in scores if s is not None), key=lambda pair: -pair[1])

    def evaluated(self, steps: Sequence[Drafted]) -> None:
        """Evaluate drafts together and judge each, the later ones also beside the earlier ones."""
        if not steps:
            return
        climbed = self._climbed(steps)
        history = self._journal.history()  # of which the evaluation may have refuted a version
        best = history.best.version
        for step in steps:
            found = climbed[step.number]
            step.evaluation_id, step.seconds = found.evaluation_id, dict(found.seconds)
            step.verdict = self._judged(step, found, best, self._base(history, step.proposal.parent))
            if step.verdict.outcome is Outcome.IMPROVED:
                best = step.version

    def _climbed(self, steps: Sequence[Drafted]) -> dict[int, Climbed]:
        """What came of drafts beside the best version that there is: once more, if what was the best failed beside them."""
        found = self._climb(steps[0].number, steps)
        tried: set[str | None] = set()
        while (best := self._journal.history().best.version) not in tried:
            tried.add(best)
            again = [step for step in steps if self._lacks(found[step.number], best)]
            if again:
                found |= self._climb(steps[0].number, again, again=True)
        return found

    def _climb(self, number: int, steps: Sequence[Drafted], *, again: bool = False) -> dict[int, Climbed]:
        history = self._journal.history()
        bases = {s.number: base for s in steps if (base := self._base(history, s.proposal.parent)) is not None}
        return self._evaluating.drafts(
            number,
            {step.number: step.candidate for step in steps if step.candidate},
            {number: self._journal.source(base) for number, base in bases.items()},
            self._yardsticks(history, list(bases.values())),
            again=again,
        )

    def _lacks(self, found: Climbed, best: str | None) -> bool:
        """Whether a draft was measured in full, but not beside the best version."""
        evaluation = self._journal.evaluation(found.evaluation_id)
        if not self._measures or found.screened or evaluation.status not in USABLE or best == self.naive.id:
            return False
        return best not in {companion.candidate.id for companion in self._journal.companions(evaluation)}

    def _judged(self, step: Drafted, found: Climbed, best: str | None, base: str | None) -> Verdict:
        evaluation = self._journal.evaluation(found.evaluation_id)
        over_naive = self._over(evaluation, self.naive.id)
        whole = len(over_naive) == len(rated(self._cases))
        return judge(
            self.told(evaluation),
            score(over_naive, self._cases),
            _ratio(self._over(evaluation, best)) if whole else None,
            _ratio(self._over(evaluation, base)) if whole or found.screened else None,
            step.draft.predicted_speedup,
            screened=found.screened,
        )

    def _yardsticks(self, history: History, bases: Sequence[str]) -> list[Candidate]:
        """What drafts are measured beside: naive, the fastest library, their parents and the best version so far.

        Nothing, where nothing is measured. Only times of one group compare to the percent that decides.
        """
        if not self._measures:
            return []
        evaluation_id = self._journal.steps[0].evaluation_id
        scores = self.library_scores(self._journal.evaluation(evaluation_id)) if evaluation_id else []
        earlier = [v for v in (*bases, history.best.version) if v is not None]
        known = [self.naive, *(candidate for candidate, _ in scores[:1]), *map(self._journal.source, earlier)]
        return list({candidate.id: candidate for candidate in known}.values())

    def _over(self, evaluation: Evaluation, version: str | None) -> dict[str, Logs]:
        """How it compares to another version, paired within the measurement's groups, by case."""
        by_case: dict[str, Logs] = {}
        for companion in self._journal.companions(evaluation):
            if companion.candidate.id == version:
                by_case |= paired(companion, evaluation, self._cases)
        return by_case

    def _base(self, history: History, version: str) -> str | None:
        """``version``, or, if it was not measured, the last measured version that it came from."""
        attempt = history.of_version(version)
        while attempt is not None and attempt.speedup is None and attempt.parent not in (None, attempt.version):
            attempt = history.of_version(attempt.parent or "")
        return attempt.version if attempt else None


def _ratio(by_case: dict[str, Logs]) -> Ratio | None:
    return overall(by_case) if by_case else None
