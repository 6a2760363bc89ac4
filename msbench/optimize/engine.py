"""The engine: strategy -> agents -> evaluate -> store, until the rounds or the budget are used up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

from msbench import operators
from msbench.agents import DEBUG, Draft, History, Proposal, Strategy
from msbench.agents._source import token_form
from msbench.errors import (
    BudgetExceeded,
    ExecutorError,
    MsbenchError,
    ProviderUnavailable,
    RecordingEnded,
    ReplyError,
    ToolchainError,
    WaitingForAnswer,
)
from msbench.harness.evaluate import Executor, Plan, Progress, evaluate
from msbench.harness.protocols import Remembers
from msbench.model import Candidate, Evaluation, Origin, Outcome, Status
from msbench.optimize.begin import reopen, start
from msbench.optimize.briefings import Briefings, newest
from msbench.optimize.budget import Budget
from msbench.optimize.comparison import Ratio, overall, paired, score
from msbench.optimize.desk import Desk
from msbench.optimize.evaluating import Climbed, Evaluate, Evaluating
from msbench.optimize.hidden import told
from msbench.optimize.journal import Journal, now
from msbench.optimize.judge import DUPLICATE, UNCHANGED, USABLE, Verdict, failure_text, judge
from msbench.optimize.settings import Settings
from msbench.providers import Provider
from msbench.spec import Task
from msbench.statistics import Logs
from msbench.store.store import Store
from msbench.store.tables import StepRow

ROUNDS = 5
"""Proposals of a run, unless it is told otherwise."""


REPAIRS_A_ROUND = 4
"""Repairs that a run may have for each of its rounds: a strategy that only repairs comes to an end."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a run, for display. ``kind``: started, resumed, asked, invited, answered, evaluated, step, ended."""

    run: str
    kind: str
    step: int
    text: str
    outcome: Outcome | None = None
    speedup: float | None = None
    task: str = ""


@dataclass(frozen=True)
class Summary:
    """How a run ended. ``speedup`` is the best version's over naive; None where nothing was measured."""

    run_id: str
    status: str
    note: str
    steps: int
    best_version_id: str | None
    speedup: float | None
    spend: dict[str, Any] = field(default_factory=dict)


Watcher = Callable[[Event], None]


def optimize(
    task: Task,
    *,
    strategy: Strategy,
    provider: Provider,
    executor: Executor,
    store: Store,
    readers: Store | None = None,
    plan: Plan | None = None,
    rounds: int | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    resume: str | None = None,
    command: str = "",
    progress: Progress | None = None,
    watch: Watcher | None = None,
    max_tokens: int | None = None,
    evaluates: Evaluate | None = None,
    settings: Settings | None = None,
) -> Summary:
    """Make a task's kernel faster, step by step; every step is committed to ``store`` before the next begins.

    Args:
        readers: all other databases; companions of recorded measurements are looked up there too.
        plan: which cases are checked and measured, and how. Needed for a new run; a resumed one keeps its own.
        rounds: proposals, repairs not counted. A resumed run keeps its number unless one is given.
        max_tokens: the longest answer that is asked for; None leaves it to the model, as far as the budget allows.
        resume: the run to continue (its id or a unique prefix).
        command: what a person types to repeat this.
        progress: receives an evaluation's progress.
        watch: receives calls, evaluations and outcomes.
        evaluates: in place of ``harness.evaluate.evaluate``, where many runs share a device.
        settings: in place of ``plan``, ``rounds`` and ``max_tokens``.

    Raises:
        WaitingForAnswer, ProviderUnavailable: the run is stored as waiting or stopped, and can be resumed.
        MsbenchError: it can't start (naive kernel fails, other device than before ...).
    """
    if resume is None:
        if settings is None:
            if plan is None:
                raise ValueError("a new run needs a plan")
            settings = Settings(plan, ROUNDS if rounds is None else rounds, max_tokens)
        limits = budget or Budget()
        journal = start(task, strategy, provider, executor, store, readers, settings, seed, limits, command)
    else:
        journal = reopen(task, strategy, provider, executor, store, readers, resume, rounds, budget)
    return _Engine(task, strategy, provider, executor, journal, command, progress, watch, evaluates or evaluate).run()


