"""What Ctrl-C, or another signal, means to the command that runs."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass


@dataclass
class Interruption:
    """What is said when a command is interrupted.

    Attributes:
        go_on: what to type to go on; "" where there is nothing to go on with.
        is_the_end: Ctrl-C is how the command is meant to end.
    """

    go_on: str = ""
    is_the_end: bool = False


current = Interruption()
"""That of the command that runs; signals are the process's own, and so is this."""


def begin() -> None:
    """Another command begins."""
    current.go_on, current.is_the_end = "", False


def goes_on_with_resume(db: str | None) -> None:
    """The typed command continues with ``--resume``; it includes where results go, but no password."""
    from msbench.store.engine import shown

    words = [word.replace(db, shown(db)) if db else word for word in sys.argv[1:]]
    current.go_on = shlex.join(["msbench", *(word for word in words if word != "--resume"), "--resume"])
