"""A run's steps: each drafted, judged and committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from msbench.agents import Draft, History, Proposal, Strategy
from msbench.agents._source import token_form
from msbench.errors import MsbenchError, ReplyError, WaitingForAnswer
from msbench.model import Candidate, Evaluation, Origin, Outcome
from msbench.optimize.briefings import Briefings
from msbench.optimize.comparison import paired, score
from msbench.optimize.desk import Desk
from msbench.optimize.evaluating import Evaluating
from msbench.optimize.journal import Journal, now
from msbench.optimize.judge import DUPLICATE, UNCHANGED, USABLE, Verdict, failure_text
from msbench.optimize.judging import Drafted, Judging
from msbench.spec import Case, Task
from msbench.store.tables import StepRow


class Steps:
    """Makes the steps of one run; ``desk`` makes the desk of a step: its number, its place among those drafted at the same
    time, and how many calls the run had before them.
    """

    def __init__(
        self, task: Task, cases: Sequence[Case], strategy: Strategy, journal: Journal, evaluating: Evaluating,
        judging: Judging, briefings: Briefings, desk: Callable[[int, int, int], Desk], committed: Callable[[Sequence[StepRow]], None],
    ) -> None:  # fmt: skip
        self._task = task
        self._cases = cases
        self._strategy = strategy
        self._journal = journal
        self._evaluating = evaluating
        self._judging = judging
        self._briefings = briefings
        self._desk = desk
        self._committed = committed

    def baseline(self) -> None:
        """Step 0: the naive kernel and the vendor libraries, against each other."""
        started = now()
        stored = self._journal.already_evaluated(self._judging.naive)
        evaluation_id = stored or self._evaluating.baseline([*self._judging.libraries, self._judging.naive])
        evaluation = self._journal.evaluation(evaluation_id)
        if evaluation.status not in USABLE:
            raise MsbenchError(
                f"The naive kernel of {self._task.id} is the reference, and it fails: "
                f"{failure_text(self._judging.told(evaluation))} "
                f"See `msbench eval` of {self._task.operator.folder}/naive.cu."
            )
        speedup = score(paired(evaluation, evaluation, self._cases), self._cases)
        verdict = Verdict(Outcome.BASELINE, speedup, None, self._baseline_lesson(evaluation))
        step = Drafted(0, Proposal(self._judging.naive.id, "baseline"), Draft(None), verdict=verdict)
        step.version, step.evaluation_id = self._judging.naive.id, evaluation_id
        self._commit(started, [step])

    def _baseline_lesson(self, naive: Evaluation) -> str:
        if not naive.measurements:
            return "Checked, not measured: this executor has no times."
        scores = self._judging.library_scores(naive)
        if not scores:
            return "No vendor library was measured on every case."
        return "; ".join(f"{c.label}: {value:.3f}x over naive" for c, value in scores) + "."

    def fork(self, version: str) -> None:
        """Step 1 of a run that goes on from a known version: that version, measured here."""
        started = now()
        source = self._journal.version(version)
        plan = f"Goes on from version {source.id[:12]}."
        step = Drafted(1, Proposal(self._judging.naive.id, "fork"), Draft(source.source, plan))
        step.candidate, step.version = source, source.id
        self._judging.evaluated([step])
        self._commit(started, [step])

    def generation(self, number: int, history: History, proposals: Sequence[Proposal]) -> None:
        """The steps that a strategy proposed together: drafted concurrently, measured in one group, committed as one."""
        started = now()
        steps: list[Drafted] = []
        further: list[tuple[Proposal, Draft]] = []
        for index, (proposal, drafts) in enumerate(
            zip(proposals, self._drafts(number, history, proposals), strict=True)
        ):
            steps.append(Drafted(number + index, proposal, drafts[0]))
            further += [(proposal, draft) for draft in drafts[1:]]
        steps += [Drafted(number + len(proposals) + k, *more) for k, more in enumerate(further)]
        known = self._journal.known([self._judging.naive, *self._judging.libraries])
        for step in steps:
            self._recognise(step, known)
        self._judging.evaluated([step for step in steps if step.candidate])
        self._commit(started, steps)

    def _drafts(self, number: int, history: History, proposals: Sequence[Proposal]) -> list[list[Draft]]:
        """The drafts of each proposal. All are asked for, whatever comes of the others, before an error is one of them all."""
        for parent in dict.fromkeys(p.parent for p in proposals):
            attempt = history.of_version(parent)
            if attempt is None or attempt.outcome is not Outcome.FAILED:
                self._evaluating.profiled(self._journal.source(parent))
        before = sum(call.step_number < number for call in self._journal.calls)

        def draft(index: int, proposal: Proposal) -> list[Draft]:
            try:
                briefing = self._briefings.make(history, proposal.parent, proposal.others)
                found = self._strategy.draft(proposal, briefing, self._desk(number + index, index, before))
            except ReplyError as error:
                found = Draft(None, problem=str(error))
            return [found] if isinstance(found, Draft) else list(found) or [Draft(None, problem="There is no draft.")]

        if len(proposals) == 1:
            return [draft(0, proposals[0])]
        with ThreadPoolExecutor(len(proposals), thread_name_prefix="msbench-draft") as pool:
            asked: list[Future[list[Draft]]] = [pool.submit(draft, i, p) for i, p in enumerate(proposals)]
        errors = [error for one in asked if (error := one.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, WaitingForAnswer)):
            raise error
        return [one.result() for one in asked]

    def _recognise(self, step: Drafted, known: dict[str, str]) -> None:
        """Make a version of a draft, unless there is none in it, or it is one that this run has already."""
        if step.draft.source is None:
            step.verdict = Verdict(Outcome.NO_KERNEL, None, None, step.draft.problem)
            return
        operator, precision = self._task.operator.name, self._task.precision
        parents = (step.proposal.parent, *step.proposal.others)
        candidate = Candidate(operator, precision, step.draft.source, Origin.AGENT, f"step {step.number}", parents)
        form = token_form(candidate)
        if form in known:
            step.version = known[form]
            step.verdict = UNCHANGED if step.version == step.proposal.parent else DUPLICATE
            return
        known[form] = candidate.id
        step.candidate, step.version = candidate, candidate.id

    def _commit(self, started: str, steps: Sequence[Drafted]) -> None:
        rows: list[tuple[StepRow, dict[str, Any]]] = []
        for step in steps:
            assert step.verdict is not None
            row = StepRow(
                id="",
                run_id=self._journal.run.id,
                number=step.number,
                parent_version_id=step.proposal.parent if step.number else None,
                version_id=step.version,
                evaluation_id=step.evaluation_id,
                action=step.proposal.action,
                plan=step.draft.plan,
                hypothesis=step.draft.hypothesis,
                predicted_speedup=step.draft.predicted_speedup,
                predicted_cases=dict(step.draft.predicted_cases) or None,
                speedup=step.verdict.speedup,
                outcome=step.verdict.outcome.value,
                held=step.verdict.held,
                lesson=step.verdict.lesson,
                started_at=started,
                finished_at=now(),
            )
            rows.append((row, dict(step.draft.notes) | ({"seconds": step.seconds} if step.seconds else {})))
        self._journal.add_steps(rows)
        self._committed([row for row, _ in rows])
