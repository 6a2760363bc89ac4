"""msbench_divisor.cuh: exact quotients for every divisor and number that it declares."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_divisor.cuh>

__global__ void divide(const int* n, int* quotients, msbench::Divisor divisor) {
    quotients[threadIdx.x] = int(divisor.quotient(unsigned(n[threadIdx.x])));
}
EXPORTED run(int* n, int* quotients, int64_t d, int64_t count) {
    divide<<<1, unsigned(count)>>>(n, quotients, msbench::Divisor(uint32_t(d)));
    return cudaGetLastError();
}
"""
MOST = 2**31 - 1


@pytest.mark.parametrize("d", [1, 2, 3, 5, 7, 28, 641, 2**16 - 1, 2**16 + 1, 2**30, 2**30 + 1, MOST])
def test_quotients_are_exact(d: int) -> None:
    whole = MOST // d * d
    near = {k * d + e for k in (0, 1, 2, 1000, MOST // d) for e in (-1, 0, 1)} | {whole - 1, MOST}
    n = np.array(sorted(x for x in near if 0 <= x <= MOST), dtype=np.int32)
    _, quotients = called("float", SOURCE, "run", n, np.zeros_like(n), d, n.size)
    np.testing.assert_array_equal(quotients, n // d)
