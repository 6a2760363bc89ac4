"""The `msbench` command: parse, call one function, print. The only place that exits."""

from __future__ import annotations

import sys
from typing import NoReturn

from rich.markup import escape

from msbench.cli import audit, exploits, look, measure, mutants, search, site, study  # noqa: F401  their commands register themselves, in this order
from msbench.cli import db as _db  # noqa: F401
from msbench.cli._app import app, db_app
from msbench.cli._options import err
from msbench.errors import MsbenchError, WaitingForAnswer

app.add_typer(db_app, name="db")

_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command. An expected error becomes one message on the error stream.

    Exit codes: 0 all is well, 1 something did not pass, 2 an error, 3 waiting for an answer, 130 interrupted.
    """
    try:
        app(standalone_mode=True)
    except WaitingForAnswer as waiting:
        err.print(f"[yellow]waiting:[/] {escape(str(waiting))}", soft_wrap=True)
        sys.exit(3)
    except MsbenchError as error:
        err.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except SystemExit as ended:  # typer has already turned a KeyboardInterrupt into this
        if ended.code == _INTERRUPTED:
            said = (
                "\ninterrupted; what was finished is stored, and optimize, bench, audit and study go on with --resume"
            )
            err.print(said, soft_wrap=True)
        raise
    sys.exit(0)
