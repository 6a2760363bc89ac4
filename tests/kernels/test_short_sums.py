"""msbench_short_sums.cuh: sizes around a block's and around 64 k, results that start anywhere, and no multiplication that is skipped."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_short_sums.cuh>

struct Rows {
    const float* data;
    int count, K;
    __device__ const float* at(int n, int k) const { return data + n * K + k; }
};
EXPORTED run(float* A, float* B, float* C, int64_t M, int64_t N, int64_t K, int64_t start) {
    return msbench::short_sums::launch(Rows{A, int(M), int(K)}, Rows{B, int(N), int(K)}, C + start, nullptr);
}
"""


@pytest.mark.parametrize(
    "M, N, K", [(1, 1, 4), (128, 64, 64), (127, 63, 60), (129, 65, 68), (130, 68, 128), (257, 7, 132), (5, 200, 256)]
)
@pytest.mark.parametrize("start", [0, 1])
def test_products_of_integers_are_exact_and_nothing_else_is_written(M: int, N: int, K: int, start: int) -> None:
    rng = np.random.default_rng(M * N)
    A, B = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((M, K), (N, K)))
    *_, C = called("float", SOURCE, "run", A, B, np.full(M * N + 8, 77, np.float32), M, N, K, start)
    np.testing.assert_array_equal(C[start : start + M * N].reshape(M, N), A @ B.T)
    assert np.all(C[:start] == 77) and np.all(C[start + M * N :] == 77)


def test_zero_times_infinity_is_nan() -> None:
    A, B = np.zeros((2, 68), np.float32), np.ones((4, 68), np.float32)
    B[1, 67] = np.inf
    *_, C = called("float", SOURCE, "run", A, B, np.zeros((2, 4), np.float32), 2, 4, 68, 0)
    np.testing.assert_array_equal(np.isnan(C), [[False, True, False, False]] * 2)
