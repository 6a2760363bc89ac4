"""What sorts and selects: msbench_scan.cuh, msbench_ordered_keys.cuh and msbench_select.cuh."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SCAN = """
#include <msbench_scan.cuh>

__global__ void scan(const int* x, int* before, int* kept) {
    __shared__ int list[1024], count;
    if (threadIdx.x == 0) count = 0;
    const auto sums = msbench::block_scan(x[threadIdx.x]);
    before[threadIdx.x] = sums.before;
    if (threadIdx.x == 0) before[blockDim.x] = sums.total;
    __syncthreads();
    msbench::append(x[threadIdx.x] % 3 == 0, x[threadIdx.x], list, &count, 1024);
    __syncthreads();
    kept[threadIdx.x] = int(threadIdx.x) < count ? list[threadIdx.x] : -1;
}
EXPORTED run(int* x, int* before, int* kept, int64_t n) {
    scan<<<1, unsigned(n)>>>(x, before, kept);
    return cudaGetLastError();
}
"""

RANK = """
#include <msbench_ordered_keys.cuh>

__global__ void rank(const float* x, float* y, int n) {
    __shared__ alignas(16) unsigned keys[1024];
    keys[threadIdx.x] = int(threadIdx.x) < n ? msbench::ordered_key(x[threadIdx.x]) : msbench::kMissingKey;
    const unsigned place = msbench::rank_among(keys, n), index = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.x < 32 && int(index) < n) y[place] = msbench::value_of_ordered(keys[index]);
}
EXPORTED run(float* x, float* y, int64_t n) {
    rank<<<unsigned(msbench::ceil_div(n, 32)), 1024>>>(x, y, int(n));
    return cudaGetLastError();
}
"""

SELECT = """
#include <msbench_select.cuh>

__global__ void choose(const int* x, int* kept, int n, int k, int most) {
    __shared__ msbench::Key list[3000];
    __shared__ int count;
    for (int i = threadIdx.x; i < n; i += 1024) list[i] = msbench::Key(x[i]) << 32 | unsigned(i + 1);
    if (threadIdx.x == 0) count = n;
    msbench::shrink(list, &count, k, most);
    for (int i = threadIdx.x; i < count; i += 1024) kept[i] = int(list[i] >> 32);
}
EXPORTED run(int* x, int* kept, int64_t n, int64_t k, int64_t most) {
    choose<<<1, 1024>>>(x, kept, int(n), int(k), int(most));
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("n", [32, 96, 1024])
def test_a_block_s_running_sums_and_list(n: int) -> None:
    x = np.random.default_rng(n).integers(0, 100, n).astype(np.int32)
    _, before, kept = called("float", SCAN, "run", x, np.zeros(n + 1, np.int32), np.zeros(n, np.int32), n)
    np.testing.assert_array_equal(before, np.concatenate(([0], np.cumsum(x))))
    wanted = x[x % 3 == 0]
    np.testing.assert_array_equal(np.sort(kept[: wanted.size]), np.sort(wanted))
    assert (kept[wanted.size :] == -1).all()


@pytest.mark.parametrize("n", [1, 31, 32, 33, 777, 1024])
def test_all_pairs_sort_ties_zeros_and_infinities(n: int) -> None:
    x = np.random.default_rng(n).choice([-np.inf, -1.5, -0.0, 0.0, 1e-40, 2.0, np.inf, np.nan], n).astype(np.float32)
    _, y = called("float", RANK, "run", x, np.zeros_like(x), n)
    np.testing.assert_array_equal(y, np.sort(x))
    zeros = np.signbit(y[y == 0])
    assert (zeros == np.sort(zeros)[::-1]).all()  # -0 before 0


@pytest.mark.parametrize(
    ("n", "k", "most"), [(3000, 128, 128), (3000, 1, 1), (3000, 100, 512), (200, 128, 128), (50, 50, 128)]
)
@pytest.mark.parametrize("order", [1, -1, 0])
def test_pivots_leave_the_largest(n: int, k: int, most: int, order: int) -> None:
    x = (
        np.random.default_rng(k).permutation(n).astype(np.int32)
        if order == 0
        else np.arange(n, dtype=np.int32)[::order].copy()
    )
    _, kept = called("float", SELECT, "run", x, np.full(n, -1, np.int32), n, k, most)
    left = kept[kept >= 0]
    assert min(k, n) <= left.size <= most
    np.testing.assert_array_equal(np.sort(left)[-k:], np.arange(n - k, n))
