"""msbench_top_entries.cuh: packets of arrays at any address, their largest elements, and the k best with their indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_top_entries.cuh>

__global__ void choose(msbench::PacketSource<scalar_t> source, msbench::TopOutput<scalar_t> out) {
    __shared__ msbench::Key list[2048];
    __shared__ unsigned largest;
    __shared__ int count;
    if (threadIdx.x == 0) largest = 0, count = 0;
    __syncthreads();
    const unsigned p = threadIdx.x;
    msbench::Packet<scalar_t> packet[1];
    unsigned hits = 0;
    if (p < source.packets) {
        packet[0] = source.load(p);
        atomicMax(&largest, msbench::packet_max(packet[0]));
        hits = msbench::elements_above(source, packet[0], p, 0);
    }
    msbench::append_hits(source, packet, p, 0, hits, list, &count);
    __syncthreads();
    for (int share = 0; share < 3; ++share) out.template rank<3>(list, count, list, count, share);
    __syncthreads();
    if (threadIdx.x == 0) out.indices[out.k] = largest == msbench::ordered_value(msbench::to_float(source.x[out.indices[0]]));
}
EXPORTED run(scalar_t* x, scalar_t* values, int* indices, int64_t skip, int64_t n, int64_t k) {
    choose<<<1, 1024>>>(msbench::PacketSource<scalar_t>(x + skip, n), {x + skip, values, indices, int(k)});
    return cudaGetLastError();
}
"""


def bits(scalar: str, x: Any) -> Any:
    return x if scalar == "float" else (x.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("scalar", ["float", "__nv_bfloat16"])
@pytest.mark.parametrize(("skip", "n", "k"), [(0, 64, 64), (1, 1001, 32), (3, 5, 5), (2, 2000, 128)])
def test_the_largest_and_of_equal_ones_the_first(scalar: str, skip: int, n: int, k: int) -> None:
    x = np.random.default_rng(n).choice(np.array([-np.inf, -2.5, -0.0, 0.0, 0.5, 3.0, np.nan], np.float32), n)
    given = bits(scalar, np.concatenate((np.full(skip, np.inf, np.float32), x, np.full(9, np.inf, np.float32))))
    _, values, indices = called(
        scalar, SOURCE, "run", given, np.zeros(k, given.dtype), np.full(k + 1, -1, np.int32), skip, n, k
    )
    order = np.lexsort((np.arange(n), -np.nan_to_num(x, nan=9.0, neginf=-9.0)))[:k]
    np.testing.assert_array_equal(indices[:k], order)
    found = values if scalar == "float" else (values.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, x[order])  # which NaN does not matter
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(x[order][found == 0]))
    assert indices[k] == 1
