"""msbench_lines.cuh: lines whose elements lie in runs, taken from any place on and beyond the end."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_lines.cuh>

__global__ void take(const msbench::Lines lines, float* out, int k0, int end) {
    float x[32];
    msbench::take_values(x, lines, int(threadIdx.x), k0, end);
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = x[i];
}

EXPORTED run(const float* data, float* out, int64_t K, int64_t run, int64_t k0, int64_t end) {
    // [K / run, 3 lines, run, 2]: every other element of a run is the line's.
    take<<<1, 3>>>({data, 3, int(K), 3, int(run), 0, 2 * run, 6 * run, 2}, out, int(k0), int(end));
    return int(cudaGetLastError());
}
"""


@pytest.mark.parametrize(("K", "run"), [(40, 40), (40, 8), (42, 7), (40, 1)])
@pytest.mark.parametrize(("start", "end"), [(0, 40), (5, 40), (8, 20), (32, 40), (10, 0)])
def test_elements_are_those_of_the_line(K: int, run: int, start: int, end: int) -> None:
    data = np.arange(K * 6, dtype=np.float32) + 1
    lines = data.reshape(K // run, 3, run, 2)[..., 0].transpose(1, 0, 2).reshape(3, K)
    expected = np.zeros((3, 32), np.float32)
    taken = lines[:, start : min(start + 32, end)]
    expected[:, : taken.shape[1]] = taken
    *_, out = called("float", SOURCE, "run", data, np.full((3, 32), 7, np.float32), K, run, start, end)
    np.testing.assert_array_equal(out, expected)
