"""Who is to blame when a GPU's memory runs out."""

from __future__ import annotations

import pytest

from msbench.harness.gpu_memory import MemoryWatch

ALL = 100 << 30


@pytest.mark.parametrize(
    ("before", "after", "processes", "blamed"),
    [
        (60, 50, {}, False),  # it takes much, but there is enough
        (60, 1, None, True),
        (60, 1, {}, True),  # NVML knows other ids
        (60, 1, {7: 59 << 30}, True),
        (60, 1, {7: 2 << 30, 8: 57 << 30}, False),  # another one did it
        (5, 1, None, False),  # little was left before: the case is large
    ],
)
def test_who_is_blamed(before: int, after: int, processes: dict[int, int] | None, blamed: bool) -> None:
    free = iter([before << 30, after << 30])
    watch = MemoryWatch(lambda: (next(free), ALL), lambda: processes)
    watch.begin()
    assert (watch(7) is not None) == blamed


def test_a_row_of_short_calls_asks_now_and_then() -> None:
    now, asked = [10.0], []
    watch = MemoryWatch(lambda: asked.append(now[0]) or (ALL, ALL), dict, lambda: now[0])  # type: ignore[func-returns-value]
    for seconds in (0.0, 0.3, 0.1, 0.2, 1.0):
        now[0] += seconds
        watch.begin()
    assert asked == pytest.approx([10.0, 10.6, 11.6])


def test_without_nvml_nobody_is() -> None:
    watch = MemoryWatch(lambda: None, lambda: None)
    watch.begin()
    assert watch(7) is None
