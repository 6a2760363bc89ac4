"""Blocks of products with sparse matrices whose entries are in order by rows: equal shares for all warps, and runs of rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SHARES = """
#include <msbench_spmm_shares.cuh>

using namespace msbench;

EXPORTED multiply(const float* values, const int32_t* columns, const int32_t* offsets, const float* X, float* Y, char* workspace, int64_t rows,
                  int64_t cols, int64_t total, int64_t K) {
    return multiply_by_shares(CsrRows{values, columns, offsets, int(rows), int(cols), int(total)}, X, Y, K, workspace, 0);
}
EXPORTED room(int64_t* bytes, int64_t rows, int64_t total, int64_t K) {
    *bytes = int64_t(shares_bytes(rows, total, K));
    return 0;
}
"""


def lengths_of(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Of rows: what shares of 32 positions, with rows of up to 32 in one, may have trouble with."""
    if kind == "even":
        return rng.integers(0, 31, 300)
    if kind == "at the limit":
        return rng.integers(29, 36, 100)
    if kind == "long":
        return np.where(rng.random(60) < 0.2, rng.integers(33, 700, 60), rng.integers(0, 5, 60))
    if kind == "empty":
        return np.where(rng.random(3000) < 0.99, 0, rng.integers(0, 40, 3000))
    if kind == "first":
        return np.concatenate([[9000], np.zeros(700, int), rng.integers(0, 9, 500)])
    if kind == "last":
        return np.concatenate([np.zeros(700, int), rng.integers(0, 9, 500), [5000]])
    if kind == "large shares":
        return np.concatenate([rng.integers(0, 70, 900), [20000], rng.integers(60, 70, 300), np.zeros(500, int)])
    return np.array([int(kind)])


@pytest.mark.parametrize(
    ("kind", "K"),
    [
        *(("even", K) for K in (1, 77, 64, 136, 1024)),
        *((kind, K) for kind in ("at the limit", "long", "empty", "first", "last") for K in (33, 192)),
        ("large shares", 40),
        ("large shares", 64),
        ("1", 1),
        ("30", 7),
        ("31", 1000),
        ("32", 257),
        ("5000", 300),
    ],
)
def test_products_by_shares(kind: str, K: int) -> None:
    """Twice, in a workspace that holds NaN: rows without entries, within a share, reaching beyond it, and over many."""
    rng = np.random.default_rng(K)
    lengths = lengths_of(kind, rng)
    rows, total, cols = lengths.size, int(lengths.sum()), 50
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values, columns = rng.integers(-8, 9, total).astype(np.float32), rng.integers(0, cols, total).astype(np.int32)
    X = rng.integers(-8, 9, (cols, K)).astype(np.float32)
    room = int(called("float", SHARES, "room", np.zeros(1, np.int64), rows, total, K)[0][0])
    given = [values, columns, offsets, X, np.full((rows, K), np.nan, np.float32), np.full(room, 255, np.uint8)]
    Y = called("float", SHARES, "multiply", *given, rows, cols, total, K, times=2)[4]
    expected = np.zeros((rows, K), np.float32)
    np.add.at(expected, np.repeat(np.arange(rows), lengths), values[:, None] * X[columns])
    np.testing.assert_array_equal(Y, expected)


PLANS = """
#include <msbench_spmm_runs.cuh>
#include <msbench_spmm_short.cuh>

using namespace msbench;

EXPORTED runs(const float* values, const int32_t* columns, const int32_t* offsets, const float* X, float* Y, char* workspace, int64_t rows,
              int64_t cols, int64_t total, int64_t K) {
    return multiply_by_runs(CsrRows{values, columns, offsets, int(rows), int(cols), int(total)}, X, Y, K, workspace, 0);
}
EXPORTED shortly(const float* values, const int32_t* columns, const int32_t* offsets, const float* X, float* Y, char* workspace, int64_t rows,
                 int64_t cols, int64_t total, int64_t K) {
    return multiply_shortly(CsrRows{values, columns, offsets, int(rows), int(cols), int(total)}, X, Y, K, workspace, 0);
}
EXPORTED room(int64_t* bytes, int64_t total, int64_t K) {
    *bytes = int64_t(std::max(gather_bytes(K), VeryLongRows::bytes(total, K)));
    return 0;
}
"""


@pytest.mark.parametrize("kind", ["even", "long", "empty", "first", "last", "large shares", "1", "32", "200", "300"])
@pytest.mark.parametrize(
    ("plan", "K"), [("runs", 72), ("runs", 64), ("shortly", 77), ("shortly", 3), ("shortly", 33), ("shortly", 131)]
)
def test_products_by_runs_and_shortly(plan: str, K: int, kind: str) -> None:
    """Twice, in a workspace that holds NaN: rows that are empty, end amid a flight, are one block's or several blocks'."""
    rng = np.random.default_rng(K)
    lengths = lengths_of(kind, rng)
    rows, total, cols = lengths.size, int(lengths.sum()), 50
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values, columns = rng.integers(-8, 9, total).astype(np.float32), rng.integers(0, cols, total).astype(np.int32)
    X = rng.integers(-8, 9, (cols, K)).astype(np.float32)
    room = int(called("float", PLANS, "room", np.zeros(1, np.int64), total, K)[0][0])
    given = [values, columns, offsets, X, np.full((rows, K), np.nan, np.float32), np.full(room, 255, np.uint8)]
    Y = called("float", PLANS, plan, *given, rows, cols, total, K, times=2)[4]
    expected = np.zeros((rows, K), np.float32)
    np.add.at(expected, np.repeat(np.arange(rows), lengths), values[:, None] * X[columns])
    np.testing.assert_array_equal(Y, expected)
