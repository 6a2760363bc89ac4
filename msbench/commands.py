"""Commands as they are recorded and shown: what to type to repeat a result."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def without_place(words: Iterable[str]) -> list[str]:
    """The words without ``--db``, ``--markdown``, ``--prompts`` and their values: where results and prompts lay is nobody else's business.

    Nor is a ``--folder`` from the root, which somebody else has elsewhere.
    """
    for option in ("--db", "--markdown", "--prompts"):
        words = _without(option, words)
    return list(_without("--folder", words, "/"))


def typed(command: str) -> str:
    """A recorded command as anybody would type it; one that no shell could read comes back as it is."""
    try:
        return shlex.join(without_place(shlex.split(command)))
    except ValueError:
        return command


def without_seed(command: str) -> str:
    """A recorded command without its seed: the same for what differs in a drawn one only."""
    return _shortened("--seed", command)


def without_budget(command: str) -> str:
    """A recorded command without its time limit: the same for what was measured in one go and in several."""
    return _shortened("--budget", command)


def without_executor(command: str) -> str:
    """A recorded command without the name of its executor: the same where there is one that ``auto`` would pick."""
    return _shortened("--executor", command)


def _shortened(option: str, command: str) -> str:
    try:
        return shlex.join(_without(option, shlex.split(command)))
    except ValueError:
        return command


def _without(option: str, words: Iterable[str], beginning: str = "") -> list[str]:
    """Without an option and its value, where that begins so."""
    kept, left = [], iter(words)
    for word in left:
        if word == option:
            value = next(left, "")
            kept += [] if value.startswith(beginning) else [word, value]
        elif not word.startswith(f"{option}={beginning}"):
            kept.append(word)
    return kept
