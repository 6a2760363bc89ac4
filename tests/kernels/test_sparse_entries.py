"""Blocks of products with sparse matrices whose entries have no order: packed by rows, added in memory, scanned for, or brought together by bins."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

PACKING = """
#include <msbench_count_rows.cuh>
#include <msbench_spmm_direct.cuh>
#include <msbench_spmm_scan.cuh>

using namespace msbench;

template <typename Matrix>
cudaError_t pack_by(int64_t counts, const Matrix& A, char* workspace) {
    PackedRows out;
    return counts ? pack_rows_by_counts(A, workspace, &out, 0) : pack_rows(A, workspace, &out, 0);
}
EXPORTED pack(const float* values, const int32_t* row_indices, const int32_t* second, char* workspace, int64_t rows, int64_t cols, int64_t total,
              int64_t csc, int64_t counts) {
    if (csc) return pack_by(counts, CscMatrix{values, row_indices, second, int(rows), int(cols), int(total)}, workspace);
    return pack_by(counts, CooMatrix{values, row_indices, second, int(rows), int(cols), int(total)}, workspace);
}
EXPORTED room(int64_t* bytes, int64_t rows, int64_t total, int64_t counts) {
    *bytes = int64_t(packed_bytes(rows, total) + (counts ? RowCounts::bytes(rows, total) : bins_bytes(rows, total)));
    return 0;
}
EXPORTED scan(const float* values, const int32_t* row_indices, const int32_t* second, const float* X, float* Y, int64_t rows, int64_t cols,
                  int64_t total, int64_t K, int64_t csc) {
    if (csc) return multiply_by_scanning(CscMatrix{values, row_indices, second, int(rows), int(cols), int(total)}, X, Y, K, nullptr, 0);
    return multiply_by_scanning(CooMatrix{values, row_indices, second, int(rows), int(cols), int(total)}, X, Y, K, nullptr, 0);
}
EXPORTED multiply(const float* values, const int32_t* row_indices, const int32_t* second, const float* X, float* Y, int64_t rows, int64_t cols,
                  int64_t total, int64_t K, int64_t csc) {
    if (csc) return multiply_directly(CscMatrix{values, row_indices, second, int(rows), int(cols), int(total)}, X, Y, K, nullptr, 0);
    return multiply_directly(CooMatrix{values, row_indices, second, int(rows), int(cols), int(total)}, X, Y, K, nullptr, 0);
}
"""


def matrix(
    rows: int, cols: int, total: int, skewed: bool, csc: bool
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Values, rows, and columns or offsets of columns, as a kernel takes them; then the dense row and column of each entry."""
    rng = np.random.default_rng(total)
    row = rng.integers(0, rows, total).astype(np.int32)
    if skewed:
        row[rng.random(total) < 0.8] = rows // 2
    col = rng.integers(0, cols, total).astype(np.int32)
    if csc:
        col.sort()
    second = np.searchsorted(col, np.arange(cols + 1)).astype(np.int32) if csc else col
    return [rng.integers(-8, 9, total).astype(np.float32), row, second], row, col


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("csc", [False, True])
@pytest.mark.parametrize(
    ("rows", "cols", "total", "skewed"),
    [(1, 1, 1, False), (1, 40, 5000, False), (5001, 300, 3000, True), (300, 9000, 40000, True)],
)
def test_packed_rows(rows: int, cols: int, total: int, skewed: bool, csc: bool, counts: bool) -> None:
    """Twice, in a workspace that holds garbage: rows, bins and shares of the entries may be empty or have nearly all of them."""
    given, row, col = matrix(rows, cols, total, skewed, csc)
    room = int(called("float", PACKING, "room", np.zeros(1, np.int64), rows, total, int(counts))[0][0])
    workspace = np.full(room, 255, np.uint8)
    packed = called("float", PACKING, "pack", *given, workspace, rows, cols, total, int(csc), int(counts), times=2)[3]
    entries = packed[: 8 * total].view([("column", np.int32), ("value", np.float32)])
    offsets = packed[8 * total : 8 * total + 4 * (rows + 1)].view(np.int32)
    np.testing.assert_array_equal(offsets, np.searchsorted(np.sort(row), np.arange(rows + 1)))
    found = np.lexsort((entries["value"], entries["column"], np.repeat(np.arange(rows), np.diff(offsets))))
    expected = np.lexsort((given[0], col, row))
    np.testing.assert_array_equal(entries["column"][found], col[expected])
    np.testing.assert_array_equal(entries["value"][found], given[0][expected])


