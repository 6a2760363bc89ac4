"""One kill: start a command, kill it, look at what is left, start it again, and compare with a run that nobody killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench.archive.union import check_files
from msbench.gpu.profile.ncu import SCRATCH
from msbench.scratch import scratch
from tests.faults.works import State, Work, ids, tree

CHECKOUT = Path(__file__).resolve().parents[2]
LIMIT_S = 300.0
_MEMORY = Path("/dev/shm")
KINDS = ("instant", "operation")


@dataclass(frozen=True)
class Undisturbed:
    """A run that nobody killed: how long it took, how many operations it had (by ``killer``), and what it came to."""

    seconds: float
    operations: int
    states: tuple[State, ...]
    """By what the folder started with, which repeats after so many numbers."""


@dataclass(frozen=True)
class Kill:
    """What came of one kill; ``problem`` is empty if it left no trace."""

    command: str
    kind: str
    point: str
    stored: str
    problem: str


class Bench:
    """A place for one command at a time: a folder, a build cache of its own, and the environment that leads there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.here = folder / "here"
        self.cache = folder / "cache"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH")))),
            "MSBENCH_CACHE": str(self.cache),
            "TMPDIR": str(self.temporary),
            "OPENBLAS_NUM_THREADS": "1",
        }

    def prepare(self, work: Work, number: int) -> None:
        """As if nothing had run here, but for what is prepared once for all kernels."""
        for left in (self.here, self.temporary):
            shutil.rmtree(left, ignore_errors=True)
        self.temporary.mkdir()
        for builds in (self.cache / "builds", self.cache / "emulator" / "builds"):
            shutil.rmtree(builds, ignore_errors=True)
        self.here.mkdir()
        work.prepare(self.here, number)

    def start(self, work: Work, counted: tuple[Path, int] | None = None) -> subprocess.Popen[bytes]:
        """The command in a process of its own; ``counted``: under ``killer``, with its file and number."""
        killer = [] if counted is None else [str(counted[0]), str(counted[1])]
        modules = ["msbench" if counted is None else "tests.faults.killer"]
        if work.in_order:
            modules.insert(0, "tests.faults.in_order")
        with (self.folder / "said").open("wb") as said:
            return subprocess.Popen(
                [sys.executable, "-m", *modules, *killer, *work.arguments(self.here)],
                cwd=self.here, env=self._environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip

    def said(self) -> str:
        """The end of what the last command printed."""
        return (self.folder / "said").read_text(errors="replace")[-1000:].strip()

    def survivors(self) -> list[str]:
        """Processes that this place's commands started and that still run. They carry its name in their environment."""
        mark = os.fsencode(self.folder) + b"/"
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes() and "\nState:\tZ" not in (process / "status").read_text():
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80])
            except OSError:
                continue
        return found


