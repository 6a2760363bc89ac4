"""The parts of the costly tests are everything together, and the commit names one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import turns

NAMES = [f"kernel {number}" for number in range(100)]


def test_each_is_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for part in range(turns.PARTS):
        monkeypatch.setenv(turns.VARIABLE, str(part))
        shared.update(turns.share(NAMES))
        named.update(filter(turns.has_turn, NAMES))
        assert len(turns.share(NAMES[: turns.PARTS + 1])) in (1, 2)
    assert shared == named == Counter(NAMES)


def test_each_part_has_one_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    few: Counter[str] = Counter()
    for part in range(turns.PARTS):
        monkeypatch.setenv(turns.VARIABLE, str(part))
        assert turns.share(NAMES, least=1) == turns.share(NAMES)
        assert turns.share([], least=1) == []
        few.update(turns.share(NAMES[:3], least=1))
    assert few.keys() == set(NAMES[:3]) and few.total() == turns.PARTS


def test_all_are_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, "all")
    assert turns.share(NAMES) == [*filter(turns.has_turn, NAMES)] == NAMES


def test_all_parts_together_try_as_many_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, "all")
    assert turns.examples(25) == 25
    monkeypatch.setenv(turns.VARIABLE, "1")
    assert turns.examples(3 * turns.PARTS - 1) == 3


def test_the_commit_names_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, turns.of_the_commit())
    assert turns.part() in range(turns.PARTS)


def test_a_part_that_there_is_not_is_no_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, str(turns.PARTS))
    with pytest.raises(ValueError, match="range"):
        turns.share(NAMES)
