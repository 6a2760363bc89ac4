"""A run as stored. The engine decides only by what it reads here, so a resumed run sees what the original saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from threading import RLock
from typing import Any

from sqlmodel import col, select

from msbench.agents import DEBUG, Attempt, History
from msbench.agents._source import token_form
from msbench.conversation import Message, Reply
from msbench.errors import ReplyError, UnknownNameError
from msbench.figures.proven import proven, refuted
from msbench.model import Candidate, Ceilings, Evaluation, Origin, Outcome, Profile, Status
from msbench.optimize.budget import Budget, Ledger
from msbench.optimize.comparison import times_ns
from msbench.optimize.judge import USABLE
from msbench.spec import Operator
from msbench.store.runs import Call
from msbench.store.store import Store
from msbench.store.tables import CallRow, EvaluationRow, MeasurementRow, ProfileRow, RunRow, StepRow


class Journal:
    """One run in ``store``; ``readers`` is everything else that is known, for what was measured earlier."""

    def __init__(self, store: Store, readers: Store | None, run: RunRow, operator: Operator) -> None:
        self.run = run
        self._store = store
        self._readers = readers
        self._operator = operator
        self._lock = RLock()  # drafts that are proposed together are written at the same time
        self._steps = store.steps(run.id)
        self._notes = store.notes(run.id)
        self._calls: list[Call] = store.calls(run.id)
        self._evaluations: dict[str, Evaluation] = {}
        self._companions: dict[tuple[str, ...], list[Evaluation]] = {}
        self._candidates: dict[str, Candidate] = {}
        versions = {step.version_id for step in self._steps if step.version_id and step.evaluation_id}
        found = {version: refuted(store, run, version) for version in sorted(versions)}
        self._refuted = {version: evaluation for version, evaluation in found.items() if evaluation}
        self._times: dict[int, dict[str, float]] = {}  # of the evaluations above, which stay
        self._profiles: dict[str, tuple[Profile, ...]] = {}

    # ------------------------------------------------------------------ the history

    @property
    def steps(self) -> Sequence[StepRow]:
        """The stored steps, in order."""
        return self._steps

    @property
    def calls(self) -> list[CallRow]:
        """The stored calls, in order."""
        return [call.row for call in self._calls]

    def history(self) -> History:
        """The steps as a strategy sees them."""
        spent, budget = self.run.spend, self.run.budget
        return History(
            attempts=tuple(self._attempt(step) for step in self._steps),
            seed=self.run.seed,
            rounds_left=self.run.settings["rounds"] - sum(step.action != DEBUG for step in self._steps[1:]),
            budget_left={name: limit - spent.get(name, 0.0) for name, limit in budget.items() if limit is not None},
        )

    def _attempt(self, step: StepRow) -> Attempt:
        measured = self.evaluation(step.evaluation_id) if step.evaluation_id else None
        if step.version_id in self._refuted and step.outcome != Outcome.BASELINE:
            return Attempt(
                step.number, step.action, Outcome.FAILED, step.parent_version_id, step.version_id, step.plan,
                step.hypothesis, step.predicted_speedup, lesson="It failed hidden cases that were drawn anew.",
                notes=self._notes.get(step.id, {}),
            )  # fmt: skip
        profiles = self.profiles(step.version_id) if step.version_id else ()
        return Attempt(
            number=step.number,
            action=step.action,
            outcome=Outcome(step.outcome),
            parent=step.parent_version_id,
            version=step.version_id,
            plan=step.plan,
            hypothesis=step.hypothesis,
            predicted_speedup=step.predicted_speedup,
            speedup=step.speedup,
            held=step.held,
            lesson=step.lesson,
            bottleneck=profiles[-1].bottleneck if profiles else "",
            fault=measured.failure.fault.value if measured and measured.failure else "",
            times_ns=self._times_ns(measured) if measured else {},
            metrics=profiles[-1].metrics if profiles else {},
            notes=self._notes.get(step.id, {}),
        )

    def _times_ns(self, evaluation: Evaluation) -> dict[str, float]:
        key = id(evaluation)
        if key not in self._times:
            self._times[key] = times_ns(evaluation, [m.case for m in evaluation.measurements])
        return self._times[key]

    def known(self, others: Sequence[Candidate]) -> dict[str, str]:
        """Every program that this run has seen, and ``others``: token form to version id."""
        versions = [*others, *(self.source(s.version_id) for s in self._steps if s.version_id)]
        return {token_form(candidate): candidate.id for candidate in reversed(versions)}

    def source(self, version_id: str) -> Candidate:
        """A version of this run."""
        if version_id not in self._candidates:
            self._candidates[version_id] = self._store.candidate(version_id)
        return self._candidates[version_id]

    def version(self, version_id: str) -> Candidate:
        """Any version in the databases, by its id or a prefix of it.

        Raises:
            UnknownNameError: none does.
        """
        try:
            return self.source(version_id)
        except UnknownNameError:
            if self._readers is None:
                raise
            return self._readers.candidate(version_id)

    def add_steps(self, steps: Sequence[tuple[StepRow, dict[str, Any]]]) -> None:
        """Commit steps that were proposed together, with their notes."""
        self._store.add_steps(steps)
        self._steps += [step for step, _ in steps]
        self._notes |= {step.id: notes for step, notes in steps if notes}

    def update(self, **fields: Any) -> None:
        """Commit columns of the run."""
        self._store.update_run(self.run.id, **fields)
        self._set(fields)

    def _set(self, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            setattr(self.run, name, value)

    # ------------------------------------------------------------------ conversations

    def answers(self, step_number: int) -> list[Call]:
        """The calls that are already stored for a step that is being redone."""
        return [call for call in self._calls if call.row.step_number == step_number]

    def ledger(self) -> Ledger:
        """The run's ledger, every row of which is stored as it comes."""
        store, run = self._store, self.run
        return Ledger(
            Budget(**run.budget), run.spend, store.ledger(run.id), run_id=run.id, save=store.put_ledger, drop=store.drop_ledger
        )  # fmt: skip

    def add_call(
        self, step_number: int, agent: str, messages: Sequence[Message], answer: Reply | ReplyError, seconds: float
    ) -> None:
        """Commit one answered call. An answer that held nothing is one, too: it is replayed as the error that it was."""
        reply = answer if isinstance(answer, Reply) else answer.reply or Reply("", "")
        failed = isinstance(answer, ReplyError)
        with self._lock:
            row = self._store.add_call(
                run_id=self.run.id,
                step_number=step_number,
                number=len(self._calls) + 1,
                agent=agent,
                messages=[(m.role, m.content) for m in messages],
                reply=f"{answer.kind}: {answer}" if isinstance(answer, ReplyError) else reply.text,
                role="error" if failed else "assistant",
                model=reply.model or self.run.model,
                seconds=seconds,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
                cost_usd=reply.cost_usd,
            )
            answered = self._store.calls(self.run.id, step_number)
            self._calls.extend(call for call in answered if call.row.number == row.number)

    # ------------------------------------------------------------------ evaluations

    def evaluation(self, evaluation_id: str) -> Evaluation:
        """A stored evaluation."""
        if evaluation_id not in self._evaluations:
            self._evaluations[evaluation_id] = self._store.evaluation(evaluation_id)
        return self._evaluations[evaluation_id]

    def add_evaluations(self, evaluations: Sequence[Evaluation], **fields: Any) -> list[str]:
        """Commit the evaluations of one group and columns of the run: one that is there says that all this is."""
        with self._lock:
            ids = self._store.add_evaluations(self._operator, evaluations, self.run.id, **fields)
            self._set(fields)
            self._profiles.clear()
        return ids

    def profiles(self, version_id: str) -> tuple[Profile, ...]:
        """What this run's newest profile of a version says, one a case; a replay's are those of the run that it replays."""
        if version_id not in self._profiles:
            self._profiles[version_id] = self._find_profiles(version_id)
        return self._profiles[version_id]

    def _find_profiles(self, version_id: str) -> tuple[Profile, ...]:
        found = _profiles_in(self._store, version_id, self.run, None)
        for run, _ in self._replayed() if not found else ():
            spans = (_profiles_in(store, version_id, run, run.finished_at) for store in self._stores())
            found = found or next(filter(None, spans), ())
        return found

    def already_evaluated(self, candidate: Candidate) -> str | None:
        """The id of this run's evaluation of a version, if a killed process stored it before its step."""
        begun = _instant(self.run.started_at)
        for row in reversed(self._store.evaluations(candidate.id)):
            if row.executor == self.run.executor and _instant(row.started_at) >= begun:
                return row.id
        return None

    def proven(self, version_id: str) -> bool:
        """Whether a version has passed hidden cases that no step used."""
        return proven(self._store, self.run, version_id)

    def refute_failed(self, candidates: Sequence[Candidate], evaluation_ids: Sequence[str]) -> None:
        """Of earlier drafts that were evaluated again, those that failed are failures from now on."""
        for candidate, evaluation_id in zip(candidates, evaluation_ids, strict=True):
            status = self.evaluation(evaluation_id).status
            if candidate.origin is Origin.AGENT and status not in (*USABLE, Status.UNSUPPORTED):
                self._refuted[candidate.id] = evaluation_id

    def refutation(self, version_id: str) -> str | None:
        """The evaluation that refuted a version."""
        return self._refuted.get(version_id)

    def recorded_step(self, number: int) -> str | None:
        """The evaluation of that step in the run that this one replays, where its times are known."""
        if self.run.replay_of is None:
            return None
        for store in (self._store, self._readers):
            for step in store.steps(self.run.replay_of) if store else ():
                if step.number == number and step.evaluation_id is not None:
                    return step.evaluation_id
        return None

    def recorded_ceilings(self) -> Ceilings | None:
        """What the run that this one replays, or the first of all that it goes back to, knew of its device.

        It may have been measured again since.
        """
        found = None
        for run, store in self._replayed():
            if run.device_id and run.device_id == self.run.device_id:
                found = store.ceilings(run.device_id, until=run.started_at) or found
        return found

    def _stores(self) -> list[Store]:
        return [one for one in (self._store, self._readers) if one is not None]

    def _replayed(self) -> list[tuple[RunRow, Store]]:
        """The run that this one replays, the one that that one replays, and so on; each with where it is."""
        known = {run.id: (run, store) for store in reversed(self._stores()) for run in store.runs()}
        found: list[tuple[RunRow, Store]] = []
        following = self.run.replay_of
        while following in known:
            found.append(known.pop(following))
            following = found[-1][0].replay_of
        return found

    def companions(self, evaluation: Evaluation) -> list[Evaluation]:
        """The evaluations that were measured in one group with ``evaluation``, itself included, oldest first."""
        groups = tuple(sorted({m.group for m in evaluation.measurements}))
        if groups not in self._companions:
            self._companions[groups] = self._measured_in(groups)
        return self._companions[groups]

    def _measured_in(self, groups: Sequence[str]) -> list[Evaluation]:
        query = (
            select(EvaluationRow.id, EvaluationRow.started_at)
            .join(MeasurementRow, col(MeasurementRow.evaluation_id) == col(EvaluationRow.id))
            .where(col(MeasurementRow.group_id).in_(groups), col(EvaluationRow.recorded_from).is_(None))
            .order_by(col(EvaluationRow.started_at), col(EvaluationRow.id))
            .distinct()
        )
        found: dict[str, Evaluation] = {}
        for store in (self._store, self._readers) if groups else ():
            if store is not None:
                with store.session() as session:
                    ids = [one for one, _ in session.exec(query) if one not in found]
                found.update({one: store.evaluation(one) for one in ids})
        return list(found.values())


def _profiles_in(store: Store, version_id: str, run: RunRow, ended: str | None) -> tuple[Profile, ...]:
    """The newest profiles of a version that a run made, if it ``ended`` until then: they have its seed, which other runs have not.

    Runs that were recorded before had profiles with any seed.
    """
    query = (
        select(EvaluationRow.id, EvaluationRow.started_at)
        .join(ProfileRow, col(ProfileRow.evaluation_id) == col(EvaluationRow.id))
        .where(col(EvaluationRow.version_id) == version_id, col(ProfileRow.fault).is_(None))
        .order_by(
            (col(EvaluationRow.seed) == run.seed).desc(), col(EvaluationRow.started_at).desc(), col(EvaluationRow.id)
        )
    )
    with store.session() as session:
        rows = session.exec(query).all()
    for one, at in rows:
        if _instant(run.started_at) <= _instant(at) and (ended is None or _instant(at) <= _instant(ended)):
            return store.evaluation(one).profiles
    return ()


def now() -> str:
    """The instant as it is stored."""
    return datetime.now(UTC).isoformat()


def _instant(text: str) -> datetime:
    """To the millisecond, as evaluations store no more."""
    instant = datetime.fromisoformat(text)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
