"""msbench_plain_tile.cuh: a tile whose lines end within it, K that fills no stage, and numbers that are not finite."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_plain_tile.cuh>

__global__ void tile(const float* A, const float* B, float* C, int M, int N, int K, int from, int end) {
    extern __shared__ float stages[];
    const int group = threadIdx.x / 128, own = threadIdx.x % 128, lane = own % 32;
    float sums[64];
    const auto load = [&](float (&x)[msbench::plain_tile::kDepth], int k) {
        for (int i = 0; i < msbench::plain_tile::kDepth; ++i) {
            x[i] = k + i >= end || own >= (group ? N : M) ? 0.0f : group ? B[(k + i) * N + own] : A[own * K + k + i];
        }
    };
    msbench::plain_tile::multiply(sums, stages, group, own, from, end, load, [] { __syncthreads(); });
    for (int e = 0; e < 64; ++e) {
        const int row = group * 64 + own / 32 * 16 + e / 2 % 2 * 8 + lane / 4, column = e / 4 * 8 + lane % 4 * 2 + e % 2;
        if (row < M && column < N) C[row * N + column] = sums[e];
    }
}

EXPORTED run(const float* A, const float* B, float* C, int64_t M, int64_t N, int64_t K, int64_t from, int64_t end) {
    const cudaError_t error = cudaFuncSetAttribute(tile, cudaFuncAttributeMaxDynamicSharedMemorySize, msbench::plain_tile::kBytes);
    if (error != cudaSuccess) return int(error);
    tile<<<1, 256, msbench::plain_tile::kBytes>>>(A, B, C, int(M), int(N), int(K), int(from), int(end));
    return int(cudaGetLastError());
}
"""


@pytest.mark.parametrize(
    "M, N, K, start, end", [(128, 128, 64, 0, 64), (128, 128, 1, 0, 1), (77, 101, 70, 0, 70), (128, 5, 200, 96, 161)]
)
def test_sums_of_integers_are_exact(M: int, N: int, K: int, start: int, end: int) -> None:
    rng = np.random.default_rng(K)
    A, B = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((M, K), (K, N)))
    *_, C = called("float", SOURCE, "run", A, B, np.full((M, N), 77, np.float32), M, N, K, start, end)
    np.testing.assert_array_equal(C, A[:, start:end] @ B[start:end])


def test_what_is_not_finite_stays_in_its_lines() -> None:
    A, B = np.ones((40, 50), np.float32), np.ones((50, 30), np.float32)
    A[3, 7], A[4, 0], B[49, 2], B[9, 5] = np.inf, -np.inf, np.nan, 3e38
    A[:, 9] = 2
    with np.errstate(all="ignore"):
        expected = (A.astype(float) @ B.astype(float)).astype(np.float32)
    *_, C = called("float", SOURCE, "run", A, B, np.zeros((40, 30), np.float32), 40, 30, 50, 0, 50)
    np.testing.assert_array_equal(C, expected)
