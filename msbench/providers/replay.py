"""Replays the answers of a recorded run: deterministic, without a key or a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import unified_diff
from typing import Any, NoReturn

from sqlmodel import Session, col, select

from msbench.conversation import Limits, Message, Reply
from msbench.errors import ProviderUnavailable, RecordingDiffers, RecordingEnded
from msbench.model import DEFAULT_STRATEGY
from msbench.providers import Provider
from msbench.providers._stored import stored_reply
from msbench.store.convert import message_rows
from msbench.store.runs import Call
from msbench.store.store import Store
from msbench.store.tables import CallRow, RunRow

_SHOWN = 40


class ReplayProvider(Provider):
    """Answers a prompt with the answer that was recorded for that agent and prompt; the n-th time with the n-th answer."""

    name = "replay"
    free = True

    def __init__(self, store: Store, run: str) -> None:
        self._store = store
        self._wanted = run
        self.model = "recorded"
        self._recorded: list[Call] = []
        self._unused: list[Call] = []
        self._calls = 0

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
            raise ProviderUnavailable(f"Run {found.id} is for {found.task_id}, not {task_id}: choose another.")
        return found

    def begin(self, run_id: str, task_id: str, answered: Sequence[CallRow]) -> None:
        """Find the recording; skip the answers that the run already has.

        Raises:
            ProviderUnavailable: no run of this task was recorded.
            UnknownNameError: there is no run of the wanted id.
        """
        recording = self.recording(task_id)
        self.replay_of, self.model = recording.id, recording.model
        self._recorded = self._store.calls(recording.id)
        self._unused = list(self._recorded)
        for call in answered:
            found = self._find(call.agent, call.prompt_id)
            if found is not None:
                self._unused.remove(found)
                self._calls += 1

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """The recorded answer; it costs nothing.

        Raises:
            RecordingDiffers: there is none to this prompt, though there are others left.
        """
        prompt_id = message_rows(agent, [(m.role, m.content) for m in messages])[-1].id
        found = self._find(agent, prompt_id) or self._miss(agent, messages)
        self._unused.remove(found)
        self._calls += 1
        return replace(stored_reply(found.row, found.reply), cost_usd=0.0, priced_by="a recording")

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Nothing."""
        return 0.0

    def note(self) -> str:
        """That the prompts were the recorded ones: any other is an error."""
        return f"All {self._calls} prompts were the recorded ones." if self._calls else ""

    def _find(self, agent: str, prompt_id: str) -> Call | None:
        return next((c for c in self._unused if c.row.agent == agent and c.row.prompt_id == prompt_id), None)

    def _miss(self, agent: str, messages: Sequence[Message]) -> NoReturn:
        where = f"run {(self.replay_of or '')[:12]}"
        own = [call for call in self._recorded if call.row.agent == agent]
        if not self._unused:
            raise RecordingEnded(f"The recording ends here: {where} has {len(own)} answers to the {agent}.")
        left = [call for call in self._unused if call.row.agent == agent]
        if not left:
            raise RecordingDiffers(
                f"The {agent} is asked here, but {where} has no further answer: the evaluations, msbench's texts or its "
                "settings differ from the recording."
            )
        raise RecordingDiffers(
            f"{where} has no answer to the {agent}'s prompt, which differs from the next one as follows "
            f"(- recorded, + now):\n{_difference(left[0], messages)}"
        )


def _difference(call: Call, messages: Sequence[Message]) -> str:
    recorded = "\n".join(message.content for message in call.prompt)
    now = "\n".join(message.content for message in messages)
    lines = list(unified_diff(recorded.splitlines(), now.splitlines(), lineterm="", n=0))[2:]
    shown = [line[:200] for line in lines[:_SHOWN]]
    if len(lines) > _SHOWN:
        shown.append(f"... and {len(lines) - _SHOWN} lines more")
    return "\n".join(shown)


def create(*, store: Store | None = None, run: str = "", **_: Any) -> ReplayProvider:
    """The provider. ``store`` holds the recordings; ``run`` names one (default: the newest of the task, see ``_newest``).

    Raises:
        ProviderUnavailable: there is no database to read recordings from.
    """
    if store is None:
        raise ProviderUnavailable("Replaying needs a database with recorded runs: give one with --db.")
    return ReplayProvider(store, run)


def _newest(session: Session, task_id: str) -> RunRow | None:
    """The newest run of the task that has answers of its own: a finished one before any other, then one of the default strategy."""
    query = (
        select(RunRow)
        .where(RunRow.task_id == task_id, RunRow.provider != ReplayProvider.name)
        .where(col(RunRow.id).in_(select(CallRow.run_id)))
        .order_by(
            col(RunRow.status) == "finished",
            col(RunRow.strategy) == DEFAULT_STRATEGY,
            col(RunRow.started_at),
            col(RunRow.id),
        )
    )
    runs = session.exec(query).all()
    return runs[-1] if runs else None
