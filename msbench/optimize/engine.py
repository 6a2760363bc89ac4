"""The engine: strategy -> agents -> evaluate -> store, until the rounds or the budget are used up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from msbench import operators
from msbench.agents import Draft, Proposal, Strategy
from msbench.agents._source import token_form
from msbench.conversation import Message, Reply
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
from msbench.model import Candidate, Evaluation, Origin, Outcome
from msbench.optimize.begin import reopen, start
from msbench.optimize.briefings import Briefings, newest
from msbench.optimize.budget import Budget, Ledger
from msbench.optimize.comparison import score, speedups
from msbench.optimize.journal import Journal, now
from msbench.optimize.judge import USABLE, Verdict, failure_text, judge
from msbench.optimize.settings import Settings
from msbench.providers import Provider
from msbench.spec import Task
from msbench.store.store import Store
from msbench.store.tables import StepRow

ROUNDS = 5
"""Proposals of a run, unless it is told otherwise."""


@dataclass(frozen=True)
class Event:
    """Something to show whoever watches ``run``. ``kind``: started, resumed, asked, invited, answered, evaluated, step."""

    run: str
    kind: str
    step: int
    text: str
    outcome: Outcome | None = None
    speedup: float | None = None


@dataclass(frozen=True)
class Summary:
    """How a run ended. ``speedup`` is the best version's over naive; None where nothing was measured."""

    run_id: str
    status: str
    note: str
    steps: int
    best_version_id: str | None
    speedup: float | None


_UNCHANGED = Verdict(Outcome.UNCHANGED, None, None, "The draft is its parent, but for comments and blanks.")
_DUPLICATE = Verdict(Outcome.DUPLICATE, None, None, "This run already had this very program.")


@runtime_checkable
class Recalls(Protocol):
    """An executor that tells what was measured earlier (``executors/recorded.py``)."""

    def prefer(self, evaluation_id: str) -> None:
        """Recall what was measured together with this evaluation, where there is a choice."""


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
) -> Summary:
    """Make a task's kernel faster, step by step; every step is committed to ``store`` before the next begins.

    Args:
        readers: everything else that is known; companions of recorded measurements are looked up there too.
        plan: which cases are checked and measured, and how. Needed for a new run; a resumed one keeps its own.
        rounds: proposals, repairs not counted. A resumed run keeps its number unless one is given.
        max_tokens: the longest answer that is asked for; None leaves it to the model, as far as the budget allows.
        resume: the run to go on with (its id or a unique beginning).
        command: what a person types to repeat this.
        progress: hears how far an evaluation is.
        watch: hears of calls, evaluations and outcomes.

    Raises:
        WaitingForAnswer, ProviderUnavailable: the run is stored as waiting or stopped, and can be resumed.
        MsbenchError: it can't start (naive kernel fails, other device than before ...).
    """
    if resume is None:
        if plan is None:
            raise ValueError("a new run needs a plan")
        settings = Settings(plan, ROUNDS if rounds is None else rounds, max_tokens)
        limits = budget or Budget()
        journal = start(task, strategy, provider, executor, store, readers, settings, seed, limits, command)
    else:
        journal = reopen(task, strategy, provider, executor, store, readers, resume, rounds, budget)
    return _Engine(task, strategy, provider, executor, journal, command, progress, watch).run()


