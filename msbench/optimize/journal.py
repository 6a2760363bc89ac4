"""A run as it is stored. The engine decides on what it reads here, so a resumed run sees what the first one saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlmodel import col, select

from msbench.agents import Attempt, History
from msbench.agents._source import token_form
from msbench.conversation import Message, Reply
from msbench.model import Candidate, Ceilings, Evaluation, Outcome
from msbench.spec import Operator
from msbench.store.runs import Call
from msbench.store.store import Store
from msbench.store.tables import CallRow, EvaluationRow, MeasurementRow, RunRow, StepRow


class Journal:
    """One run in ``store``; ``readers`` is everything else that is known, for what was measured earlier."""

    def __init__(self, store: Store, readers: Store | None, run: RunRow, operator: Operator) -> None:
        self.run = run
        self._store = store
        self._readers = readers
        self._operator = operator
        self._steps = store.steps(run.id)
        self._calls: list[Call] = store.calls(run.id)
        self._evaluations: dict[str, Evaluation] = {}
        self._companions: dict[tuple[str, ...], list[Evaluation]] = {}
        self._candidates: dict[str, Candidate] = {}

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
        return History(tuple(self._attempt(step) for step in self._steps), self.run.seed)

    def _attempt(self, step: StepRow) -> Attempt:
        measured = self.evaluation(step.evaluation_id) if step.evaluation_id else None
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
            bottleneck=measured.profiles[0].bottleneck if measured and measured.profiles else "",
        )

    def known(self, others: Sequence[Candidate]) -> dict[str, str]:
        """Every program that this run has seen, and ``others``: token form to version id."""
        versions = [*others, *(self.source(s.version_id) for s in self._steps if s.version_id)]
        return {token_form(candidate): candidate.id for candidate in reversed(versions)}

    def source(self, version_id: str) -> Candidate:
        """A version of this run."""
        if version_id not in self._candidates:
            self._candidates[version_id] = self._store.candidate(version_id)
        return self._candidates[version_id]

    def add_step(self, step: StepRow) -> None:
        """Commit a step."""
        self._store.add_step(step)
        self._steps.append(step)

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

    def add_call(self, step_number: int, agent: str, messages: Sequence[Message], reply: Reply, seconds: float) -> None:
        """Commit one answered call."""
        row = self._store.add_call(
            run_id=self.run.id,
            step_number=step_number,
            number=len(self._calls) + 1,
            agent=agent,
            messages=[(m.role, m.content) for m in messages],
            reply=reply.text,
            model=reply.model,
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
        ids = self._store.add_evaluations(self._operator, evaluations, self.run.id, **fields)
        self._set(fields)
        return ids

    def already_evaluated(self, candidate: Candidate) -> str | None:
        """The id of this run's evaluation of a version, if a killed process stored it before its step."""
        begun = _instant(self.run.started_at)
        for row in reversed(self._store.evaluations(candidate.id)):
            if row.executor == self.run.executor and _instant(row.started_at) >= begun:
                return row.id
        return None

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
        """What the run that this one replays knew of its device, which may have been measured again since."""
        for store in (one for one in (self._store, self._readers) if one is not None):
            for run in store.runs():
                if run.id == self.run.replay_of and run.device_id and run.device_id == self.run.device_id:
                    return store.ceilings(run.device_id, until=run.started_at)
        return None

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


def now() -> str:
    """The instant as it is stored."""
    return datetime.now(UTC).isoformat()


def _instant(text: str) -> datetime:
    """To the millisecond, as evaluations store no more."""
    instant = datetime.fromisoformat(text)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
