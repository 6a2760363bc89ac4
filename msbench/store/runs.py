"""Runs of the engine: their steps, and the conversations behind each step. Every call is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session, col, delete, select

from msbench.errors import StoreError, UnknownNameError
from msbench.store.convert import message_rows
from msbench.store.database import Database
from msbench.store.identity import call_id, content, content_id, ledger_id, step_id
from msbench.store.rows import put_all
from msbench.store.tables import CallRow, LedgerRow, MessageRow, NotesRow, RunRow, StepRow


@dataclass(frozen=True)
class Call:
    """One call of a provider with its whole conversation: ``prompt`` in order, then ``reply``."""

    row: CallRow
    prompt: tuple[MessageRow, ...]
    reply: MessageRow


class Runs(Database):
    """The part of a store that an engine writes while it runs."""

    def start_run(self, run: RunRow) -> None:
        """Store a new run.

        Raises:
            IntegrityError: its task or device isn't stored yet, or there is a run of that id.
        """
        with self.writing() as session:
            session.add(run)

    def update_run(self, run_id: str, **fields: Any) -> None:
        """Set columns of a run, say ``status="finished"``.

        Raises:
            UnknownNameError: there is no such run.
        """
        with self.writing() as session:
            set_columns(session, run_id, fields)

    def add_step(self, step: StepRow) -> None:
        """Store a step; its id is set here. Storing the same step again changes nothing.

        Raises:
            StoreError: the run has another step of that number.
            IntegrityError: the step names a run, version or evaluation that isn't stored.
        """
        self.add_steps([(step, {})])

    def add_steps(self, steps: Sequence[tuple[StepRow, dict[str, Any]]]) -> None:
        """Store steps that belong together, each with its notes, in one transaction; raises what ``add_step`` does."""
        with self.writing() as session:
            for step, notes in steps:
                step.id = step_id(step.run_id, step.number)
                there = session.get(StepRow, step.id)
                if there is None:
                    session.add(step)
                    if notes:
                        row_id = content_id(NotesRow, {"step_id": step.id, "notes": notes})
                        session.add(NotesRow(id=row_id, step_id=step.id, notes=notes))
                elif content(StepRow, there.model_dump()) != content(StepRow, step.model_dump()):
                    raise StoreError(
                        f"Run {step.run_id} in {self.where} already has another step {step.number}: resume it instead."
                    )

    def notes(self, run_id: str) -> dict[str, dict[str, Any]]:
        """The notes of a run's steps, by the step's id; steps without any are absent."""
        with self.session() as session:
            query = (
                select(NotesRow).join(StepRow, col(StepRow.id) == col(NotesRow.step_id)).where(StepRow.run_id == run_id)
            )
            return {row.step_id: row.notes for row in session.exec(query)}

    def steps(self, run_id: str) -> list[StepRow]:
        """A run's steps, in order."""
        with self.session() as session:
            query = select(StepRow).where(col(StepRow.run_id) == run_id).order_by(col(StepRow.number))
            return list(session.exec(query))

    def add_call(
        self,
        *,
        run_id: str,
        step_number: int,
        number: int,
        agent: str,
        messages: Sequence[tuple[str, str]],
        reply: str,
        model: str,
        seconds: float,
        prompt_tokens: int | None = None,
        completion_tokens: int | None = None,
        cost_usd: float | None = None,
        created_at: str | None = None,
        role: str = "assistant",
    ) -> CallRow:
        """Store one call of a provider and its conversation; messages that are already there are shared.

        Args:
            run_id: a stored run.
            step_number: the step that the call is for (it may be stored later).
            number: the call's place in the run, which names it: storing a call again under its number changes nothing.
            agent: who asks.
            messages: the prompt as (role, content), at least one.
            reply: what the model answered.
            model: who answered.
            seconds: how long it took.
            prompt_tokens: as billed; None where the provider doesn't say.
            completion_tokens: as billed.
            cost_usd: as billed, or computed from a price list.
            created_at: when it was asked, ISO 8601; now if not given.
            role: the reply's; ``"error"`` for an answer that held nothing, with its kind and what was said of it.

        Raises:
            StoreError: the run has another call of that number.
        """
        if not messages:
            raise ValueError("A call needs at least one message.")
        chain = message_rows(agent, [*messages, (role, reply)])
        call = CallRow(
            id=call_id(run_id, number),
            run_id=run_id,
            step_number=step_number,
            number=number,
            agent=agent,
            prompt_id=chain[-2].id,
            reply_id=chain[-1].id,
            model=model,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cost_usd=cost_usd,
            seconds=seconds,
            created_at=created_at or datetime.now(UTC).isoformat(),
        )
        with self.writing() as session:
            there = session.get(CallRow, call.id)
            if there is None:
                put_all(session.connection(), [*chain, call])
            elif (there.prompt_id, there.reply_id) != (call.prompt_id, call.reply_id):
                raise StoreError(f"Run {run_id} in {self.where} already has another call {number}: resume it instead.")
        return call

    def calls(self, run_id: str, step_number: int | None = None) -> list[Call]:
        """A run's calls (or one step's), in order, each with its whole conversation."""
        with self.session() as session:
            query = select(CallRow).where(col(CallRow.run_id) == run_id).order_by(col(CallRow.number))
            if step_number is not None:
                query = query.where(col(CallRow.step_number) == step_number)
            return [self._call(session, row) for row in session.exec(query).all()]

    def transcript(self, run_id: str, step_number: int) -> list[Call]:
        """The conversations behind one step, in order."""
        return self.calls(run_id, step_number)

    def _call(self, session: Session, row: CallRow) -> Call:
        turns: dict[str, MessageRow] = {}
        following: str | None = row.reply_id
        while following is not None:
            message = session.get(MessageRow, following)
            if message is None or following in turns:
                what = "lacks a message" if message is None else "has a message that follows itself"
                raise StoreError(
                    f"Call {row.number} of run {row.run_id} in {self.where} {what}: see `msbench db check`."
                )
            turns[following] = message
            following = message.previous_id
        *prompt, reply = reversed(turns.values())
        return Call(row, tuple(prompt), reply)

    def put_ledger(self, row: LedgerRow) -> None:
        """Store a row of a run's ledger, or what became of it; its id is set here."""
        row.id = ledger_id(row.run_id, row.number)
        with self.writing() as session:
            session.merge(LedgerRow(**row.model_dump()))

    def drop_ledger(self, row: LedgerRow) -> None:
        """Forget a row for a request that was never sent."""
        with self.writing() as session:
            session.exec(delete(LedgerRow).where(col(LedgerRow.id) == ledger_id(row.run_id, row.number)))

    def ledger(self, run_id: str) -> list[LedgerRow]:
        """What a run spent on, in order."""
        with self.session() as session:
            query = select(LedgerRow).where(col(LedgerRow.run_id) == run_id).order_by(col(LedgerRow.number))
            return list(session.exec(query))

    def runs(self, task_id: str | None = None) -> list[RunRow]:
        """All runs (of a task), oldest first."""
        with self.session() as session:
            return [run for run in _runs(session) if task_id in (None, run.task_id)]

    def run(self, run_id: str) -> RunRow:
        """A run by its id, or by any beginning of it that no other run has.

        Raises:
            UnknownNameError: no run, or several, begin so.
        """
        with self.session() as session:
            found = session.get(RunRow, run_id)
            if found is not None:
                return found
            known = _runs(session)
            begun = [run for run in known if run_id and run.id.startswith(run_id)]
            if len(begun) != 1:
                raise UnknownNameError("run" if not begun else "single run", run_id, [run.id for run in begun or known])
            return begun[0]


def set_columns(session: Session, run_id: str, fields: Mapping[str, Any]) -> None:
    """Set columns of a run within a transaction.

    Raises:
        UnknownNameError: there is no such run.
    """
    unknown = set(fields) - set(RunRow.model_fields)
    if unknown:
        raise TypeError(f"A run has no {', '.join(sorted(unknown))}.")
    run = session.get(RunRow, run_id)
    if run is None:
        raise UnknownNameError("run", run_id, [row.id for row in _runs(session)])
    for name, value in fields.items():
        setattr(run, name, value)
    session.add(run)


def _runs(session: Session) -> list[RunRow]:
    return list(session.exec(select(RunRow).order_by(col(RunRow.started_at), col(RunRow.id))))
