"""msbench_reduce.cuh, msbench_flat_sum.cuh, msbench_mail.cuh, msbench_mail_ahead.cuh, msbench_sum_terms.cuh and msbench_grid_sum.cuh: sums of
every element, the same on every call, from mailboxes that empty themselves.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import TYPES, bf16_bits, called

SOURCE = """
#include <msbench_grid_sum.cuh>
#include <msbench_mail_ahead.cuh>

struct Products : msbench::Terms<Products> {
    float* out;
    __device__ float add(float sum, float x, float y) const { return fmaf(x, y, sum); }
    __device__ void finish(float total) const { *out += total; }
};
struct Few : msbench::SumShape {
    static constexpr int64_t kOneBlockGroups = 0, kManyGroups = 1000;
};
EXPORTED dot(scalar_t* x, scalar_t* y, float* out, int64_t count, int64_t dx, int64_t dy, int64_t many) {
    Products products;
    products.out = out;
    const auto sum = many ? msbench::sum<Few, Products, scalar_t, scalar_t>
                          : msbench::sum<msbench::SumShape, Products, scalar_t, scalar_t>;
    return sum(nullptr, count, products, x + dx, y + dy);
}

template <int kThreads>
__global__ void several(float* out) {
    float x[3] = {1.0f, float(threadIdx.x), float(threadIdx.x * threadIdx.x)};
    msbench::block_sums<kThreads>(x);
    const float again = msbench::block_sum<kThreads>(float(threadIdx.x % 2));
    if (threadIdx.x == 0) out[0] = x[0], out[1] = x[1], out[2] = x[2], out[3] = again;
}
template <int kThreads>
__global__ void flat(float* out) {
    const float sum = msbench::flat_sum<kThreads>(float(threadIdx.x));
    if (threadIdx.x < 32) out[threadIdx.x] = sum;
}
EXPORTED flat_block(float* out, int64_t threads) {
    if (threads == 128) flat<128><<<1, 128>>>(out);
    else flat<1024><<<1, 1024>>>(out);
    return cudaGetLastError();
}
__global__ void ahead(float* out) {
    msbench::expect_sums();
    out[blockIdx.x * blockDim.x + threadIdx.x] += msbench::sum_of_blocks_before(float(1 + blockIdx.x));
}
EXPORTED blocks_ahead(float* out, int64_t blocks, int64_t threads) {
    ahead<<<unsigned(blocks), unsigned(threads)>>>(out);
    return cudaGetLastError();
}
EXPORTED block(float* out, int64_t threads) {
    if (threads == 32) several<32><<<1, 32>>>(out);
    else several<256><<<1, 256>>>(out);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("many", [0, 1])
@pytest.mark.parametrize("starts", [(0, 0), (3, 3), (1, 2)])
@pytest.mark.parametrize("count", [1, 5, 1000, 60001])
@pytest.mark.parametrize("scalar", TYPES)
def test_a_grid_adds_up_everything_on_every_call(scalar: str, count: int, starts: tuple[int, int], many: int) -> None:
    dx, dy = starts
    rng = np.random.default_rng(count)
    x, y = (rng.integers(-4, 5, count + 8) for _ in range(2))
    given = [v.astype(np.float32) if scalar == "float" else bf16_bits(v) for v in (x, y)]
    *_, out = called(scalar, SOURCE, "dot", *given, np.zeros(1, np.float32), count, dx, dy, many, times=3)
    assert out[0] == 3 * np.dot(x[dx : dx + count], y[dy : dy + count])


@pytest.mark.parametrize("threads", [32, 256])
def test_a_block_adds_up_several_numbers_at_once(threads: int) -> None:
    (out,) = called("float", SOURCE, "block", np.zeros(4, np.float32), threads)
    lanes = np.arange(threads)
    np.testing.assert_array_equal(out, [threads, lanes.sum(), (lanes**2).sum(), threads / 2])


@pytest.mark.parametrize("threads", [128, 1024])
def test_a_block_adds_up_behind_one_barrier(threads: int) -> None:
    (out,) = called("float", SOURCE, "flat_block", np.zeros(32, np.float32), threads)
    np.testing.assert_array_equal(out, np.full(32, np.arange(threads).sum()))


@pytest.mark.parametrize(("blocks", "threads"), [(1, 128), (2, 512), (128, 128)])
def test_each_block_gets_what_those_before_it_have(blocks: int, threads: int) -> None:
    (out,) = called("float", SOURCE, "blocks_ahead", np.zeros(blocks * threads, np.float32), blocks, threads, times=3)
    before = np.cumsum(np.arange(blocks))
    np.testing.assert_array_equal(out, 3 * np.repeat(before, threads))