def undisturbed(place: Bench, work: Work, runs: int = 2) -> Undisturbed:
    """Run it to its end from each of its beginnings and so many times at least, the first time counting operations."""
    states, seconds, file = [], [], place.folder / "operations"
    for number in range(-(-runs // work.beginnings) * work.beginnings):
        place.prepare(work, number)
        begun = time.monotonic()
        process = place.start(work, (file, 0) if number == 0 else None)
        code = process.wait(LIMIT_S)
        seconds.append(time.monotonic() - begun)
        if code != 0:
            raise AssertionError(f"{work.name} does not work undisturbed: exit code {code}. {place.said()}")
        states.append(work.state(place.here))
    return Undisturbed(min(seconds), int(file.read_text().split()[0]), tuple(states))


def kill(place: Bench, work: Work, normal: Undisturbed, number: int, kind: str, rng: random.Random) -> Kill:
    """Kill it once, at a random instant or just before a random operation."""
    limit, in_memory = normal.seconds, {p.name for p in _MEMORY.glob("tmp*")}
    while True:
        place.prepare(work, number)
        before = _look(place, work)
        seen: set[tuple[str, str]] = set()
        with _watching(place, work, seen):
            if kind == "instant":
                limit = rng.uniform(0, limit)
                code = _killed_after(place.start(work), limit)
                point = f"after {limit:.3f} s of {normal.seconds:.1f} s"
            else:
                file, at = place.folder / "operations", rng.randint(1, normal.operations)
                code = place.start(work, (file, at)).wait(LIMIT_S)
                reached, _, name = file.read_text().partition(" ")
                point = f"before operation {reached} of {normal.operations}: {name}"
        if code == -signal.SIGKILL:
            break
        if code != 0:
            return Kill(work.name, kind, point, "", f"exit code {code}, not killed: {place.said()}")
    stored, problem = _left(place, work, before, seen, normal.states[number % len(normal.states)])
    if not problem:
        problem = _goes_on(place, work, normal.states[number % len(normal.states)], in_memory)
    return Kill(work.name, kind, point, stored, problem)


def _killed_after(process: subprocess.Popen[bytes], seconds: float) -> int:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        return process.wait(LIMIT_S)


class _watching:
    """Keeps a list of what any reader could see in the database meanwhile: that is committed."""

    def __init__(self, place: Bench, work: Work, seen: set[tuple[str, str]]) -> None:
        # A merge ends by closing its log, for which it needs the file to itself: it is one transaction anyway.
        self._file = place.here / work.database if work.name in ("optimize", "bench") else None
        self._seen = seen
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while self._file is not None and not self._over.wait(0.05):
            if self._file.exists():
                self._seen |= ids(self._file)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _look(place: Bench, work: Work) -> Any:
    return ids(place.here / work.database) if work.database else tree(place.here / "site")


def _left(place: Bench, work: Work, before: Any, seen: set[tuple[str, str]], final: State) -> tuple[str, str]:
    """What the kill left behind, in words, and what is wrong with that."""
    deadline = time.monotonic() + 5
    while (survivors := place.survivors()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if survivors:
        return "", f"{len(survivors)} processes survive: {survivors[0]}"
    now = _look(place, work)
    if not work.database:
        which = "the old site" if now == before else "the new site" if now == final["site"] else ""
        return (which or "a site", "" if which else f"a site of {len(now)} files, neither the old nor the new one")
    stored = f"{len(now)} rows, {len(now - before)} of them new"
    lost = (before | seen) - now
    if lost:
        return stored, f"{len(lost)} rows are lost: {sorted(lost)[:3]}"
    if (
        work.name == "merge"
        and len(now - before) > 0
        and {k: len(v) for k, v in _rows(place, work).items()} != {k: len(v) for k, v in final["rows"].items()}
    ):
        return stored, "a part of a merge is visible"
    problems = _problems(place, work)
    return stored, problems[0] if problems else ""


def _rows(place: Bench, work: Work) -> dict[str, list[Any]]:
    from tests.faults.works import rows

    return rows(place.here / work.database)


def _problems(place: Bench, work: Work) -> list[str]:
    """What ``msbench db check`` says of the database; one that holds no schema yet holds nothing wrong."""
    file = place.here / work.database
    if not file.exists() or not _rows(place, work):
        return []
    return check_files([file])


def _goes_on(place: Bench, work: Work, final: State, in_memory: set[str]) -> str:
    """Start it again and compare; returns what is wrong. ``in_memory``: names that were there before."""
    code = place.start(work).wait(LIMIT_S)
    if code != 0:
        return f"the next start ends with exit code {code}: {place.said()}"
    for name, value in work.state(place.here).items():
        if value != final[name]:
            return (
                f"after the next start the {name} differ from an uninterrupted run's: {_difference(value, final[name])}"
            )
    if work.database and (problems := check_files([place.here / work.database])):
        return f"after the next start: {problems[0]}"
    if left := {p.name for p in place.here.iterdir()} - work.left:
        return f"left behind: {', '.join(sorted(left))}"
    # As the next compilation and the next profiles do.
    with scratch(place.cache / "tmp"), scratch(place.temporary, SCRATCH):
        pass
    left = {p.name for d in (place.cache / "tmp", place.temporary) for p in d.iterdir()}
    left |= {p.name for p in _MEMORY.glob("tmp*")} - in_memory
    if left:
        return f"temporary files left behind: {', '.join(sorted(left))}"
    return ""


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict):
        different = [k for k in sorted({*found, *wanted}) if found.get(k) != wanted.get(k)]
        return f"{len(different)} parts, such as {different[0]}"
    found, wanted = list(found), list(wanted)
    if len(found) != len(wanted):
        return f"{len(found)} instead of {len(wanted)}"
    at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
    return f"{str(found[at])[:200]} instead of {str(wanted[at])[:200]}"
