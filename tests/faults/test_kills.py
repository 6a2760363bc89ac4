"""A small sample of ``python -m tests.faults.study``: real commands, killed, go on to the same end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from msbench import emulator
from tests import turns
from tests.faults.kills import KINDS, Bench, Undisturbed, kill, undisturbed
from tests.faults.works import NAMES, Work, works


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One place for all. What every kernel needs is compiled already, and no part of what is killed."""
    place = Bench(tmp_path_factory.mktemp("place"))
    prepared = emulator.find().prepared(sanitize=False).prefix.parent
    (place.cache / "emulator").mkdir(parents=True)
    (place.cache / "emulator" / prepared.name).symlink_to(prepared)
    return place


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Work]]:
    yield {work.name: work for work in works(tmp_path_factory.mktemp("template"), "cpu")}


@pytest.mark.parametrize(
    "name",
    [name for index, name in enumerate(NAMES) if turns.part() is None or (turns.part() + index) % len(NAMES) == 0],
)
def test_a_killed_command_goes_on_to_the_same_end(place: Bench, known: dict[str, Work], name: str) -> None:
    """Killed once, each part in its own way and at its own instant, a quarter of the commands in each."""
    work, part = known[name], turns.part()
    normal = undisturbed(place, work)
    numbers = range(len(KINDS)) if part is None else [part // len(NAMES) % len(KINDS)]
    for number in numbers:
        done = kill(place, work, normal, number, KINDS[number], random.Random(f"{name} {part}"))
        assert not done.problem, done


@pytest.mark.parametrize("what", ["another end", "a file too many"])
def test_what_a_kill_can_break_is_noticed(place: Bench, known: dict[str, Work], what: str) -> None:
    work = known["merge"]
    if what == "another end":
        normal, says = Undisturbed(0.3, 1, ({"rows": {}},)), "differ from an uninterrupted run's"
    else:
        work, says = replace(work, left=frozenset({"work.sqlite"})), "left behind: theirs.sqlite"
        normal = undisturbed(place, work, runs=1)
    done = kill(place, work, normal, 0, "instant", random.Random(1))
    assert says in done.problem, done
