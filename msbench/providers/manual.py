"""A person, or an agent in an editor, answers: prompts and answers are files.

Call 3 of a run writes ``prompts/<run>/003-coder.md`` and takes its answer from ``003-coder.answer.md`` beside it. The folder
may be answered anywhere, by anybody: a prompt's first line tells its version, and an answer to another one is refused.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msbench.conversation import Limits, Message, Reply
from msbench.errors import WaitingForAnswer
from msbench.model import digest
from msbench.providers import Provider
from msbench.store.tables import CallRow

BY_HAND = "answered by hand"
_POLL_S = 0.25
_SETTLED_S = 1.0
_MARK = re.compile(r"\A\s*<!-- Prompt ([0-9a-f]{12})\b[^\n]*-->[^\S\n]*\n?")


class ManualProvider(Provider):
    """See the module's docstring. ``wait``: sit until the answer is there, instead of ending with WaitingForAnswer."""

    name = "manual"
    free = True

    def __init__(self, model: str, folder: Path, wait: bool) -> None:
        self.model = model or BY_HAND
        self._folder = folder
        self._wait = wait
        self._run = ""
        self._number = 0

    def begin(self, run_id: str, task_id: str, answered: Sequence[CallRow]) -> None:
        """Prompts are in the run's folder; they are numbered from where it stands, unless the engine numbers them."""
        self._run = run_id
        self._number = len(answered)

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """The answer to the next prompt."""
        reply = self.answer(f"{self._number + 1:03d}", agent, messages, limits)
        self._number += 1
        return reply

    def answer(self, place: str, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """Write the prompt, and read the answer once there is one."""
        prompt, answer = self._files(agent, place)
        text = _readable(answer.name, messages)
        refusal = _set_aside(prompt, answer, text)
        _write(prompt, text)
        deadline = None if limits.timeout_s is None else time.monotonic() + limits.timeout_s
        while not _answered(answer, settled=self._wait):
            if not self._wait or (deadline is not None and time.monotonic() > deadline):
                raise WaitingForAnswer(f"{refusal}The {agent}'s prompt is in {prompt}. Write the answer to {answer}.")
            time.sleep(_POLL_S)
        given = answer.read_text("utf-8-sig", errors="replace")
        return Reply(_MARK.sub("", given, count=1), self.model, cost_usd=0.0)

    def invitation(self, agent: str, place: str = "") -> str:
        """Which file to read and which to write, shown while it waits."""
        if not self._wait:
            return ""
        prompt, answer = self._files(agent, place)
        return f"The {agent}'s prompt is in {prompt}; write the answer to {answer.name} beside it."

    def _files(self, agent: str, place: str) -> tuple[Path, Path]:
        prompt = self._folder / self._run / f"{place or f'{self._number + 1:03d}'}-{agent}.md"
        return prompt, prompt.with_suffix(".answer.md")

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Nothing, in dollars."""
        return 0.0


def create(*, model: str = "", folder: Path | str = "prompts", wait: bool = True, **_: Any) -> ManualProvider:
    """The provider. ``model`` is the name that the answers are shown under."""
    return ManualProvider(model, Path(folder), wait)


def _answered(path: Path, *, settled: bool) -> bool:
    """Whether there is an answer: not an empty file, and (``settled``) not one that is being written right now."""
    try:
        changed = path.stat().st_mtime
        return bool(path.read_bytes().strip()) and (not settled or abs(time.time() - changed) >= _SETTLED_S)
    except FileNotFoundError:
        return False


def _write(path: Path, text: str) -> None:
    """Write atomically: watchers of the folder see only whole prompts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8")
    draft.replace(path)


def _readable(answer: str, messages: Sequence[Message]) -> str:
    parts = [f"<!-- {message.role} -->\n\n{message.content.strip()}" for message in messages]
    version = digest(*parts)[:12]
    head = f"<!-- Prompt {version}. Answer in {answer}, in this folder; everything below this line is the prompt. -->"
    return "\n\n".join([head, *parts]) + "\n"


def _set_aside(prompt: Path, answer: Path, text: str) -> str:
    """Rename an answer that is to another version of the prompt; returns what is to be said of it.

    An answer may quote the first line of its prompt. One that does not is to the prompt that lies beside it.
    """
    try:
        given = _MARK.match(answer.read_text("utf-8-sig", errors="replace"))
        asked = given or _MARK.match(prompt.read_text("utf-8", errors="replace"))
    except FileNotFoundError:
        return ""
    now = _MARK.match(text)
    if asked is None or now is None or asked[1] == now[1]:
        return ""
    aside = answer.with_name(f"{answer.name}.to-{asked[1]}")
    answer.rename(aside)
    return f"The answer in {answer.name} answers another version of its prompt, so it was set aside as {aside.name}. "
