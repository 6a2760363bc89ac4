"""msbench_math.cuh: relative accuracy near zero, and infinities where float64 has them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_math.cuh>

__global__ void of_one(const float* x, float* y, int64_t count) {
    for (int64_t i = threadIdx.x; i < count; i += 32) y[i] = msbench::expm1_negative(x[i]);
}
__global__ void of_two(const float* gate, const float* value, float* y, float factor, int64_t count) {
    for (int64_t i = threadIdx.x; i < count; i += 32) y[i] = msbench::gated(gate[i], value[i], factor);
}
EXPORTED expm1_of(float* x, float* y, int64_t count) {
    of_one<<<1, 32>>>(x, y, count);
    return cudaGetLastError();
}
EXPORTED gated_of(float* gate, float* value, float* y, int64_t count, float beta) {
    of_two<<<1, 32>>>(gate, value, y, -beta * msbench::kLog2e, count);
    return cudaGetLastError();
}
"""


def test_expm1_is_accurate_relative_to_itself() -> None:
    x = -np.concatenate([2.0 ** np.linspace(-60, 7, 4000), [0.5, np.inf]]).astype(np.float32)
    _, y = called("float", SOURCE, "expm1_of", x, np.zeros_like(x), len(x))
    expected = np.expm1(x.astype(np.float64))
    assert np.max(np.abs(y - expected) / np.abs(expected)) < 8 * 2.0**-24


@pytest.mark.parametrize("beta", [0.25, 1.0, 4.0])
def test_a_gate_is_infinite_or_nan_where_float64_is(beta: float) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, 1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan])
    gate = np.concatenate([special, -np.linspace(20, 700, 50) / beta]).astype(np.float32)
    gate, value = (v.reshape(-1).copy() for v in np.meshgrid(gate, special.astype(np.float32)))
    *_, y = called("float", SOURCE, "gated_of", gate, value, np.zeros_like(gate), len(gate), beta)
    with np.errstate(all="ignore"):
        x, v = gate.astype(np.float64), value.astype(np.float64)
        expected = x * v / (1 + np.exp(-beta * x))
        slack = 2e-5 * np.abs(expected) + 2.0**-126 * (np.abs(x) + 1) * (np.abs(v) + 1)
        within = np.abs(y - expected) <= slack
    beyond = np.abs(expected) > 3.4e38  # of fp32; a product of two large finite numbers may overflow on the way
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(y)[beyond], (expected > 0)[beyond])
    assert np.all(within | beyond | np.isnan(expected))
