"""Blocks that products of sparse matrices with a vector are made of: equal shares of entries, and rows walked by blocks that stay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called
from tests.kernels.test_sparse_rows import lengths_of

VECTOR_SHARES = """
#include <msbench_spmv_shares.cuh>

using namespace msbench;

EXPORTED multiply(const float* values, const int32_t* columns, const int32_t* offsets, const float* x, float* y, int64_t rows, int64_t total,
                  int64_t shift) {
    const CsrShares A = {values + shift, columns + shift, offsets, int(rows), int(total), 0, 0};
    return shift ? multiply_by_csr_shares<128, 3, false>(A, x, y, 50, 0) : multiply_by_csr_shares<128, 3, true>(A, x, y, 50, 0);
}
"""


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(
    "kind",
    [
        "even",
        "at the limit",
        "long",
        "empty",
        "first",
        "last",
        "large shares",
        "1",
        "128",
        "129",
        "256",
        "257",
        "70000",
    ],
)
def test_a_vector_by_shares(kind: str, shift: int) -> None:
    """As above, with shares of 256 entries and what begins or ends in them; entries whose fours are aligned, and not."""
    rng = np.random.default_rng(shift)
    lengths = lengths_of(kind, rng)
    rows, total, cols = lengths.size, int(lengths.sum()), 50
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values, columns = np.zeros(total + shift, np.float32), np.zeros(total + shift, np.int32)
    values[shift:], columns[shift:] = rng.integers(-8, 9, total), rng.integers(0, cols, total)
    x = rng.integers(-8, 9, cols).astype(np.float32)
    given = [values, columns, offsets, x, np.full(rows, np.nan, np.float32)]
    y = called("float", VECTOR_SHARES, "multiply", *given, rows, total, shift, times=2)[4]
    expected = np.zeros(rows, np.float32)
    np.add.at(expected, np.repeat(np.arange(rows), lengths), values[shift:] * x[columns[shift:]])
    np.testing.assert_array_equal(y, expected)


TILE_COLUMNS = """
#include <msbench_tile_columns.cuh>

using namespace msbench;

constexpr int kThreads = 64, kFlight = 4, kTile = kFlight * kThreads;

__global__ void factors_of(const __grid_constant__ CscColumns all, int total, const __grid_constant__ EvenColumns even, float* factors) {
    using Columns = TileColumns<kTile>;
    __shared__ Columns columns;
    const int t = threadIdx.x;
    bool first = true;
    for (int begin = blockIdx.x * 2 * kTile; begin < min(int(blockIdx.x + 1) * 2 * kTile, total); begin += kTile, first = false) {
        Columns::Column own;
        own.load(all, first ? even.low(begin) : columns.last, kThreads);
        columns.clear();
        correct<kThreads>(all, own, begin, first);
        columns.find(all, own, kThreads, begin, min(begin + kTile, total));
        for (int i = 0; i < kFlight; ++i) {
            const int at = begin + i * kThreads + t;
            if (at < total) factors[at] = columns.of(t / 32 + i * (kThreads / 32), t % 32);
        }
        __syncthreads();
    }
}
EXPORTED factors(const int32_t* offsets, const float* x, float* out, int64_t cols, int64_t total) {
    const EvenColumns even(int(cols), int(total), kTile, kThreads);
    factors_of<<<unsigned(ceil_div(total, 2 * kTile)), kThreads>>>({offsets, x, int(cols)}, int(total), even, out);
    return cudaGetLastError();
}
"""


@pytest.mark.parametrize("kind", ["even", "long", "empty", "first", "last", "large shares", "1", "257", "70000"])
def test_the_columns_of_tiles(kind: str) -> None:
    """Columns where an even matrix has them, and elsewhere; ones without entries, and longer than a tile."""
    lengths = lengths_of(kind, np.random.default_rng(0))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    x = np.arange(lengths.size, dtype=np.float32)
    given = [offsets, x, np.full(int(lengths.sum()), np.nan, np.float32)]
    factors = called("float", TILE_COLUMNS, "factors", *given, lengths.size, int(lengths.sum()))[2]
    np.testing.assert_array_equal(factors, np.repeat(x, lengths))


WALK = """
#include <msbench_csr_walk.cuh>

