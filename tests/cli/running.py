"""The `msbench` command in a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.main import get_command

from msbench.cli import app
from tests import shipped

CHECKOUT = Path(__file__).parents[2]
GROUP = get_command(app)
COMMANDS = sorted(GROUP.commands)  # type: ignore[attr-defined]
DB_COMMANDS = sorted(GROUP.commands["db"].commands)  # type: ignore[attr-defined]
QUICKLY = ("--executor", "cpu", "--cases", "smallest")
GOOD = (CHECKOUT / "kernels" / "vector_add" / "naive.cu").read_text(encoding="utf-8")


@cache
def _warm() -> subprocess.Popen[str]:
    """The process that commands are forked from, until this one ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.warm"], cwd=CHECKOUT, text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


def run(here: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in the folder ``here``; see ``tests.shipped`` for what it reads."""
    warm = _warm()
    assert warm.stdin and warm.stdout
    with TemporaryDirectory() as folder:
        outputs = {name: str(Path(folder, name)) for name in ("stdout", "stderr")}
        command = {
            "arguments": [str(argument) for argument in arguments],
            "cwd": str(here),
            "env": {**os.environ, "PYTHONPATH": str(CHECKOUT)},
            "shipped": str(shipped.unpacked()),
        }
        warm.stdin.write(json.dumps(command | outputs) + "\n")
        warm.stdin.flush()
        code = int(warm.stdout.readline())
        said = {name: Path(path).read_text(encoding="utf-8") for name, path in outputs.items()}
    return subprocess.CompletedProcess(command["arguments"], code, **said)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of an expected error."""
    assert (done.returncode, done.stdout) == (2, ""), done
    assert re.fullmatch(r"error: .+\n", done.stderr), done.stderr
    return done.stderr