@pytest.mark.parametrize("csc", [False, True])
@pytest.mark.parametrize(
    ("rows", "cols", "total", "K", "skewed"),
    [(1, 1, 1, 1, False), (7, 5000, 900, 33, True), (900, 3, 5000, 1100, True), (40, 50, 3, 70, False)],
)
def test_products_by_sums_in_memory(rows: int, cols: int, total: int, K: int, skewed: bool, csc: bool) -> None:
    """Several chunks a block, more columns than a block has warps for, and rows without entries, which are zero."""
    given, row, col = matrix(rows, cols, total, skewed, csc)
    X = np.random.default_rng(K).integers(-8, 9, (cols, K)).astype(np.float32)
    Y = np.full((rows, K), np.nan, np.float32)
    *_, Y = called("float", PACKING, "multiply", *given, X, Y, rows, cols, total, K, int(csc), times=2)
    expected = np.zeros((rows, K), np.float32)
    np.add.at(expected, row, given[0][:, None] * X[col])
    np.testing.assert_array_equal(Y, expected)


@pytest.mark.parametrize("csc", [False, True])
@pytest.mark.parametrize(
    ("rows", "cols", "total", "K", "skewed"),
    [
        (1, 1, 1, 1, False),
        (7, 4000, 900, 33, True),
        (900, 3, 19000, 77, True),
        (40, 50, 3, 70, False),
        (1000, 900, 9000, 100, False),
    ],
)
def test_products_by_scanning(rows: int, cols: int, total: int, K: int, skewed: bool, csc: bool) -> None:
    """More entries than a block looks through at once, and rows that have more than it puts in order at once."""
    given, row, col = matrix(rows, cols, total, skewed, csc)
    X = np.random.default_rng(K).integers(-8, 9, (cols, K)).astype(np.float32)
    Y = np.full((rows, K), np.nan, np.float32)
    *_, Y = called("float", PACKING, "scan", *given, X, Y, rows, cols, total, K, int(csc), times=2)
    expected = np.zeros((rows, K), np.float32)
    np.add.at(expected, row, given[0][:, None] * X[col])
    np.testing.assert_array_equal(Y, expected)


BINS = """
#include <msbench_spmm_bins.cuh>
#include <msbench_spmm_chunks.cuh>

using namespace msbench;

template <typename Matrix>
cudaError_t multiply_by(int64_t plan, const Matrix& A, const scalar_t* X, scalar_t* Y, int64_t K, char* workspace) {
    if (plan == 0) return multiply_by_bins(A, X, Y, K, workspace, 0);
    if (plan == 1) return multiply_by_bin_tiles(A, X, Y, K, workspace, 0);
    return multiply_by_chunks(A, X, Y, K, workspace, 0);
}
EXPORTED multiply(const scalar_t* values, const int32_t* row_indices, const int32_t* second, const scalar_t* X, scalar_t* Y, char* workspace,
                  int64_t rows, int64_t cols, int64_t total, int64_t K, int64_t csc, int64_t plan) {
    if (csc) return multiply_by(plan, CscMatrix{values, row_indices, second, int(rows), int(cols), int(total)}, X, Y, K, workspace);
    return multiply_by(plan, CooMatrix{values, row_indices, second, int(rows), int(cols), int(total)}, X, Y, K, workspace);
}
EXPORTED padded(const scalar_t* values, const int32_t* columns, const scalar_t* X, scalar_t* Y, char* workspace, int64_t rows, int64_t cols,
                int64_t width, int64_t K) {
    return multiply_by_chunks(EllMatrix{values, columns, int(rows), int(cols), int(width), int(rows * width)}, X, Y, K, workspace, 0);
}
EXPORTED room(int64_t* bytes, int64_t rows, int64_t cols, int64_t total, int64_t K, int64_t plan) {
    if (plan == 0) *bytes = multiply_bins_bytes(rows, total, K);
    else *bytes = plan == 1 ? bin_tiles_bytes(rows, total, K) : chunks_bytes(rows, cols, total, K);
    return 0;
}
"""


