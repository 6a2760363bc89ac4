"""Options and arguments that several commands share."""

from __future__ import annotations

import math
import secrets
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from msbench import databases, operators
from msbench.commands import without_place
from msbench.errors import MsbenchError
from msbench.spec import Precision, Task
from msbench.store.store import Store

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="Read and write this database alone, a file or an SQLAlchemy URL; the shipped one is left out. "
        "Default: read the shipped one and db/*.sqlite, write db/local.sqlite.",
        show_default=False,
    ),
]
Ops = Annotated[
    Path | None,
    typer.Option(
        "--ops-dir",
        help="The folder of your own operators, which are there beside the built-in ones.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="GPU index or UUID; for the recorded executor the name of a recorded device.",
        show_default=False,
    ),
]
Exec = Annotated[
    str,
    typer.Option(
        "--executor", help="auto, cuda (measures), cpu (checks only) or recorded (figures from the database)."
    ),
]


def amount(value: float | None) -> float | None:
    """For options that are amounts: not even typer's ``min`` keeps NaN out."""
    if value is not None and not 0 <= value < math.inf:
        raise typer.BadParameter(f"{value} is no amount: a number that is 0 or more is meant.")
    return value


CASES_HELP = "paper, large, odd, heldout, all, smallest, or a case such as N=1024; several joined by '+'."
Cases = Annotated[
    str,
    typer.Option("--cases", help=CASES_HELP),
]
Sittings = Annotated[
    int,
    typer.Option(
        "--sittings",
        min=1,
        max=1000,
        help="How many times a case is measured, each time in new processes; those of more than 0.2 ms four times at most, "
        "of more than 20 ms once.",
    ),
]
SettledSittings = Annotated[
    int,
    typer.Option(
        "--sittings",
        min=1,
        max=1000,
        help="How many times a case is measured, each time in new processes; those of more than 0.2 ms four times at most, of "
        "more than 20 ms once. From two on, as many more follow, up to four times as many, as it takes to know ratios to about ±0.7 %.",
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
        help="Seed of inputs, held-out cases and measuring order. Default: drawn, and recorded with the command.",
        show_default=False,
    ),
]
FixedSeed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        max=SEEDS,
        help="Seed of inputs, held-out cases and measuring order; not drawn, so that a proof repeats exactly.",
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
    name: str, db: str | None, device: str | None, store: Store, *, recalls: bool = True, **options: Any
) -> Any:
    """The executor, told what is known already; a device that measures has its ceilings stored with the results.

    Args:
        recalls: whether stored times may stand for those that can't be measured here. Where they may not, what runs kernels
            and has times of another device gives way to the processor, which runs them and has none.
    """
    from msbench import executors
    from msbench.harness.protocols import Remembers

    store.check_clock()
    chosen = executors.pick(name, store=databases.reader(db), device=device, **options)
    if not recalls and isinstance(chosen, Remembers):
        chosen.close()
        chosen = executors.pick("cpu", device=device, **options)
    ceilings = chosen.ceilings() if chosen.measures else None
    if ceilings is not None:
        store.add_ceilings(chosen.device(), ceilings)
    return chosen