using namespace msbench;

EXPORTED multiply(const float* values, const int32_t* columns, const int32_t* offsets, const float* x, float* y, float* partial, int64_t rows,
                  int64_t total, int64_t cols, int64_t shift) {
    return multiply_by_walking<1>(csr_matrix(values, columns, offsets, rows, total), x + shift, y, cols, partial, 0);
}
"""


@pytest.mark.parametrize(
    ("kind", "cols", "shift"),
    [
        *((kind, 50, 0) for kind in ("even", "empty", "first", "last", "large shares", "1", "511", "513", "5000")),
        ("even", 70_000, 0),  # more than fits on chip
        ("even", 70_000, 1),
        ("walked", 50, 0),
        ("aside", 3000, 1),
        ("many", 50, 0),
    ],
)
def test_a_vector_by_walking(kind: str, cols: int, shift: int) -> None:
    """Rows that half a warp takes in one step and in several, that a block shares and that all blocks share; x on chip, and in part."""
    rng = np.random.default_rng(cols + shift)
    if kind == "walked":
        lengths = rng.integers(100, 513, 400)
    elif kind == "aside":
        lengths = np.where(rng.random(3000) < 0.1, rng.integers(513, 1100, 3000), rng.integers(0, 70, 3000))
        lengths[1234] = 9000
    elif kind == "many":
        lengths = rng.integers(0, 5, 20_001)  # several runs a warp
    else:
        lengths = lengths_of(kind, rng)
    rows, total = lengths.size, int(lengths.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values, columns = rng.integers(-8, 9, total).astype(np.float32), rng.integers(0, cols, total).astype(np.int32)
    x = rng.integers(-8, 9, cols + shift).astype(np.float32)
    given = [values, columns, offsets, x, np.full(rows, np.nan, np.float32), np.full(6000, np.nan, np.float32)]
    y = called("float", WALK, "multiply", *given, rows, total, cols, shift, times=2)[4]
    expected = np.zeros(rows, np.float32)
    np.add.at(expected, np.repeat(np.arange(rows), lengths), values * x[shift:][columns])
    np.testing.assert_array_equal(y, expected)


ELL_WALK = """
#include <msbench_ell_walk.cuh>

using namespace msbench;

EXPORTED multiply(const float* values, const int32_t* columns, const float* x, float* y, int64_t rows, int64_t w, int64_t cols, int64_t shift) {
    const EllMatrix A = {values, columns, int(rows), int(w)};
    return w > 32 ? multiply_by_walking<16, 1>(A, x + shift, y, cols, 0) : multiply_by_walking<8, 1>(A, x + shift, y, cols, 0);
}
"""


@pytest.mark.parametrize(
    ("rows", "w", "cols", "shift"),
    [(1, 4, 1, 0), (3000, 32, 50, 1), (4099, 20, 70_000, 0), (777, 64, 70_000, 1), (2049, 60, 300, 0)],
)
def test_padded_rows_by_walking(rows: int, w: int, cols: int, shift: int) -> None:
    """Padding comes last, and its values are NaN here."""
    rng = np.random.default_rng(rows)
    filled = np.arange(w) < rng.integers(0, w + 1, (rows, 1))
    columns = np.where(filled, rng.integers(0, cols, (rows, w)), -1).astype(np.int32)
    values = np.where(filled, rng.integers(-8, 9, (rows, w)), np.nan).astype(np.float32)
    x = rng.integers(-8, 9, cols + shift).astype(np.float32)
    given = [values, columns, x, np.full(rows, np.nan, np.float32)]
    y = called("float", ELL_WALK, "multiply", *given, rows, w, cols, shift, times=2)[3]
    expected = np.where(filled, np.where(filled, values, 0) * x[shift:][columns], 0).sum(1)
    np.testing.assert_array_equal(y, expected)