@pytest.mark.parametrize("csc", [False, True])
@pytest.mark.parametrize(
    ("plan", "rows", "cols", "total", "K", "skewed"),
    [
        ("bins", 1, 1, 1, 4, False),
        ("bins", 1003, 777, 9055, 128, False),
        ("bins", 70000, 5, 300, 4, False),  # most rows are empty
        ("bins", 1003, 777, 29055, 68, True),  # a bin that doesn't fit
        ("bins", 9, 5777, 12000, 132, True),
        ("tiles", 1, 1, 1, 4, False),
        ("tiles", 9000, 1000, 50000, 64, False),
        ("tiles", 170, 1100, 9000, 2132, False),  # rows of X of 128 bytes
        ("tiles", 300, 1000, 15000, 2132, True),
        ("tiles", 300, 1000, 15000, 516, True),  # a window that doesn't fit, and a row in wide slices
        ("chunks", 1, 2753, 1, 4, False),
        ("chunks", 300, 5000, 12000, 272, False),
        ("chunks", 500, 5000, 31000, 40, True),
    ],
)
def test_products_by_bins(plan: str, rows: int, cols: int, total: int, K: int, skewed: bool, csc: bool) -> None:
    """Twice, in a workspace that holds NaN: large bins are counted, and the count is zero again behind a call."""
    number = ("bins", "tiles", "chunks").index(plan)
    given, row, col = matrix(rows, cols, total, skewed, csc)
    X = np.random.default_rng(K).integers(-8, 9, (cols, K)).astype(np.float32)
    room = int(called("float", BINS, "room", np.zeros(1, np.int64), rows, cols, total, K, number)[0][0])
    arrays = [*given, X, np.full((rows, K), np.nan, np.float32), np.full(room, 255, np.uint8)]
    Y = called("float", BINS, "multiply", *arrays, rows, cols, total, K, int(csc), number, times=2)[4]
    expected = np.zeros((rows, K), np.float32)
    np.add.at(expected, row, given[0][:, None] * X[col])
    np.testing.assert_array_equal(Y, expected)


def test_products_of_padded_rows() -> None:
    """Chunks of a matrix whose rows end in padding, some with nothing else, that is not a number."""
    rng = np.random.default_rng(5)
    rows, cols, width, K = 130, 6000, 90, 40
    columns = rng.integers(0, cols, (rows, width)).astype(np.int32)
    columns[np.arange(width) >= rng.integers(0, width + 1, rows)[:, None]] = -1
    columns[7] = -1
    values = np.where(columns < 0, np.nan, rng.integers(-8, 9, columns.shape)).astype(np.float32)
    X = rng.integers(-8, 9, (cols, K)).astype(np.float32)
    room = int(called("float", BINS, "room", np.zeros(1, np.int64), rows, cols, rows * width, K, 2)[0][0])
    arrays = [values, columns, X, np.full((rows, K), np.nan, np.float32), np.full(room, 255, np.uint8)]
    Y = called("float", BINS, "padded", *arrays, rows, cols, width, K, times=2)[3]
    expected = np.zeros((rows, K), np.float32)
    row, place = np.nonzero(columns >= 0)
    np.add.at(expected, row, values[row, place][:, None] * X[columns[row, place]])
    np.testing.assert_array_equal(Y, expected)
