"""msbench_rank_by_search.cuh: in order with every number of own keys, whatever is equal, and where n is no multiple of anything; and which
elements these are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_rank_by_search.cuh>

struct Floats {  // the order of its numbers is that of ordered_bits
    static __device__ unsigned key(unsigned bits) { return min(msbench::ordered_bits(bits), msbench::kMissingKey - 1); }
    static __device__ unsigned element(unsigned key) { return msbench::bits_of_ordered(key); }
};
struct Shorts {
    static __device__ unsigned key(uint16_t value) { return value; }
    static __device__ uint16_t element(unsigned key) { return uint16_t(key); }
};

template <int kOwn>
cudaError_t with(const unsigned* x, unsigned* y, int n, int own) {
    if constexpr (kOwn < msbench::search::kMostOwn) {
        if (own > kOwn) return with<2 * kOwn>(x, y, n, own);
    }
    using Put = msbench::search::PutSorted<Floats, unsigned>;
    const auto kernel = msbench::search::rank_by_search<Floats, kOwn, unsigned, Put>;
    return msbench::Launch(unsigned(msbench::ceil_div(n, kOwn)), 1024, nullptr)(kernel, x, Put{y}, n);
}
EXPORTED given_own(unsigned* x, unsigned* y, int64_t n, int64_t own) { return with<32>(x, y, int(n), int(own)); }
struct PutIndex {
    static constexpr bool kIndices = true;
    int* index;
    __device__ void put(unsigned, int from, int place) const { index[place] = from; }
};
EXPORTED indices(unsigned* x, int* index, int64_t n) {
    const auto kernel = msbench::search::rank_by_search<Floats, 32, unsigned, PutIndex>;
    return msbench::Launch(unsigned(msbench::ceil_div(n, 32)), 1024, nullptr)(kernel, x, PutIndex{index}, int(n));
}
EXPORTED chosen(uint16_t* x, uint16_t* y, int64_t n) { return msbench::sort_by_search<Shorts, 10000>(x, y, int(n), nullptr); }
"""
SPACE = 8  # elements behind the last that stay as they are


def in_order(function: str, x: Any, *more: int) -> Any:
    y = np.full(x.size + SPACE, 7, x.dtype)
    _, y = called("float", SOURCE, function, x, y, x.size, *more)
    np.testing.assert_array_equal(y[x.size :], 7)
    return y[: x.size]


@pytest.mark.parametrize("own", [32, 64, 128, 256, 512, 1024])
@pytest.mark.parametrize("n", [1, 1023, 3001, 9000])
def test_any_number_of_own_keys_sorts(own: int, n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    np.testing.assert_array_equal(in_order("given_own", x, own), np.sort(x))


@pytest.mark.parametrize("own", [32, 128, 1024])
def test_equal_keys_of_all_blocks_zeros_infinities_and_nan(own: int) -> None:
    x = np.random.default_rng(own).choice([-np.inf, -1.5, -0.0, 0.0, 1e-40, np.inf, np.nan], 2500).astype(np.float32)
    y = in_order("given_own", x, own)
    np.testing.assert_array_equal(y, np.sort(x))
    zeros = np.signbit(y[y == 0])
    assert (zeros == np.sort(zeros)[::-1]).all()  # -0 before 0


@pytest.mark.parametrize("order", [1, -1, 0])
def test_neighbours_in_or_against_the_order(order: int) -> None:
    x = np.arange(5000)[::order] if order else np.full(5000, 3)
    x = x.astype(np.float32)
    np.testing.assert_array_equal(in_order("given_own", x, 256), np.sort(x))


@pytest.mark.parametrize("n", [1, 33, 4096])
def test_of_equal_keys_the_one_with_the_lower_index_comes_first(n: int) -> None:
    x = np.random.default_rng(n).integers(-3, 4, n).astype(np.float32) + 0.5
    _, index = called("float", SOURCE, "indices", x, np.full(n, -1, np.int32), n)
    np.testing.assert_array_equal(index, np.argsort(x, kind="stable"))


@pytest.mark.parametrize("n", [1, 4096, 4097, 8192, 8193, 10000])
def test_own_keys_chosen_by_size(n: int) -> None:
    x = np.random.default_rng(n).integers(0, 65536, n).astype(np.uint16)
    x[: n // 3] = 65535
    np.testing.assert_array_equal(in_order("chosen", x), np.sort(x))
