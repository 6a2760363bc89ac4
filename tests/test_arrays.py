"""Questions to whole arrays, on either device."""

from __future__ import annotations

import importlib

import pytest

from msbench.arrays import compile_less, every, some


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


@pytest.mark.gpu
def test_reductions_are_those_of_cupy_itself() -> None:
    cupy = importlib.import_module("cupy")
    before = cupy._core.get_reduction_accelerators()
    values = cupy.arange(3 * 2**20, dtype="float64").reshape(3, -1)
    try:
        compile_less(cupy)
        assert cupy._core.get_reduction_accelerators() == []
        sums = (values % 7).sum(axis=1)
    finally:
        cupy._core.set_reduction_accelerators(before)
    assert sums.get().tolist() == (values.get() % 7).sum(axis=1).tolist()


def test_numpy_needs_nothing() -> None:
    compile_less(importlib.import_module("numpy"))
