"""The engine's loop: ask the strategy, make its steps, until the rounds or the budget are used up; then prove the best version."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

from msbench.agents import DEBUG, History, Proposal, Strategy
from msbench.errors import (
    BudgetExceeded,
    ExecutorError,
    ProviderUnavailable,
    RecordingEnded,
    ToolchainError,
    WaitingForAnswer,
)
from msbench.harness.evaluate import Executor, Plan, Progress, evaluate
from msbench.harness.protocols import Remembers
from msbench.model import Outcome, Status
from msbench.optimize.begin import reopen, start
from msbench.optimize.briefings import Briefings
from msbench.optimize.budget import Budget
from msbench.optimize.desk import Desk
from msbench.optimize.evaluating import Evaluate, Evaluating
from msbench.optimize.events import Event, Summary, Watcher
from msbench.optimize.journal import Journal, now
from msbench.optimize.judge import USABLE, failure_text
from msbench.optimize.judging import Judging
from msbench.optimize.settings import Settings
from msbench.optimize.steps import Steps
from msbench.providers import Provider
from msbench.spec import Task
from msbench.store.store import Store
from msbench.store.tables import StepRow

ROUNDS = 5
"""Proposals of a run, unless it is told otherwise."""


REPAIRS_A_ROUND = 4
"""Repairs that a run may have for each of its rounds: a strategy that only repairs comes to an end."""


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
        self._judging = Judging(task, self._cases, executor.measures, journal, self._evaluating)
        device = executor.device()
        timed = executor.measures or device.kind == "cuda"
        ceilings = journal.recorded_ceilings() if isinstance(executor, Remembers) else None
        ceilings = ceilings or executor.ceilings()
        self._briefings = Briefings(task, self._settings, device, ceilings, timed, journal)
        self._made = Steps(
            task, self._cases, strategy, journal, self._evaluating, self._judging, self._briefings, self._desk, self._committed
        )  # fmt: skip

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
            if best.version is None or best.version == self._judging.naive.id or self._journal.proven(best.version):
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
            failure = failure_text(self._judging.told(evaluation))
            notes.append(f"Step {best.number} failed on hidden cases that were drawn anew ({failure.rstrip('.')}).")
        return " ".join(notes)

    def _steps(self) -> str:
        if not self._journal.steps:
            self._made.baseline()
        if self._settings.start and len(self._journal.steps) == 1:
            self._made.fork(self._settings.start)
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
            self._made.generation(len(history.attempts), history, chosen)

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

    def _desk(self, number: int, index: int, before: int) -> Desk:
        return Desk(
            number, index, before, self._task.operator, self._provider, self._journal, self._ledger, self._evaluating,
            self._briefings, self._lock, self._settings.max_tokens, self._progress, self._tell,
        )  # fmt: skip

    def _committed(self, rows: Sequence[StepRow]) -> None:
        self._journal.update(spend=self._ledger.stored(), best_version_id=self._journal.history().best.version)
        for row in rows:
            self._tell("step", row.lesson, row.number, Outcome(row.outcome), row.speedup)

    def _tell(
        self, kind: str, text: str, step: int = 0, outcome: Outcome | None = None, speedup: float | None = None
    ) -> None:
        if self._watch:
            self._watch(Event(self._journal.run.id, kind, step, text, outcome, speedup, self._task.id))
