"""Every array has its bytes to itself, and whatever is written elsewhere shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.harness.arena import ALIGNMENT, GUARD, REDZONE, Arena, Damage, Layout, Poison
from msbench.harness.inputs import generate
from msbench.spec import Precision, Task
from tests.harness.fakes import OPERATOR, FakeExecutor, case

POISON = Poison(0xFF, 0xC3)


@pytest.fixture(params=[False, True], ids=["aligned", "misaligned"])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    layout = Layout.of(Task(OPERATOR, Precision.BF16).at(case(100)), misaligned=request.param)
    with FakeExecutor().arena(layout) as made:
        made.poison(POISON)
        yield made


@given(n=st.integers(1, 10_000), precision=st.sampled_from(Precision), misaligned=st.booleans())
def test_layout(n: int, precision: Precision, misaligned: bool) -> None:
    layout = Layout.of(Task(OPERATOR, precision).at(case(n)), misaligned=misaligned)
    assert [s.name for s in layout.slots] == ["x", "index", "y", "rank"]
    assert [s.name for s in layout.inputs] == ["x", "index"]
    assert layout.offsets == tuple(s.offset for s in layout.slots)
    assert all(s.nbytes == n * (4 if s.dtype == np.int32 else precision.itemsize) for s in layout.slots)
    ends = [0, *(s.end for s in layout.slots)]
    starts = [*layout.offsets, layout.nbytes]
    assert all(start - end >= REDZONE for start, end in zip(starts, ends, strict=True))
    assert all(s.offset % s.dtype.itemsize == 0 for s in layout.slots)
    if misaligned:
        assert all(s.offset % 16 for s in layout.slots)
        assert len({s.offset % 16 for s in layout.slots}) > 1
    else:
        assert all(s.offset % ALIGNMENT == 0 for s in layout.slots)
    covered = sum(end - start for start, end, _, _ in layout.redzones()) + sum(s.nbytes for s in layout.slots)
    assert covered == layout.nbytes


def test_views_share_the_memory(arena: Arena) -> None:
    given_inputs = generate(Task(OPERATOR, Precision.BF16).at(case(100)), 1, np)
    arena.write_inputs(given_inputs)
    for name, values in given_inputs.items():
        assert arena.view(name).dtype == values.dtype
        assert arena.view(name).tobytes() == values.tobytes()
    assert arena.changed_inputs(given_inputs) == ()
    arena.view("y")[...] = 2
    assert arena.raw("y").tobytes() == np.full(100, 2, arena.view("y").dtype).tobytes()
    assert arena.damaged_redzones() == ()


def test_poison_fills_outputs_alone(arena: Arena) -> None:
    given_inputs = generate(Task(OPERATOR, Precision.BF16).at(case(100)), 1, np)
    arena.write_inputs(given_inputs)
    arena.poison(Poison(0x5D, 0x61))
    assert set(arena.raw("y").tolist()) == {0x5D}
    assert set(arena.raw("rank").tolist()) == {0x61}
    assert arena.changed_inputs(given_inputs) == ()


@pytest.mark.parametrize("chunk", [1 << 26, 64])
def test_changed_inputs_are_told_by_element(arena: Arena, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msbench.harness.arena._CHUNK", chunk)
    given_inputs = generate(Task(OPERATOR, Precision.BF16).at(case(100)), 1, np)
    arena.write_inputs(given_inputs)
    arena.view("index")[[27, 50]] ^= 0x0101
    assert arena.changed_inputs(given_inputs) == (("index", 27, 4),)


@given(data=st.data(), misaligned=st.booleans())
def test_any_byte_outside_the_arrays_is_seen(data: st.DataObject, misaligned: bool) -> None:
    layout = Layout.of(Task(OPERATOR, Precision.FP32).at(case(33)), misaligned=misaligned)
    arena = FakeExecutor().arena(layout)
    arena.poison(POISON)
    start, end, before, after = data.draw(st.sampled_from(list(layout.redzones())))
    at = data.draw(st.integers(start, end - 1))
    arena.buffer[at] = data.draw(st.integers(0, 255).filter(lambda value: value != GUARD))
    (damage,) = arena.damaged_redzones()
    assert damage.count == 1
    distances = {(before, "after"): at - start, (after, "before"): end - 1 - at}
    assert distances[(damage.array, damage.side)] == damage.distance
    assert damage.distance == min(d for (name, _), d in distances.items() if name)


def test_damage_is_told_by_the_nearest_array(arena: Arena) -> None:
    slot = arena.layout["y"]
    arena.buffer[slot.end + 2 : slot.end + 6] = 0
    arena.buffer[slot.offset - 1] = 0
    assert arena.damaged_redzones() == (Damage("y", "before", 0, 1), Damage("y", "after", 2, 4))
    arena.poison(POISON)
    assert arena.damaged_redzones() == ()


@pytest.mark.parametrize("chunk", [1 << 26, 1000])
def test_what_lies_behind_the_layout_is_guarded_too(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msbench.harness.arena._CHUNK", chunk)
    layout = Layout.of(Task(OPERATOR, Precision.FP32).at(case(8)))
    memory = np.zeros(layout.nbytes + 3000 + ALIGNMENT, np.uint8)
    arena = Arena(layout, memory[-memory.ctypes.data % ALIGNMENT :][: layout.nbytes + 3000], np)
    inputs = generate(Task(OPERATOR, Precision.FP32).at(case(8)), 1, np)
    arena.write_inputs(inputs)
    arena.poison(POISON)
    assert arena.intact(inputs)
    arena.buffer[-1] = 0
    assert not arena.intact(inputs)
    last = layout.slots[-1]
    assert arena.damaged_redzones() == (Damage(last.name, "after", layout.nbytes + 2999 - last.end, 1),)


def test_a_buffer_that_is_too_small_or_unaligned_is_refused() -> None:
    layout = Layout.of(Task(OPERATOR, Precision.FP32).at(case(8)))
    memory = np.zeros(layout.nbytes + 2 * ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    Arena(layout, memory[start:], np)
    with pytest.raises(ValueError, match="256-byte boundary"):
        Arena(layout, memory[start + 4 :], np)
    with pytest.raises(ValueError, match="needs"):
        Arena(layout, memory[start : start + layout.nbytes - 1], np)


def test_memory_is_released_once() -> None:
    released: list[int] = []
    layout = Layout.of(Task(OPERATOR, Precision.FP32).at(case(8)))
    made = FakeExecutor().arena(layout)
    arena = Arena(layout, made.buffer, np, release=lambda: released.append(1))
    with arena:
        pass
    arena.close()
    assert released == [1]
