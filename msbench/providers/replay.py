"""Gives the answers of a recorded run again: deterministic, without a key, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, col, select

from msbench.conversation import Limits, Message, Reply
from msbench.errors import ProviderUnavailable, RecordingEnded
from msbench.providers import Provider
from msbench.store.convert import message_rows
from msbench.store.store import Store
from msbench.store.tables import CallRow, MessageRow, RunRow


class ReplayProvider(Provider):
    """Answers the k-th call of each agent with the recorded k-th answer to that agent.

    A prompt that is not the recorded one is answered all the same, and counted: :meth:`note` says so.
    """

    name = "replay"

    def __init__(self, store: Store, run: str) -> None:
        self._store = store
        self._wanted = run
        self.model = "recorded"
        self._recorded: dict[str, list[tuple[CallRow, str]]] = {}
        self._asked: dict[str, int] = {}
        self._calls = 0
        self._differing: list[int] = []

    def recording(self, task_id: str) -> RunRow:
        """The wanted run, or the newest of the task; raises what :meth:`begin` does."""
        with self._store.session() as session:
            found = self._store.run(self._wanted) if self._wanted else _newest(session, task_id)
        if found is None:
            raise ProviderUnavailable(
                f"There is no recorded conversation for {task_id}. Set OPENAI_API_KEY to ask a language model, "
                "or answer yourself with --provider manual."
            )
        if found.task_id != task_id:
            raise ProviderUnavailable(f"Run {found.id} is of {found.task_id}, not of {task_id}: choose another.")
        return found

    def begin(self, run_id: str, task_id: str, answered: Sequence[CallRow]) -> None:
        """Find the recording; skip the answers that the run already has.

        Raises:
            ProviderUnavailable: no run of this task was recorded.
            UnknownNameError: there is no run of the wanted id.
        """
        recording = self.recording(task_id)
        self.replay_of, self.model = recording.id, recording.model
        with self._store.session() as session:
            for call in session.exec(
                select(CallRow).where(CallRow.run_id == recording.id).order_by(col(CallRow.number))
            ):
                reply = session.get(MessageRow, call.reply_id)
                if reply is not None:
                    self._recorded.setdefault(call.agent, []).append((call, reply.content))
        for call in answered:
            self._next(call.agent, call.prompt_id)

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """The recorded answer; it costs nothing."""
        prompt_id = message_rows(agent, [(m.role, m.content) for m in messages])[-1].id
        call, text = self._next(agent, prompt_id)
        return Reply(text, call.model, call.prompt_tokens, call.completion_tokens, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Nothing."""
        return 0.0

    def note(self) -> str:
        """Which prompts differed from the recorded ones."""
        if not self._differing:
            return f"All {self._calls} prompts were the recorded ones." if self._calls else ""
        calls = ", ".join(str(number) for number in self._differing)
        which = f" (call {calls})" if len(self._differing) < self._calls else ""
        return (
            f"{len(self._differing)} of {self._calls} prompts differed from the recorded ones{which}. That is harmless: they quote "
            "msbench's own texts and what was measured, which may have changed since. The kernels are checked as any others."
        )

    def _next(self, agent: str, prompt_id: str) -> tuple[CallRow, str]:
        done = self._asked.get(agent, 0)
        known = self._recorded.get(agent, [])
        if done >= len(known):
            raise RecordingEnded(
                f"The recording ends here: run {(self.replay_of or '')[:12]} has {len(known)} answers to the {agent}."
            )
        self._asked[agent] = done + 1
        self._calls += 1
        if known[done][0].prompt_id != prompt_id:
            self._differing.append(self._calls)
        return known[done]


def create(*, store: Store | None = None, run: str = "", **_: Any) -> ReplayProvider:
    """The provider. ``store`` holds the recordings; ``run`` names one (default: the newest of the task).

    Raises:
        ProviderUnavailable: there is no database to read recordings from.
    """
    if store is None:
        raise ProviderUnavailable("Replaying needs a database with recorded runs: give one with --db.")
    return ReplayProvider(store, run)


def _newest(session: Session, task_id: str) -> RunRow | None:
    """The newest run of the task that has answers of its own, a finished one before any other."""
    query = (
        select(RunRow)
        .where(RunRow.task_id == task_id, RunRow.provider != ReplayProvider.name)
        .where(col(RunRow.id).in_(select(CallRow.run_id)))
        .order_by(col(RunRow.status) == "finished", col(RunRow.started_at), col(RunRow.id))
    )
    runs = session.exec(query).all()
    return runs[-1] if runs else None
