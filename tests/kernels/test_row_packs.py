"""msbench_row_packs.cuh: packs keep their boundary, and each element finds the two beside it, in its pack, its warp or beyond."""

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
    const bool first = lane == 0, last = lane == 31;
    float v[N], sum[N], next[N];
    const auto pack = load_pack<N>(x, true, lane);
    unpack<scalar_t>(pack, v);
    const scalar_t edge = load_pack<1>(x + 32 * N + last, first || last);
    sum_beside(v, edge, first, last, sum);
    for (int k = 0; k < N; ++k) {
        sums[lane * N + k] = sum[k];
        next[k] = -1;
    }
    store_pack<true, N>(kept, pack_inner<scalar_t>(next, pack, first, last, lane == 7), lane);
}
EXPORTED run(scalar_t* x, scalar_t* kept, float* sums, int64_t width) {
    if (width == 1) around<1><<<1, 32>>>(x, kept, sums);
    else if (width * sizeof(scalar_t) == 8) around<8 / sizeof(scalar_t)><<<1, 32>>>(x, kept, sums);
    else around<Packet<scalar_t>::kSize><<<1, 32>>>(x, kept, sums);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("size", [0, 8, 16])
@pytest.mark.parametrize("scalar", ["float", "__nv_bfloat16"])
def test_neighbours(scalar: str, size: int) -> None:
    width = max(size // (4 if scalar == "float" else 2), 1)
    count = 32 * width
    values = np.arange(1, count + 3, dtype=np.float32)  # the two beyond the ends last
    values[256:] = 256  # all are exact in bf16
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    x = values if scalar == "float" else bits
    _, kept, sums = called(scalar, SOURCE, "run", x, np.zeros(count, x.dtype), np.zeros(count, np.float32), width)
    boundary = np.zeros(count, bool)
    boundary[[0, -1]] = boundary[7 * width : 8 * width] = True
    minus_one = np.float32(-1).view(np.uint32)
    inner = np.float32(-1) if scalar == "float" else np.uint16(minus_one >> 16)
    np.testing.assert_array_equal(kept, np.where(boundary, x[:count], inner))
    row = np.concatenate([values[count : count + 1], values[:count], values[count + 1 :]])
    np.testing.assert_array_equal(sums, row[:-2] + row[2:])
