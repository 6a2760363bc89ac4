"""msbench_row_packs.cuh: packs keep their elements, and each element finds the two beside it, in its pack, its warp or beyond."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_row_packs.cuh>

using namespace msbench;

template <int N>
__global__ void around(const scalar_t* x, scalar_t* kept, float* sums) {  // of a row between two more elements
    const int lane = threadIdx.x;
    const scalar_t* const here = x + lane * N;
    float v[N], sum[N];
    unpack<scalar_t>(load_pack<N>(here, true), v);
    const scalar_t edge = load_pack<1>(lane == 0 ? x + 32 * N : x + 32 * N + 1, lane == 0 || lane == 31);
    sum_beside(v, edge, sum);
    store_pack(kept + lane * N, v);
    for (int k = 0; k < N; ++k) sums[lane * N + k] = sum[k];
}
EXPORTED run(scalar_t* x, scalar_t* kept, float* sums, int64_t width) {
    if (width == 1) around<1><<<1, 32>>>(x, kept, sums);
    else around<Packet<scalar_t>::kSize><<<1, 32>>>(x, kept, sums);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("scalar", ["float", "__nv_bfloat16"])
def test_neighbours(scalar: str, wide: bool) -> None:
    width = 1 if not wide else 4 if scalar == "float" else 8
    count = 32 * width
    values = np.arange(1, count + 3, dtype=np.float32)  # the two beyond the ends last
    values[256:] = 256  # all are exact in bf16
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    x = values if scalar == "float" else bits
    _, kept, sums = called(scalar, SOURCE, "run", x, np.zeros(count, x.dtype), np.zeros(count, np.float32), width)
    np.testing.assert_array_equal(kept, x[:count])
    row = np.concatenate([values[count : count + 1], values[:count], values[count + 1 :]])
    np.testing.assert_array_equal(sums, row[:-2] + row[2:])
