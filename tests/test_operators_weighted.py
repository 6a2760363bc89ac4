"""Sums of weighted arrays, and their errors, are what the definitions say, on the processor and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench.bounds import CONFIDENCE, FP32_ROUNDOFF
from msbench.weighted import weighted_sum


def windows(xp: Any, seed: int, count: int, length: int) -> list[tuple[Any, Any]]:
    """Overlapping pieces of one array, some elements of which are zero, with a weight each."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=count + length - 1)
    values[rng.random(values.size) < 0.2] = 0
    weights, array = xp.asarray(rng.normal(size=count)), xp.asarray(values)
    return [(weights[i], array[i : i + length]) for i in range(count)]


@given(st.integers(0, 99), st.integers(1, 40), st.integers(1, 50))
def test_sums_and_errors_are_those_of_all_products_at_once(seed: int, count: int, length: int) -> None:
    terms = windows(np, seed, count, length)
    products = np.array([weight * array for weight, array in terms])
    total, error = weighted_sum(np, iter(terms), count, (length,))
    np.testing.assert_allclose(total, products.sum(axis=0), rtol=0, atol=1e-13)
    step = -(-count // 8)
    partial = [products[:end].sum(axis=0) for end in (*range(step, count, step), count)]
    largest = np.abs(partial).max(axis=0) + np.sqrt((products**2).sum(axis=0))
    expected = CONFIDENCE * FP32_ROUNDOFF * np.sqrt((products != 0).sum(axis=0)) * largest
    np.testing.assert_allclose(error, expected, rtol=1e-12)


@pytest.mark.gpu
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 99), st.integers(1, 40), st.integers(1, 50))
def test_a_gpu_gives_the_same(seed: int, count: int, length: int) -> None:
    cupy = pytest.importorskip("cupy")
    here, there = (windows(xp, seed, count, length) for xp in (np, cupy))
    total, error = weighted_sum(np, here, count, (length,))
    total_there, error_there = weighted_sum(cupy, there, count, (length,))
    np.testing.assert_allclose(total_there.get(), total, rtol=0, atol=1e-13)
    np.testing.assert_allclose(error_there.get(), error, rtol=1e-12)
