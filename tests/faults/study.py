"""Kills optimize, bench, merge and build-site at random points and records what came of it: ``python -m tests.faults.study``.

Every kill is a row of the database (``Study.FAULTS``), which the site shows, as soon as it is over: an interrupted study goes
on with ``--resume``. Exit code 1 if a kill left a trace.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from queue import Queue

from msbench import executors
from msbench.commands import without_place
from msbench.harness.digest import harness_digest
from msbench.model import Device, Study, Trial
from msbench.store.store import Store
from tests.faults.kills import KINDS, Bench, Kill, Undisturbed, kill, undisturbed
from tests.faults.works import NAMES, Work, works

EXPECTED = (
    "nothing recorded is lost, nothing half-written is visible, no temporary file stays, and the next start ends as an "
    "uninterrupted run"
)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.study", description=__doc__)
    parser.add_argument("--kills", type=_numbers, default=[50], help="of each command, or a number for each: 10,40")
    parser.add_argument("--commands", default=",".join(NAMES))
    parser.add_argument("--executor", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=2, help="kills at the same time; one GPU takes one")
    parser.add_argument("--seed", type=int, default=0, help="of the instants; not drawn, so that a study repeats")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="begin no further kill after so many seconds"
    )
    parser.add_argument("--resume", action="store_true", help="leave out what this version of the harness has recorded")
    parser.add_argument("--db", default="db/local.sqlite", help="where the trials are recorded")
    given = parser.parse_args()
    names = given.commands.split(",")
    if unknown := sorted(set(names) - set(NAMES)):
        parser.error(f"--commands {', '.join(unknown)}: choose from {', '.join(NAMES)}, joined by ','")
    if len(given.kills) not in (1, len(names)):
        parser.error(f"--kills: give one number, or {len(names)} for {', '.join(names)}")
    with executors.pick(given.executor) as chosen:
        device = chosen.device()
    print(f"seed {given.seed}, {device.name}", flush=True)
    with Store(given.db) as store, tempfile.TemporaryDirectory(prefix="msbench-faults-") as folder:
        store.add_device(device)
        wanted = works(Path(folder) / "template", given.executor, names)
        kills = dict(zip(names, given.kills * len(names) if len(given.kills) == 1 else given.kills, strict=True))
        left = [(work, n) for n in range(max(given.kills)) for work in wanted if n < kills[work.name]]
        if given.resume:
            known = _recorded(store, device)
            wished, left = left, [one for one in left if _subject(*one, given.seed) not in known]
            print(f"{len(wished) - len(left)} of {len(wished)} kills are recorded already", flush=True)
        failed = run(store, device, left, Path(folder), given.jobs, given.seed, given.budget)
    sys.exit(1 if failed else 0)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def run(
    store: Store, device: Device, left: list[tuple[Work, int]], folder: Path, jobs: int, seed: int, budget_s: float
) -> int:
    """Kill each work the time of that number, record every kill, and return how many left a trace."""
    created_at, command = datetime.now(UTC).isoformat(), _command()
    places: Queue[Bench] = Queue()
    for number in range(jobs):
        places.put(Bench(folder / f"place-{number}"))
    wanted = list({work.name: work for work, _ in left}.values())
    deadline = time.monotonic() + budget_s
    normal = _normal(places, wanted, jobs)

    def one(work: Work, number: int) -> Kill | None:
        place = places.get()
        try:
            if time.monotonic() > deadline:
                return None
            rng = random.Random(f"{seed} {work.name} {number}")
            return kill(place, work, normal[work.name], number, KINDS[number % 2], rng)
        except Exception as error:
            return Kill(work.name, KINDS[number % 2], "", "", f"{type(error).__name__}: {error}")
        finally:
            places.put(place)

    failed = over = 0
    with ThreadPoolExecutor(jobs) as pool:
        ends = pool.map(one, [work for work, _ in left], [number for _, number in left])
        for (work, number), done in zip(left, ends, strict=True):
            if done is None:
                continue
            over, failed = over + 1, failed + bool(done.problem)
            trial = Trial(
                study=Study.FAULTS,
                subject=_subject(work, number, seed),
                expected=EXPECTED,
                outcome=done.problem or f"killed {done.point}; {done.stored}; the next start went on to the same end",
                held=not done.problem,
                details={"command": done.command, "kind": done.kind, "point": done.point},
                device_id=device.id,
                harness=harness_digest(),
                command=command,
                created_at=created_at,
            )
            store.add_trials([trial])
            print(f"{'✗' if done.problem else '✓'} {trial.subject}: {trial.outcome}", flush=True)
    print(f"{over - failed} of {over} kills left no trace", flush=True)
    if over < len(left):
        print(f"The budget is spent; {len(left) - over} kills are left for --resume.", flush=True)
    return failed


def _subject(work: Work, number: int, seed: int) -> str:
    return f"{work.name}, kill {number} of seed {seed}"


def _recorded(store: Store, device: Device) -> set[str]:
    """What was tried on this device with the harness as it is."""
    return {
        trial.subject
        for trial in store.trials(Study.FAULTS)
        if (trial.device_id, trial.harness) == (device.id, harness_digest())
    }


def _command() -> str:
    """What to type to repeat this."""
    words = without_place(word for word in sys.argv[1:] if word != "--resume")
    return shlex.join(["python", "-m", "tests.faults.study", *words])


def _normal(places: Queue[Bench], wanted: list[Work], jobs: int) -> dict[str, Undisturbed]:
    """Every place runs once, so that its cache is warm; one of each work's runs is what the others are compared with."""
    found: dict[str, Undisturbed] = {}
    with ThreadPoolExecutor(jobs) as pool:
        at_hand = [places.get() for _ in range(jobs)]
        for work in wanted:
            found[work.name], *_ = pool.map(undisturbed, at_hand, repeat(work))
            one = found[work.name]
            print(f"{work.name}: {one.seconds:.1f} s and {one.operations} operations undisturbed", flush=True)
        for place in at_hand:
            places.put(place)
    return found


if __name__ == "__main__":
    main()
