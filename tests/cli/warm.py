"""Forks for each command, having imported what commands import: ``python -m tests.cli.warm``.

That takes most of a short command's time, and so does the harness's digest in one that evaluates. The commands themselves
(``msbench.cli``, which looks at the terminal) are imported after the fork, in the command's own folder and environment. A line of
JSON on standard input is a command; the answer is its exit code, or the negative number of the signal that ended it.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import jinja2  # noqa: F401
import rich.progress
import rich.table  # noqa: F401
import typer.testing  # noqa: F401

import msbench.archive.integrity
import msbench.executors.cpu
import msbench.harness.batch.coordinator
import msbench.optimize  # noqa: F401
from msbench.harness.digest import harness_digest
from msbench.store.database import Database
from tests import factories, shipped

LIMIT_S = 250


def run(command: dict[str, Any]) -> None:
    """Become ``python -m msbench``, without input."""
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    for number, path in enumerate((os.devnull, command["stdout"], command["stderr"])):
        file = os.open(path, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    Database.read_to_memory = shipped.reading(Path(command["shipped"]))  # type: ignore[method-assign]
    signal.alarm(LIMIT_S)
    sys.path[0] = command["cwd"]
    sys.argv = ["msbench", *command["arguments"]]
    runpy.run_module("msbench", run_name="__main__", alter_sys=True)


def main() -> None:
    """See the module's docstring."""
    harness_digest(factories.operator("scale"))  # which keeps the parts that all operators share
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(json.loads(line))
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
