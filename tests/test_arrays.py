"""Questions to whole arrays, on either device."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from msbench.arrays import count, every, some


@pytest.mark.parametrize("module", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 1000), (2**21 + 1,)])
def test_one_element_of_many_tells(module: str, shape: tuple[int, ...]) -> None:
    xp = importlib.import_module(module)
    mask = xp.ones(shape, dtype=bool)
    assert bool(every(mask, xp)) and bool(some(mask, xp)) is bool(mask.size)
    assert bool(every(~mask, xp)) is not bool(mask.size) and not bool(some(~mask, xp))
    if mask.size > 1:
        mask.reshape(-1)[-1] = False
        assert not bool(every(mask, xp)) and bool(some(mask, xp))
        assert bool(some(~mask, xp))
    assert every(mask, xp).shape == () and every(mask, xp).dtype == bool


@pytest.mark.parametrize("module", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_some_and_how_many_along_an_axis(module: str, axis: int) -> None:
    xp = importlib.import_module(module)
    numbers = (np.arange(2 * 3000 * 7) % 3001 < 2).reshape(2, 3000, 7)
    mask, counted = xp.asarray(numbers), numbers.sum(axis)
    found = count(mask, xp, axis)
    assert found.dtype == "float64" and found.tolist() == counted.tolist()
    assert some(mask, xp, (axis,)).tolist() == (counted > 0).tolist()
    others = tuple(n for n in range(3) if n != axis % 3)
    assert some(mask, xp, others).tolist() == numbers.any(others).tolist()
