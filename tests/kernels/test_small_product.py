"""msbench_small_product.cuh: sizes around a block's, a pitch, and factors that no multiplication may skip."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_small_product.cuh>

EXPORTED run(float* A, float* B, float* C, int64_t M, int64_t N, int64_t K, int64_t pitch) {
    using msbench::RowMajor;
    return msbench::multiply_small(RowMajor<float>{A, K}, RowMajor<float>{B, N}, C, pitch, M, N, K, false, nullptr);
}
"""


@pytest.mark.parametrize(
    "M, N, K",
    [(1, 1, 1), (9, 33, 17), (16, 16, 16), (5, 40, 32), (16, 32, 256), (17, 33, 257), (15, 31, 15), (40, 3, 600)],
)
def test_products_of_integers_are_exact_and_padding_is_left_alone(M: int, N: int, K: int) -> None:
    rng = np.random.default_rng(M * N)
    A, B = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((M, K), (K, N)))
    C = np.full((M, N + 3), 77, np.float32)
    *_, C = called("float", SOURCE, "run", A, B, C, M, N, K, N + 3)
    np.testing.assert_array_equal(C[:, :N], A @ B)
    assert np.all(C[:, N:] == 77)


@pytest.mark.parametrize("K", [5, 50])
def test_zero_times_infinity_is_nan(K: int) -> None:
    A, B = np.zeros((2, K), np.float32), np.ones((K, 4), np.float32)
    B[3, 1] = np.inf
    *_, C = called("float", SOURCE, "run", A, B, np.zeros((2, 4), np.float32), 2, 4, K, 4)
    np.testing.assert_array_equal(np.isnan(C), [[False, True, False, False]] * 2)
