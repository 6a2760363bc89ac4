"""Products that blocks of clusters swap; the emulator's clusters have one block, which sends to itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_entry_swap.cuh>

using namespace msbench;

constexpr int kThreads = 128, kEach = 20;

__global__ void swap_entries(const int32_t* row, const float* term, int count, float* sums, const __grid_constant__ EntrySwap swap) {
    extern __shared__ __align__(16) int memory[];
    swap.begin(memory);
    swap.clear(memory, sums);
    __syncthreads();
    const int begin = swap.share() * swap.lists.chunk, end = min(begin + swap.lists.chunk, count);
    EntryLists::Place place[kEach];
    int own[kEach];
    for (int i = 0; i < kEach; ++i) {
        const int at = begin + i * kThreads + int(threadIdx.x);
        own[i] = at < end ? row[at] : -1;
        place[i] = {0, 0};
        if (own[i] >= 0) place[i] = swap.rank(memory, own[i]);
    }
    const EntryLists::Area area = swap.layout(memory);
    for (int i = 0; i < kEach; ++i) swap.put(memory, place[i], own[i], own[i] >= 0 ? term[begin + i * kThreads + int(threadIdx.x)] : 0.0f);
    swap.collect(memory, area, [&](int r, float sum) { sums[r] = sum; });
}
EXPORTED swapped_sums(const int32_t* row, const float* term, float* sums, int64_t count, int64_t rows, int64_t groups) {
    const EntrySwap swap(rows, count, 0, int(groups), 2);
    return swap.launch(kThreads, 0, 0, swap_entries, row, term, int(count), sums, swap);
}
"""


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(
    ("rows", "count", "groups"),
    [(1, 1, 1), (1, 2000, 3), (7, 40, 2), (2048, 900, 1), (5001, 5000, 8), (9000, 17000, 8), (16384, 2500, 1)],
)
def test_sums_of_swapped_entries(rows: int, count: int, groups: int, skewed: bool) -> None:
    """Twice, with mail that has to be as it was; lists of few entries, and sums where there are more entries than rows."""
    rng = np.random.default_rng(rows)
    row = rng.integers(0, rows, count).astype(np.int32)
    if skewed:
        row[rng.random(count) < 0.8] = rows // 2
    terms = rng.integers(-8, 9, count).astype(np.float32)
    given = [row, terms, np.full(rows, np.nan, np.float32)]
    sums = called("float", SOURCE, "swapped_sums", *given, count, rows, groups, times=2)[2]
    np.testing.assert_array_equal(sums, np.bincount(row, terms, rows))


COO_SWAP = """
#include <msbench_coo_swap.cuh>

using namespace msbench;

EXPORTED multiply(const scalar_t* values, const int32_t* rows, const int32_t* columns, const scalar_t* x, scalar_t* y, int64_t all_rows,
                  int64_t cols, int64_t total) {
    const CooSwap swap(all_rows, cols, total);
    return swap.suits ? swap.launch(CooMatrix{values, rows, columns, int(total)}, x, y, 0) : -1;
}
"""


@pytest.mark.parametrize(("rows", "cols", "count"), [(1, 3, 5), (4097, 999, 300), (3001, 50, 16001), (5000, 1, 20000)])
def test_a_matrix_by_swapped_entries(rows: int, cols: int, count: int) -> None:
    """Twice, with two entries a thread and with four; columns that are no multiple of a packet."""
    rng = np.random.default_rng(rows)
    row, column = rng.integers(0, rows, count).astype(np.int32), rng.integers(0, cols, count).astype(np.int32)
    values, x = rng.integers(-8, 9, count).astype(np.float32), rng.integers(-8, 9, cols).astype(np.float32)
    given = [values, row, column, x, np.full(rows, np.nan, np.float32)]
    y = called("float", COO_SWAP, "multiply", *given, rows, cols, count, times=2)[4]
    np.testing.assert_array_equal(y, np.bincount(row, values * x[column], rows))


def test_matrices_that_swapping_does_not_suit() -> None:
    """Full rows, more entries than threads have at once, and more rows than there is mail for."""
    for rows, count in [(100, 3201), (30000, 900_000), (40000, 1000)]:
        given = [np.zeros(1, dtype) for dtype in (np.float32, np.int32, np.int32, np.float32, np.float32)]
        with pytest.raises(RuntimeError, match="gave -1"):
            called("float", COO_SWAP, "multiply", *given, rows, 1, count)
