"""msbench_light_sort.cuh: keys of any upper halves, where few meet at a place, where many do, and where nearly all are equal."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_light_sort.cuh>

using Shared = msbench::LightShared<64, 16>;
__global__ void sort(const unsigned* keys, unsigned* y, int n, unsigned first, const uint2* bin) {
    __shared__ Shared shared;
    msbench::sort_light(keys, y, n, first, bin, shared, [] {});
}
EXPORTED run(unsigned* keys, unsigned* y, unsigned* bin, int64_t n, int64_t first) {
    sort<<<1, 64>>>(keys, y, int(n), unsigned(first), reinterpret_cast<const uint2*>(bin));
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("n", [1, 2, 31, 256, 700, 1023, 1024])
@pytest.mark.parametrize("kinds", [0, 400, 30, 2, 1])
def test_any_crowd_is_put_in_order(n: int, kinds: int) -> None:
    rng = np.random.default_rng(n + kinds)
    keys = ((rng.integers(7, 19, n) << 16) + rng.integers(0, 65536, n)).astype(np.uint32)
    if kinds:
        keys = rng.choice(keys, kinds)[rng.integers(0, kinds, n)]
    if kinds == 30:
        keys[0], keys[-1] = 0xFFFFFFFF, 0  # what stands for what is behind and before all keys
    first, counts = 5, np.bincount(keys >> 16, minlength=65536)
    bins = np.stack((first + np.cumsum(counts) - counts, counts), axis=1).astype(np.uint32)
    _, y, _ = called("float", SOURCE, "run", keys, np.full(n + 8, 7, np.uint32), bins, n, first)
    np.testing.assert_array_equal(y[n:], 7)
    ordered = np.sort(keys)
    np.testing.assert_array_equal(y[:n], np.where(ordered >> 31, ordered ^ 0x80000000, ~ordered))
