"""msbench_top_entries.cuh: packets of arrays at any address, their largest elements, and the k best with their indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_top_entries.cuh>

__global__ void choose(msbench::PacketSource<scalar_t> source, msbench::TopOutput<scalar_t> out) {
    constexpr int kPacket = msbench::PacketSource<scalar_t>::kPacket;
    __shared__ msbench::Key list[2048];
    __shared__ unsigned largest;
    if (threadIdx.x == 0) largest = 0;
    __syncthreads();
    for (unsigned p = threadIdx.x; p < source.packets; p += 1024) {
        const auto packet = source.load(p);
        atomicMax(&largest, msbench::packet_max(packet));
        for (int e = 0; e < kPacket; ++e) {
            const int64_t index = source.index_of(p, e);
            const unsigned value = msbench::ordered_value(msbench::to_float(packet.lane[e]));
            if (source.has(index)) list[index] = msbench::entry_key(value, unsigned(index));
        }
    }
    __syncthreads();
    out.rank(list, int(source.n), list, int(source.n));
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
