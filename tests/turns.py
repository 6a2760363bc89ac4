"""Which of the costly tests have their turn: `make test` runs one part of them, and others after other commits.

What compiles and runs kernels takes most of the time, and there are hundreds of kernels, mutants and exploits. Each is in one of
``PARTS`` parts, and so is some of what else takes long. The commit chooses the part, so that a failure comes again when it is
looked at; ``MSBENCH_TEST_PART`` names one, or ``all`` of them, as `make sweep` does.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

PARTS = 10
VARIABLE = "MSBENCH_TEST_PART"
T = TypeVar("T")


def of_the_commit() -> str:
    """The part whose turn it is, by the hash of what is checked out; where there is no repository, the first."""
    commit = ""
    with suppress(OSError):  # there is no git
        asked = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout
    return str(int(commit.strip() or "0", 16) % PARTS)


def part() -> int | None:
    """The part that is run, from 0 on; None: all are."""
    named = os.environ[VARIABLE]
    return None if named == "all" else range(PARTS).index(int(named))


def has_turn(what: str) -> bool:
    """Whether what has this name is in the part that is run."""
    return part() in (None, zlib.crc32(what.encode()) % PARTS)


def costly(test: Callable[..., None]) -> Any:
    """Marks a test that runs in one of the parts."""
    return pytest.mark.skipif(not has_turn(test.__name__), reason="takes long, and another part has it")(test)


def share(items: Sequence[T], least: int = 0) -> list[T]:
    """Those in the part that is run, one of ``PARTS`` in a row. Where there are fewer, ``least`` of 1 gives each part one of them."""
    chosen = part()
    if chosen is None:
        return list(items)
    return list(items[chosen::PARTS] or items[chosen % max(1, len(items)) :][:least])


def examples(count: int) -> int:
    """How many examples hypothesis tries of a test whose examples are costly, if ``count`` are to be tried in all parts."""
    return count if part() is None else -(-count // PARTS)
