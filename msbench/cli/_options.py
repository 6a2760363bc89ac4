"""Options and arguments that several commands share."""

from __future__ import annotations

import math
import os
import secrets
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from msbench import databases, operators
from msbench.commands import without_place
from msbench.errors import MsbenchError
from msbench.spec import Precision, Task

if TYPE_CHECKING:
    from msbench.harness.protocols import Executor
    from msbench.store.store import Store


class _Console(Console):
    """A pipe's reader may leave (``msbench ops | head``): the work continues, and nothing more is printed."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


# In a pipe a row of a table stays a line, whatever reads it.
out = _Console(highlight=False, width=None if sys.stdout and sys.stdout.isatty() else 240)
err = _Console(stderr=True, highlight=False)

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="Use only this database (a file or an SQLAlchemy URL), not the shipped one. "
        "Default: read the shipped one and db/*.sqlite, write db/local.sqlite.",
        show_default=False,
    ),
]
Ops = Annotated[
    Path | None,
    typer.Option(
        "--ops-dir",
        help="A folder with your own operators, added to the built-in ones.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="GPU index or UUID; with the recorded executor, the name of a recorded device.",
        show_default=False,
    ),
]
Exec = Annotated[
    str,
    typer.Option(
        "--executor",
        help="auto, cuda (measures; needs CUDA 12.4 or newer), cpu (checks only) or recorded (figures from the database).",
    ),
]


def amount(value: float | None) -> float | None:
    """For options that are amounts: not even typer's ``min`` keeps NaN out."""
    if value is not None and not 0 <= value < math.inf:
        raise typer.BadParameter(f"{value} is not an amount: expected a number of at least 0.")
    return value


CASES_HELP = "paper, large, odd, heldout, near, all, smallest, or a case such as N=1024; several joined by '+'."
Cases = Annotated[
    str,
    typer.Option("--cases", help=CASES_HELP),
]
Sittings = Annotated[
    int,
    typer.Option(
        "--sessions",
        "--sittings",  # as recorded commands have it
        min=1,
        max=1000,
        help="Sessions per case, each in new processes; at most four if a call takes more than 0.2 ms, "
        "one if more than 20 ms.",
    ),
]
_SETTLED = (
    "Sessions per case, each in new processes; at most four if a call takes more than 0.2 ms, "
    "one if more than 20 ms. With two or more, up to four times as many run, until ratios are known to about ±0.7 %."
)
SettledSittings = Annotated[int, typer.Option("--sessions", "--sittings", min=1, max=1000, help=_SETTLED)]
TimedSittings = Annotated[
    int | None,
    typer.Option(
        "--sessions",
        "--sittings",
        min=1,
        max=1000,
        help=f"{_SETTLED} Default: 3, two where a third would end after half a minute, more if they end within 15 s.",
    ),
]
SEEDS = 2**63 - 1  # the largest integer of a database
DRAWN_SEEDS = 2**48  # JSON's numbers hold them, and those next to them, exactly
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        max=SEEDS,
        help="Seed for inputs, held-out cases and measuring order. Default: random, and recorded with the command.",
        show_default=False,
    ),
]
FixedSeed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        max=SEEDS,
        help="Seed for inputs, held-out cases and measuring order; fixed by default, so that results repeat exactly.",
    ),
]


def draw_seed() -> int:
    """A seed that no kernel was written for."""
    return secrets.randbelow(DRAWN_SEEDS)


def command_line(without: str = "", seed: int | None = None) -> str:
    """What to type to repeat this, without a flag and without where its results went.

    ``seed``: one that was drawn, and has to be typed then.
    """
    words = without_place(word for word in sys.argv[1:] if word != without)
    if seed is not None:
        end = words.index("--") if "--" in words else len(words)
        words[end:end] = ["--seed", str(seed)]
    return shlex.join(["msbench", *words])


def repeated(command: str, db: str | None) -> str:
    """``command`` with the database that was named here: it is recorded without, and repeated with it."""
    if db is None:
        return command
    from msbench.store.engine import shown

    return added(command, "--db", shown(db))


def added(command: str, *options: str) -> str:
    """``command`` with further options."""
    words = shlex.split(command)
    end = words.index("--") if "--" in words else len(words)
    words[end:end] = options
    return shlex.join(words)


def seeded(given: int | None, without: str = "") -> tuple[int, str]:
    """The seed, drawn if none is given, and what to type to repeat this with it (see ``command_line``)."""
    if given is not None:
        return given, command_line(without)
    drawn = draw_seed()
    return drawn, command_line(without, drawn)


def _task(text: str, precision: Precision | None, ops_dir: Path | None) -> list[Task]:
    """``rms_norm`` or ``rms_norm/fp32`` as tasks."""
    name, _, after = text.partition("/")
    operator = operators.load(name, ops_dir)
    if after and after not in {str(p) for p in operator.precisions}:
        raise MsbenchError(f"{text!r}: {name} has the precisions {', '.join(operator.precisions)}, not {after!r}.")
    chosen = (Precision(after),) if after else (precision,) if precision else operator.precisions
    return [Task(operator, p) for p in chosen]


def tasks_named(texts: list[str] | None, precision: Precision | None, ops_dir: Path | None) -> list[Task]:
    return [task for text in (texts or operators.names(ops_dir)) for task in _task(text, precision, ops_dir)]


def pick_executor(
    name: str,
    db: str | None,
    device: str | None,
    store: Store,
    *,
    recalls: bool = True,
    sanitize: bool = False,
    ceilings: bool = True,
) -> Any:
    """The executor, told what is known already.

    Args:
        ceilings: whether what the device reaches is measured at once, and stored (see ``store_ceilings``).
        recalls: whether stored times may stand for those that can't be measured here. Where they may not, what runs kernels
            and has times of another device gives way to the processor, which runs them and has none.
    """
    from msbench import executors
    from msbench.harness.protocols import Remembers

    executors.require(name)
    store.check_clock()
    known = None if name == "cpu" else databases.reader(db)  # takes a second, and a processor has no use for times
    chosen = executors.pick(name, store=known, device=device, sanitize=sanitize)
    if not recalls and isinstance(chosen, Remembers):
        chosen.close()
        chosen = executors.pick("cpu", sanitize=sanitize)
    if ceilings:
        store_ceilings(chosen, store)
    return chosen


def store_ceilings(executor: Executor, store: Store) -> None:
    """Store what a device that measures reaches, beside the results from it."""
    found = executor.ceilings() if executor.measures else None
    if found is not None:
        store.add_ceilings(executor.device(), found)
