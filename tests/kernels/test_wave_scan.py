"""msbench_wave_scan.cuh: running sums of arrays of any length and start, in tiles that few blocks take in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.building import TYPES, bf16_bits, called, floats

SOURCE = """
#include <msbench_wave_scan.cuh>

EXPORTED scan(scalar_t* x, scalar_t* y, void* workspace, int64_t bytes, int64_t count, int64_t start) {
    if (size_t(bytes) < msbench::wave_scan_bytes<scalar_t>(count)) return 1;
    return msbench::wave_scan(x + start, y + start, count, int(start), workspace, nullptr);
}
"""
SPACE = 8  # elements on either side that stay as they are


def scanned(scalar: str, x: Any, start: int, times: int = 1) -> Any:
    """y around and at the sums of ``x``, behind ``start`` elements; neither workspace nor y is clean before."""
    count = x.size - start
    y = np.full(x.size + SPACE, 7, x.dtype)
    workspace = np.full(8192, 0xFF, np.uint8)
    _, y, _ = called(scalar, SOURCE, "scan", x, y, workspace, workspace.size, count, start, times=times)
    np.testing.assert_array_equal(y[:start], 7)
    np.testing.assert_array_equal(y[x.size :], 7)
    return y[start : x.size]


def integers(count: int, scalar: str) -> Any:
    """Whose sums stay small, so that bf16 holds them, too."""
    steps = np.diff(np.random.default_rng(count).integers(-99, 100, count + 1))
    return steps.astype(np.float32) if scalar == "float" else bf16_bits(steps)


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("count", [1, 5, 1000, 65536, 65537, 300_001, 1_000_003])
@pytest.mark.parametrize("scalar", TYPES)
def test_every_element_is_the_sum_of_all_before(scalar: str, count: int, start: int) -> None:
    x = integers(count + start, scalar)
    expected = np.cumsum(floats(x)[start:])
    np.testing.assert_array_equal(floats(scanned(scalar, x, start, times=2)), expected)


@pytest.mark.parametrize("scalar", TYPES)
def test_what_is_not_finite_reaches_only_what_follows(scalar: str) -> None:
    count = 400_000
    x = floats(integers(count, scalar)).astype(np.float32)
    x[123_456], x[345_678] = np.inf, -np.inf
    given = x if scalar == "float" else (x.view(np.uint32) >> 16).astype(np.uint16)
    with np.errstate(invalid="ignore"):
        expected = np.cumsum(x, dtype=np.float64)
    np.testing.assert_array_equal(floats(scanned(scalar, given, 0)), expected)