@dataclass
class _Drafted:
    """One step on its way: its proposal and draft, then its version, evaluation and verdict."""

    number: int
    proposal: Proposal
    draft: Draft
    candidate: Candidate | None = None
    version: str | None = None
    evaluation_id: str | None = None
    verdict: Verdict | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class _Engine:
    """One session of one run."""

    def __init__(
        self, task: Task, strategy: Strategy, provider: Provider, executor: Executor, journal: Journal, command: str,
        progress: Progress | None, watch: Watcher | None, evaluates: Evaluate,
    ) -> None:  # fmt: skip
        self._task = task
        self._strategy = strategy
        self._provider = provider
        self._measures = executor.measures
        self._journal = journal
        self._progress = progress
        self._watch = watch
        self._lock = RLock()
        self._settings = Settings.read(journal.run.settings)
        self._cases = self._settings.plan.cases
        self._ledger = journal.ledger()
        self._evaluating = Evaluating(
            task, self._settings.plan, executor, journal, self._ledger, evaluates, command, progress, self._tell
        )
        versions = operators.versions(task.operator, task.precision)
        self._naive = next(c for c in versions if c.origin is Origin.NAIVE)
        self._libraries = [c for c in versions if c.origin is Origin.LIBRARY]
        device = executor.device()
        timed = executor.measures or device.kind == "cuda"
        ceilings = journal.recorded_ceilings() if isinstance(executor, Remembers) else None
        ceilings = ceilings or executor.ceilings()
        self._briefings = Briefings(task, self._settings, device, ceilings, timed, journal)

    # ------------------------------------------------------------------ the loop

    def run(self) -> Summary:
        """Go on until there is nothing left to do; then say so in the run's row."""
        done = len(self._journal.steps)
        answers = f"provider {self._provider.name}, model {self._provider.model}"
        self._tell("resumed" if done else "started", f"run {self._journal.run.id[:12]} of {self._task.id}: {answers}")
        try:
            status, note = self._search()
            note = " ".join(part for part in (note, self._prove()) if part)
        except WaitingForAnswer as error:
            self._end("waiting", str(error))
            raise
        except (ProviderUnavailable, ExecutorError, ToolchainError) as error:
            self._end("stopped", str(error))
            raise
        except KeyboardInterrupt:
            self._end("stopped", "Interrupted.")
            raise
        except Exception as error:
            self._end("failed", f"{type(error).__name__}: {error}")
            raise
        return self._end(status, note)

    def _search(self) -> tuple[str, str]:
        try:
            return "finished", self._steps()
        except RecordingEnded as error:
            return "finished", str(error)
        except BudgetExceeded as error:
            return "stopped", str(error)

    def _prove(self) -> str:
        """Check the best version on hidden cases that no step used; one that fails is not the best."""
        notes = []
        while self._journal.steps:
            best = self._journal.history().best
            if best.version is None or best.version == self._naive.id or self._journal.proven(best.version):
                break
            try:
                evaluation = self._evaluating.proof(self._journal.source(best.version))
            except BudgetExceeded:
                notes.append("The best version was not checked on further hidden cases: the budget is spent.")
                break
            if evaluation.status in USABLE:
                break
            if evaluation.status is Status.UNSUPPORTED:
                notes.append("The best version can't be checked on further hidden cases here.")
                break
            failure = failure_text(self._told(evaluation))
            notes.append(f"Step {best.number} failed on hidden cases that were drawn anew ({failure.rstrip('.')}).")
        return " ".join(notes)

    def _told(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation as agents and people are told of its failure."""
        return replace(evaluation, failure=told(evaluation, self._task.operator, self._cases))

    def _steps(self) -> str:
        if not self._journal.steps:
            self._baseline()
        if self._settings.start and len(self._journal.steps) == 1:
            self._fork(self._settings.start)
        while True:
            history = self._journal.history()
            asked = self._strategy.ask(history)
            proposals = [asked] if isinstance(asked, Proposal) else list(asked or ())
            if not proposals:
                return "The strategy has nothing left to try."
            chosen = self._within_rounds(history, proposals)
            if not chosen:
                repairs = sum(a.action == DEBUG for a in history.attempts)
                if all(p.action != DEBUG for p in proposals):
                    return ""
                rounds = len(history.attempts) - 1 - repairs
                return f"After {repairs} repairs in {rounds} rounds there are no more."
                return ""
            self._generation(len(history.attempts), history, chosen)

    def _within_rounds(self, history: History, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Of the proposals those for which rounds, or repairs, are left."""
        repairs = sum(a.action == DEBUG for a in history.attempts)
        left = {True: REPAIRS_A_ROUND * self._settings.rounds - repairs, False: history.rounds_left}
        chosen = []
        for proposal in proposals:
            repair = proposal.action == DEBUG
            if left[repair] > 0:
                left[repair] -= 1
                chosen.append(proposal)
        return chosen

    def _end(self, status: str, note: str) -> Summary:
        history, run = self._journal.history(), self._journal.run
        note = " ".join(part for part in (note, self._provider.note()) if part)
        best = history.best if history.attempts else None
        self._journal.update(
            status=status,
            note=note,
            finished_at=None if status == "waiting" else now(),
            spend=self._ledger.stored(),
            best_version_id=best.version if best else None,
        )
        speedup = best.speedup if best else None
        self._tell("ended", status, len(history.attempts) - 1, speedup=speedup)
        return Summary(run.id, status, note, len(history.attempts), run.best_version_id, speedup, run.spend)

    # ------------------------------------------------------------------ steps

    def _baseline(self) -> None:
        """Step 0: the naive kernel and the vendor libraries, against each other."""
        started = now()
        stored = self._journal.already_evaluated(self._naive)
        evaluation_id = stored or self._evaluating.baseline([*self._libraries, self._naive])
        evaluation = self._journal.evaluation(evaluation_id)
        if evaluation.status not in USABLE:
            raise MsbenchError(
                f"The naive kernel of {self._task.id} is the reference, and it fails: "
                f"{failure_text(self._told(evaluation))} "
                f"See `msbench eval` of {self._task.operator.folder}/naive.cu."
            )
        speedup = score(paired(evaluation, evaluation, self._cases), self._cases)
        verdict = Verdict(Outcome.BASELINE, speedup, None, self._baseline_lesson(evaluation))
        step = _Drafted(0, Proposal(self._naive.id, "baseline"), Draft(None), verdict=verdict)
        step.version, step.evaluation_id = self._naive.id, evaluation_id
        self._commit(started, [step])

    def _baseline_lesson(self, naive: Evaluation) -> str:
        if not naive.measurements:
            return "Checked, not measured: this executor has no times."
        scores = self._library_scores(naive)
        if not scores:
            return "No vendor library was measured on every case."
        return "; ".join(f"{c.label}: {value:.3f}x over naive" for c, value in scores) + "."

    def _library_scores(self, naive: Evaluation) -> list[tuple[Candidate, float]]:
        """The libraries that were measured with ``naive`` on every case, the fastest first."""
        found = newest([e for e in self._journal.companions(naive) if e.candidate.origin is Origin.LIBRARY])
        scores = [(e.candidate, score(paired(naive, e, self._cases), self._cases)) for e in found if e.status in USABLE]
        return sorted(((c, s) for c, s in scores if s is not None), key=lambda pair: -pair[1])

    def _fork(self, version: str) -> None:
        """Step 1 of a run that goes on from a known version: that version, measured here."""
        started = now()
        source = self._journal.version(version)
        plan = f"Goes on from version {source.id[:12]}."
        step = _Drafted(1, Proposal(self._naive.id, "fork"), Draft(source.source, plan))
        step.candidate, step.version = source, source.id
        self._evaluated([step])
        self._commit(started, [step])

    def _generation(self, number: int, history: History, proposals: Sequence[Proposal]) -> None:
        """The steps that a strategy proposed together: drafted concurrently, measured in one group, committed as one."""
        started = now()
        steps: list[_Drafted] = []
        further: list[tuple[Proposal, Draft]] = []
        for index, (proposal, drafts) in enumerate(
            zip(proposals, self._drafts(number, history, proposals), strict=True)
        ):
            steps.append(_Drafted(number + index, proposal, drafts[0]))
            further += [(proposal, draft) for draft in drafts[1:]]
        steps += [_Drafted(number + len(proposals) + k, *more) for k, more in enumerate(further)]
        known = self._journal.known([self._naive, *self._libraries])
        for step in steps:
            self._recognise(step, known)
        self._evaluated([step for step in steps if step.candidate])
        self._commit(started, steps)

    def _drafts(self, number: int, history: History, proposals: Sequence[Proposal]) -> list[list[Draft]]:
        """The drafts of each proposal. All are asked for, whatever comes of the others, before an error is one of them all."""
        for parent in dict.fromkeys(p.parent for p in proposals):
            attempt = history.of_version(parent)
            if attempt is None or attempt.outcome is not Outcome.FAILED:
                self._evaluating.profiled(self._journal.source(parent))
        before = sum(call.step_number < number for call in self._journal.calls)

        def draft(index: int, proposal: Proposal) -> list[Draft]:
            desk = Desk(
                number + index, index, before, self._task.operator, self._provider, self._journal, self._ledger,
                self._evaluating, self._briefings, self._lock, self._settings.max_tokens, self._progress, self._tell,
            )  # fmt: skip
            try:
                briefing = self._briefings.make(history, proposal.parent, proposal.others)
                found = self._strategy.draft(proposal, briefing, desk)
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

    def _recognise(self, step: _Drafted, known: dict[str, str]) -> None:
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

    def _evaluated(self, steps: Sequence[_Drafted]) -> None:
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

    def _climbed(self, steps: Sequence[_Drafted]) -> dict[int, Climbed]:
        """What came of drafts beside the best version that there is: once more, if what was the best failed beside them."""
        found = self._climb(steps[0].number, steps)
        tried: set[str | None] = set()
        while (best := self._journal.history().best.version) not in tried:
            tried.add(best)
            again = [step for step in steps if self._lacks(found[step.number], best)]
            if again:
                found |= self._climb(steps[0].number, again, again=True)
        return found

    def _climb(self, number: int, steps: Sequence[_Drafted], *, again: bool = False) -> dict[int, Climbed]:
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
        if not self._measures or found.screened or evaluation.status not in USABLE or best == self._naive.id:
            return False
        return best not in {companion.candidate.id for companion in self._journal.companions(evaluation)}

    def _judged(self, step: _Drafted, found: Climbed, best: str | None, base: str | None) -> Verdict:
        evaluation = self._journal.evaluation(found.evaluation_id)
        over_naive = self._over(evaluation, self._naive.id)
        whole = len(over_naive) == len(self._cases)
        return judge(
            self._told(evaluation),
            score(over_naive, self._cases),
            _ratio(self._over(evaluation, best)) if whole else None,
            _ratio(self._over(evaluation, base)) if whole or found.screened else None,
            step.draft.predicted_speedup,
            screened=found.screened,
        )

    def _commit(self, started: str, steps: Sequence[_Drafted]) -> None:
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
        self._journal.update(spend=self._ledger.stored(), best_version_id=self._journal.history().best.version)
        for row, _ in rows:
            self._tell("step", row.lesson, row.number, Outcome(row.outcome), row.speedup)

    # ------------------------------------------------------------------ comparing

    def _yardsticks(self, history: History, bases: Sequence[str]) -> list[Candidate]:
        """What drafts are measured beside: naive, the fastest library, their parents and the best version so far.

        Nothing, where nothing is measured. Only times of one group compare to the percent that decides.
        """
        if not self._measures:
            return []
        evaluation_id = self._journal.steps[0].evaluation_id
        scores = self._library_scores(self._journal.evaluation(evaluation_id)) if evaluation_id else []
        earlier = [v for v in (*bases, history.best.version) if v is not None]
        known = [self._naive, *(candidate for candidate, _ in scores[:1]), *map(self._journal.source, earlier)]
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

    def _tell(
        self, kind: str, text: str, step: int = 0, outcome: Outcome | None = None, speedup: float | None = None
    ) -> None:
        if self._watch:
            self._watch(Event(self._journal.run.id, kind, step, text, outcome, speedup, self._task.id))


def _ratio(by_case: dict[str, Logs]) -> Ratio | None:
    return overall(by_case) if by_case else None
