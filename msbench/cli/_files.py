"""Files that a command is asked to write."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from msbench.cli._options import out
from msbench.errors import MsbenchError


def see_that_writable(*paths: Path) -> None:
    """Before the work rather than after it: each file is opened for writing, and left as it was.

    Raises:
        MsbenchError: one can't be written.
    """
    for path in paths:
        there = path.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
            if not there:
                path.unlink()
        except OSError as error:
            raise _unwritable(path, error) from error


def write(path: Path, text: str) -> None:
    """Write a file, make its folder if there is none, and say so.

    Raises:
        MsbenchError: it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error
    out.print(f"wrote {escape(str(path))}", soft_wrap=True)


def _unwritable(path: Path, error: OSError) -> MsbenchError:
    why = (error.strerror or str(error)).lower()
    return MsbenchError(f"{path} can't be written: {why}. Name a file in a folder that you may write to.")