class _Engine:
    """One session of one run."""

    def __init__(
        self, task: Task, strategy: Strategy, provider: Provider, executor: Executor, journal: Journal, command: str,
        progress: Progress | None, watch: Watcher | None,
    ) -> None:  # fmt: skip
        self._task = task
        self._strategy = strategy
        self._provider = provider
        self._executor = executor
        self._journal = journal
        self._command = command
        self._progress = progress
        self._watch = watch
        self._settings = Settings.read(journal.run.settings)
        self._ledger = Ledger(Budget(**journal.run.budget), journal.run.spend, journal.calls)
        versions = operators.versions(task.operator, task.precision)
        self._naive = next(c for c in versions if c.origin is Origin.NAIVE)
        self._libraries = [c for c in versions if c.origin is Origin.LIBRARY]
        device = executor.device()
        timed = executor.measures or device.kind == "cuda"
        ceilings = journal.recorded_ceilings() if isinstance(executor, Recalls) else None
        ceilings = ceilings or executor.ceilings()
        self._briefings = Briefings(task, self._settings.plan.cases, device, ceilings, timed, journal)

    # ------------------------------------------------------------------ the loop

    def run(self) -> Summary:
        """Go on until there is nothing left to do; then say so in the run's row."""
        done = len(self._journal.steps)
        answers = f"provider {self._provider.name}, model {self._provider.model}"
        self._tell("resumed" if done else "started", f"run {self._journal.run.id[:12]} of {self._task.id}: {answers}")
        try:
            status, note = "finished", self._steps()
        except RecordingEnded as error:
            status, note = "finished", str(error)
        except BudgetExceeded as error:
            status, note = "stopped", str(error)
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

    def _steps(self) -> str:
        if not self._journal.steps:
            self._baseline()
        while True:
            history = self._journal.history()
            proposal = self._strategy.ask(history)
            if proposal is None:
                return "The strategy has nothing left to try."
            rounds = sum(a.action != "debug" for a in history.attempts[1:])
            if proposal.action != "debug" and rounds >= self._settings.rounds:
                return ""
            self._step(len(history.attempts), proposal)

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
        return Summary(run.id, status, note, len(history.attempts), run.best_version_id, speedup)

    # ------------------------------------------------------------------ steps

    def _baseline(self) -> None:
        """Step 0: the naive kernel and the vendor libraries, against each other."""
        started = now()
        stored = self._journal.already_evaluated(self._naive)
        evaluation_id = stored or self._evaluate(0, [*self._libraries, self._naive])
        evaluation = self._journal.evaluation(evaluation_id)
        if evaluation.status not in USABLE:
            raise MsbenchError(
                f"The naive kernel of {self._task.id} is the yardstick, and it fails: {failure_text(evaluation)} "
                f"See `msbench eval` of {self._task.operator.folder}/naive.cu."
            )
        speedup = score(speedups(evaluation, evaluation, self._settings.plan.cases), self._settings.plan.cases)
        verdict = Verdict(Outcome.BASELINE, speedup, None, self._baseline_lesson(evaluation))
        baseline = Proposal(self._naive.id, "baseline")
        self._commit(0, started, baseline, Draft(None), self._naive.id, evaluation_id, verdict)

    def _baseline_lesson(self, naive: Evaluation) -> str:
        if not naive.measurements:
            return "Checked, not measured: this executor has no times."
        scores = self._library_scores(naive)
        if not scores:
            return "No vendor library was measured on every case."
        return "; ".join(f"{c.label}: {value:.2f}x over naive" for c, value in scores) + "."

    def _library_scores(self, naive: Evaluation) -> list[tuple[Candidate, float]]:
        """The libraries that were measured with ``naive`` on every case, the fastest first."""
        cases = self._settings.plan.cases
        found = newest([e for e in self._journal.companions(naive) if e.candidate.origin is Origin.LIBRARY])
        scores = [(e.candidate, score(speedups(naive, e, cases), cases)) for e in found if e.status in USABLE]
        return sorted(((c, s) for c, s in scores if s is not None), key=lambda pair: -pair[1])

    def _step(self, number: int, proposal: Proposal) -> None:
        started = now()
        history = self._journal.history()
        try:
            briefing = self._briefings.make(history, proposal.parent)
            draft = self._strategy.draft(proposal, briefing, self._talk(number))
        except ReplyError as error:
            draft = Draft(None, problem=str(error))
        if draft.source is None:
            verdict = Verdict(Outcome.NO_KERNEL, None, None, draft.problem)
            self._commit(number, started, proposal, draft, None, None, verdict)
            return
        operator, precision = self._task.operator.name, self._task.precision
        label = f"step {number}"
        candidate = Candidate(operator, precision, draft.source, Origin.AGENT, label, (proposal.parent,))
        known = self._journal.known([self._naive, *self._libraries]).get(token_form(candidate))
        if known is not None:
            verdict = _UNCHANGED if known == proposal.parent else _DUPLICATE
            self._commit(number, started, proposal, draft, known, None, verdict)
            return
        stored = self._journal.already_evaluated(candidate)
        evaluation_id = stored or self._evaluate(number, [*self._yardsticks(proposal.parent), candidate])
        evaluation = self._journal.evaluation(evaluation_id)
        verdict = judge(
            evaluation,
            self._over(evaluation, self._naive.id),
            self._over(evaluation, history.best.version),
            self._over(evaluation, self._base(proposal.parent)),
            draft.predicted_speedup,
        )
        self._commit(number, started, proposal, draft, candidate.id, evaluation_id, verdict)

    def _commit(
        self, number: int, started: str, proposal: Proposal, draft: Draft, version: str | None, evaluation: str | None,
        verdict: Verdict,
    ) -> None:  # fmt: skip
        step = StepRow(
            id="",
            run_id=self._journal.run.id,
            number=number,
            parent_version_id=proposal.parent if number else None,
            version_id=version,
            evaluation_id=evaluation,
            action=proposal.action,
            plan=draft.plan,
            hypothesis=draft.hypothesis,
            predicted_speedup=draft.predicted_speedup,
            speedup=verdict.speedup,
            outcome=verdict.outcome.value,
            held=verdict.held,
            lesson=verdict.lesson,
            started_at=started,
            finished_at=now(),
        )
        self._journal.add_step(step)
        self._journal.update(spend=self._ledger.stored(), best_version_id=self._journal.history().best.version)
        self._tell("step", verdict.told or verdict.lesson, number, verdict.outcome, verdict.speedup)

    # ------------------------------------------------------------------ evaluating

    def _yardsticks(self, parent: str) -> list[Candidate]:
        """What a draft is measured beside: naive, the fastest library, its parent and the best version so far.

        Nothing, where nothing is measured. Only times of one group compare to the percent that decides.
        """
        if not self._executor.measures:
            return []
        evaluation_id = self._journal.steps[0].evaluation_id
        scores = self._library_scores(self._journal.evaluation(evaluation_id)) if evaluation_id else []
        earlier = [v for v in (self._base(parent), self._journal.history().best.version) if v is not None]
        known = [self._naive, *(candidate for candidate, _ in scores[:1]), *map(self._journal.source, earlier)]
        return list({candidate.id: candidate for candidate in known}.values())

    def _evaluate(self, number: int, candidates: Sequence[Candidate]) -> str:
        """Evaluate as one group and store all; returns the id of the last one's evaluation."""
        recorded = self._journal.recorded_step(number)
        if recorded is not None and isinstance(self._executor, Recalls):
            self._executor.prefer(recorded)
        self._ledger.reserve_evaluation()
        begun = time.monotonic()
        results = evaluate(
            self._executor, self._task.operator, self._task.precision, candidates, self._settings.plan,
            command=self._command, progress=self._progress,
        )  # fmt: skip
        self._ledger.settle_evaluation(time.monotonic() - begun, on_gpu=self._executor.measures)
        evaluation_id = self._journal.add_evaluations(results, spend=self._ledger.stored())[-1]
        self._tell("evaluated", results[-1].status.value, number)
        return evaluation_id

    def _over(self, evaluation: Evaluation, version: str | None) -> float | None:
        """The speed-up over another version, paired within the measurement's groups; None unless every case has one."""
        cases = self._settings.plan.cases
        by_case: dict[str, float] = {}
        for companion in self._journal.companions(evaluation):
            if companion.candidate.id == version:
                by_case |= speedups(companion, evaluation, cases)
        return score(by_case, cases)

    def _base(self, version: str) -> str | None:
        """``version``, or, if it failed, the last measured version that it came from."""
        history = self._journal.history()
        attempt = history.of_version(version)
        while attempt is not None and attempt.speedup is None and attempt.parent not in (None, attempt.version):
            attempt = history.of_version(attempt.parent or "")
        return attempt.version if attempt else None

    # ------------------------------------------------------------------ talking

    def _talk(self, number: int) -> Callable[[str, Sequence[Message]], Reply]:
        """Calls of one step: those that are stored are not asked again."""
        stored = self._journal.answers(number)

        def talk(agent: str, messages: Sequence[Message]) -> Reply:
            if stored and stored[0].row.agent == agent:
                call = stored.pop(0)
                return Reply(call.reply.content, call.row.model, call.row.prompt_tokens, call.row.completion_tokens)
            limits = self._ledger.reserve_call(messages, self._settings.max_tokens, self._provider)
            self._tell("asked", agent, number)
            invitation = self._provider.invitation(agent)
            if invitation:
                self._tell("invited", invitation, number)
            if self._progress:
                self._progress.started(f"step {number}: waiting for the {agent}")
            begun = time.monotonic()
            reply = self._provider.complete(agent, messages, limits)
            seconds = time.monotonic() - begun
            self._ledger.settle_call(reply.cost_usd, reply.prompt_tokens, reply.completion_tokens)
            self._journal.add_call(number, agent, messages, reply, seconds)
            self._tell("answered", agent, number)
            return reply

        return talk

    def _tell(
        self, kind: str, text: str, step: int = 0, outcome: Outcome | None = None, speedup: float | None = None
    ) -> None:
        if self._watch:
            self._watch(Event(self._journal.run.id, kind, step, text, outcome, speedup))
