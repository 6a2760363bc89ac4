"""msbench_pool_lanes.cuh and msbench_window_pairs.cuh: every window's largest, at the edges of warps and images, with padding and NaN.

In bf16 only: fp32 takes an instruction that the cpu executor does not know.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import bf16_bits, called, floats

SOURCE = """
#include <msbench_pool_lanes.cuh>

using namespace msbench;

template <int K, int S, int V, int R>
bool taken(scalar_t* x, scalar_t* y, const PoolShape& z, int64_t k, int64_t s, int64_t p) {
    if (k != K || s != S) return false;
    return p ? pool_by_lanes<LanePlan<K, S, 1, V, R>>(x, y, z, nullptr) : pool_by_lanes<LanePlan<K, S, 0, V, R>>(x, y, z, nullptr);
}
EXPORTED run(scalar_t* x, scalar_t* y, int64_t images, int64_t H, int64_t W, int64_t k, int64_t s, int64_t p) {
    const PoolShape z{int(images), int(H), int(W), int((H + 2 * p - k) / s + 1), int((W + 2 * p - k) / s + 1)};
    const bool done = taken<2, 1, 2, 4>(x, y, z, k, s, p) || taken<3, 1, 4, 2>(x, y, z, k, s, p) || taken<4, 2, 2, 2>(x, y, z, k, s, p)
                   || taken<3, 2, 4, 1>(x, y, z, k, s, p);
    return done ? cudaGetLastError() : cudaErrorInvalidValue;
}
"""


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("k", "stride"), [(2, 1), (3, 1), (4, 2), (3, 2)])
@pytest.mark.parametrize(("images", "H", "W"), [(2, 37, 256), (3, 5, 8), (1, 9, 136)])
def test_every_window(images: int, H: int, W: int, k: int, stride: int, padding: int) -> None:
    rng = np.random.default_rng(W)
    x = floats(bf16_bits(rng.uniform(-1, 1, (images, H, W)).astype(np.float32)))
    x[0, 2, 3] = np.nan
    x[0, :, -2:] = -np.inf
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(1, 2))[:, ::stride, ::stride]
    want = windows.max(axis=(3, 4))  # NaN where one is
    _, y = called(
        "__nv_bfloat16", SOURCE, "run", bf16_bits(x), np.zeros(want.size, np.uint16), images, H, W, k, stride, padding
    )
    np.testing.assert_array_equal(floats(y).reshape(want.shape), want)
