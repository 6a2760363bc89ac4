"""Kills optimize, bench, merge and build-site at random points and records what came of it: ``python -m tests.faults.study``.

Every kill is a row of the database (``Study.FAULTS``), which the site shows. Exit code 1 if one left a trace.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from queue import Queue

from msbench import executors
from msbench.harness.evaluate import harness_digest
from msbench.model import Device, Study, Trial
from msbench.store.store import Store
from tests.faults.kills import KINDS, Bench, Kill, Undisturbed, kill, undisturbed
from tests.faults.works import Work, works

EXPECTED = "nothing recorded is lost, nothing half-written is visible, and the next start ends as an uninterrupted run"
NAMES = ("optimize", "bench", "merge", "build-site")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.study", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of each command")
    parser.add_argument("--commands", default=",".join(NAMES))
    parser.add_argument("--executor", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=2, help="kills at the same time; one GPU takes one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--db", default="db/local.sqlite", help="where the trials are recorded")
    given = parser.parse_args()
    with executors.pick(given.executor) as chosen:
        device = chosen.device()
    print(f"seed {given.seed}, {device.name}", flush=True)
    with Store(given.db) as store, tempfile.TemporaryDirectory(prefix="msbench-faults-") as folder:
        store.add_device(device)
        wanted = [w for w in works(Path(folder) / "template", given.executor) if w.name in given.commands.split(",")]
        failed = run(store, device, wanted, Path(folder), given.kills, given.jobs, given.seed)
    sys.exit(1 if failed else 0)


def run(store: Store, device: Device, wanted: list[Work], folder: Path, kills: int, jobs: int, seed: int) -> int:
    """Kill each work so many times, record every one, and return how many left a trace."""
    created_at, command = datetime.now(UTC).isoformat(), _command()
    places: Queue[Bench] = Queue()
    for number in range(jobs):
        places.put(Bench(folder / f"place-{number}"))
    normal = _normal(places, wanted, jobs)

    def one(work: Work, number: int) -> Kill:
        place = places.get()
        try:
            rng = random.Random(f"{seed} {work.name} {number}")
            return kill(place, work, normal[work.name], number, KINDS[number % 2], rng)
        except Exception as error:
            return Kill(work.name, KINDS[number % 2], "", "", f"{type(error).__name__}: {error}")
        finally:
            places.put(place)

    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        numbered = [(work, number) for number in range(kills) for work in wanted]
        for (work, number), done in zip(numbered, pool.map(one, *zip(*numbered, strict=True)), strict=True):
            failed += bool(done.problem)
            trial = Trial(
                study=Study.FAULTS,
                subject=f"{work.name}, kill {number} of seed {seed}",
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
    print(f"{len(numbered) - failed} of {len(numbered)} kills left no trace", flush=True)
    return failed


def _command() -> str:
    """What to type to repeat this; where its results went is nobody else's business."""
    kept, words = ["python", "-m", "tests.faults.study"], iter(sys.argv[1:])
    for word in words:
        if word == "--db":
            next(words, None)
        elif not word.startswith("--db="):
            kept.append(word)
    return shlex.join(kept)


def _normal(places: Queue[Bench], wanted: list[Work], jobs: int) -> dict[str, Undisturbed]:
    """Every place runs once, so that its cache is warm; one of each work's runs is what the others are compared with."""
    found: dict[str, Undisturbed] = {}
    with ThreadPoolExecutor(jobs) as pool:
        at_hand = [places.get() for _ in range(jobs)]
        for work in wanted:
            found[work.name], *_ = pool.map(undisturbed, at_hand, repeat(work))
        for place in at_hand:
            places.put(place)
    return found


if __name__ == "__main__":
    main()
