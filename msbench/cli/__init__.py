"""The `msbench` command: parse, call one function, print. The only place that exits."""

from __future__ import annotations

import sys
from typing import NoReturn

from msbench.cli import audit, exploits, look, measure, mutants, search, site, standings, study, tune, views  # noqa: F401  their commands register themselves, in this order
from msbench.cli import db as _db  # noqa: F401
from msbench.cli._app import app, db_app
from msbench.cli._end import ended

app.add_typer(db_app, name="db")


def main() -> NoReturn:
    """Run the command; ``_end`` has the exit codes."""
    sys.exit(ended(app))
