"""The `msbench` command in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from typer.main import get_command

from msbench.cli import app

CHECKOUT = Path(__file__).parents[2]
GROUP = get_command(app)
COMMANDS = sorted(GROUP.commands)  # type: ignore[attr-defined]
DB_COMMANDS = sorted(GROUP.commands["db"].commands)  # type: ignore[attr-defined]
QUICKLY = ("--executor", "cpu", "--cases", "smallest")
GOOD = (CHECKOUT / "kernels" / "vector_add" / "naive.cu").read_text(encoding="utf-8")


def run(here: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in the folder ``here``."""
    return subprocess.run(
        [sys.executable, "-m", "msbench", *map(str, arguments)],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of an expected error."""
    assert (done.returncode, done.stdout) == (2, ""), done
    assert re.fullmatch(r"error: .+\n", done.stderr), done.stderr
    return done.stderr
