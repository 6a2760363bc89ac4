"""A person, or an agent in an editor, answers: prompts and answers are files.

Call 3 of a run writes ``prompts/<run>/003-coder.md`` and takes its answer from ``003-coder.answer.md`` beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msbench.conversation import Limits, Message, Reply
from msbench.errors import WaitingForAnswer
from msbench.providers import Provider
from msbench.store.tables import CallRow

BY_HAND = "answered by hand"
_POLL_S = 0.25
_SETTLED_S = 1.0


class ManualProvider(Provider):
    """See the module's docstring. ``wait``: sit until the answer is there, instead of ending with WaitingForAnswer."""

    name = "manual"

    def __init__(self, model: str, folder: Path, wait: bool) -> None:
        self.model = model or BY_HAND
        self._folder = folder
        self._wait = wait
        self._run = ""
        self._number = 0

    def begin(self, run_id: str, task_id: str, answered: Sequence[CallRow]) -> None:
        """Number the prompts from where the run stands."""
        self._run = run_id
        self._number = len(answered)

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """Write the prompt, and read the answer once there is one."""
        prompt, answer = self._files(agent)
        _write(prompt, _readable(answer.name, messages))
        deadline = None if limits.timeout_s is None else time.monotonic() + limits.timeout_s
        while not _answered(answer, settled=self._wait):
            if not self._wait or (deadline is not None and time.monotonic() > deadline):
                raise WaitingForAnswer(f"The {agent}'s prompt is in {prompt}. Write the answer to {answer}.")
            time.sleep(_POLL_S)
        self._number += 1
        return Reply(answer.read_text("utf-8-sig", errors="replace"), self.model, cost_usd=0.0)

    def invitation(self, agent: str) -> str:
        """Which file to read and which to write, for whoever watches it wait."""
        if not self._wait:
            return ""
        prompt, answer = self._files(agent)
        return f"The {agent}'s prompt is in {prompt}; write the answer to {answer.name} beside it."

    def _files(self, agent: str) -> tuple[Path, Path]:
        prompt = self._folder / self._run / f"{self._number + 1:03d}-{agent}.md"
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
    """Write all of it or nothing: whoever watches the folder sees whole prompts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8")
    draft.replace(path)


def _readable(answer: str, messages: Sequence[Message]) -> str:
    parts = [f"<!-- Answer in {answer}, in this folder. Everything below this line is the prompt. -->"]
    parts += [f"<!-- {message.role} -->\n\n{message.content.strip()}" for message in messages]
    return "\n\n".join(parts) + "\n"
