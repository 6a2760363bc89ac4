"""Keys sorted by which of four rows count them, softmaxes of such rows, and a row by its maximum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_channel_rows.cuh>
#include <msbench_pattern_softmax.cuh>

using namespace msbench;
using namespace key_patterns;

EXPORTED sorted(const float* mask, unsigned char* lists, int64_t S, int64_t B) {
    const int count = int(B * lists_of<64>(S));
    sort_keys<64><<<int(ceil_div(count * 32, kSortThreads)), kSortThreads>>>(mask, reinterpret_cast<List<64>*>(lists), int(S), count);
    return sizeof(List<64>) == 176 ? cudaGetLastError() : -1;
}

// Four rows of a channel a lane, over the keys of some lists one after another.
__global__ void rows(const float* q, const float* k, const float* v, const unsigned char* lists, float* y, int windows, int look) {
    __shared__ float2 window[64][32];
    const List<64>* list = reinterpret_cast<const List<64>*>(lists);
    Rows s;
    int counted = 0;
    for (int r = 0; r < kRows; ++r) s.query[r] = q[r * 32 + threadIdx.x];
    for (int w = 0; w < windows; ++w) {
        float least = INFINITY, largest = -INFINITY;
        for (int j = 0; j < 64; ++j) {
            const float key = k[(w * 64 + j) * 32 + threadIdx.x];
            window[j][threadIdx.x] = make_float2(key, v[(w * 64 + j) * 32 + threadIdx.x]);
            least = fminf(least, key), largest = fmaxf(largest, key);
        }
        const View<64> view{reinterpret_cast<const unsigned char*>(window), unsigned(threadIdx.x * 8), list + w};
        if (look) move_origins(s, view, least, largest);
        add_patterns<kPatterns - 1>(s, view, view.list->keys, counted);
    }
    for (int r = 0; r < kRows; ++r) y[r * 32 + threadIdx.x] = counted >> r & 1 ? s.weighted[r] / s.sum[r] : 0.0f;
}
EXPORTED softmaxes(const float* q, const float* k, const float* v, const unsigned char* lists, float* y, int64_t windows, int64_t look) {
    rows<<<1, 32>>>(q, k, v, lists, y, int(windows), int(look));
    return cudaGetLastError();
}

__global__ void maxima(Channel c, const float* mask) {
    const int row = blockIdx.x;
    c.q += threadIdx.x, c.k += threadIdx.x, c.v += threadIdx.x, c.y += threadIdx.x;
    c.store(row, with_maximum(c, row, [&](int j) { return !(mask[row * c.S + j] > 0.5f); }));
}
EXPORTED by_maximum(float* q, float* k, float* v, float* y, const float* mask, int64_t S, int64_t D) {
    maxima<<<int(S), int(D)>>>(Channel{q, k, v, y, int(S), int(D), kLog2e}, mask);
    return cudaGetLastError();
}
"""

BYTES, WINDOW = 176, 64


def counts(mask: Any) -> Any:
    return np.tril(~(mask > 0.5))


def patterns(mask: Any) -> Any:
    """For every four rows and every key: a bit for each row that counts it."""
    S = mask.shape[-1]
    padded = np.zeros((-(-S // 4) * 4, S), bool)
    padded[:S] = counts(mask)
    return (padded.reshape(-1, 4, S) * np.array([1, 2, 4, 8])[:, None]).sum(axis=1)


@pytest.mark.parametrize("B, S", [(1, 1), (2, 64), (3, 77), (1, 130)])
def test_keys_are_sorted_by_the_rows_that_count_them(B: int, S: int) -> None:
    mask = np.random.default_rng(S).uniform(-1, 1, (B, S, S)).astype(np.float32)
    mask[0, :, 0], mask[0, S // 2] = np.nan, 1
    fours, windows = -(-S // 4), -(-S // WINDOW)
    _, lists = called("float", SOURCE, "sorted", mask, np.full((B, fours, windows, BYTES), 255, np.uint8), S, B)
    for b in range(B):
        expected = patterns(mask[b])
        for four in range(fours):
            for window in range(windows):
                if window * WINDOW > four * 4 + 3:
                    continue
                got, start = lists[b, four, window], 64
                bits = np.unpackbits(got[32:64].reshape(4, 8), axis=1, bitorder="little")
                columns = expected[four, window * WINDOW : (window + 1) * WINDOW]
                np.testing.assert_array_equal(bits[:, : len(columns)], columns >> np.arange(4)[:, None] & 1)
                for pattern in range(15, 0, -1):
                    count = int(got[:32].view(np.uint16)[pattern])
                    keys = np.flatnonzero(expected[four, window * WINDOW : (window + 1) * WINDOW] == pattern)
                    np.testing.assert_array_equal(got[start : start + count], keys)
                    end = start + -(-count // 4) * 4
                    assert set(got[start + count : end]) <= set(keys)
                    start = end


def softmax_rows(q: Any, k: Any, v: Any, counted: Any) -> Any:
    """Of scores to base 2: [rows, channels]."""
    scores = np.where(counted[:, :, None], q[:, None].astype(float) * k, -np.inf)
    top = np.where(counted.any(axis=1)[:, None], scores.max(axis=1), 0)
    weights = np.exp2(scores - top[:, None])
    return (weights * v).sum(axis=1) / np.where(counted.any(axis=1)[:, None], weights.sum(axis=1), 1)


@pytest.mark.parametrize("size, lanes, look", [(1, 32, 0), (7, 32, 0), (7, 32, 1), (100, 32, 1), (100, 3, 1)])
def test_softmaxes_of_rows_that_count_other_keys(size: float, lanes: int, look: int) -> None:
    rng = np.random.default_rng(int(size) + look)
    S = 128
    mask = rng.uniform(-1, 1, (1, S, S)).astype(np.float32)
    mask[0, S - 2] = 1
    q, k, v = (rng.uniform(-1, 1, (n, 32)).astype(np.float32) for n in (4, S, S))
    q[:, :lanes], k[:, :lanes] = q[:, :lanes] * np.float32(size), k[:, :lanes] * np.float32(size)
    _, lists = called("float", SOURCE, "sorted", mask, np.zeros((S // 4, S // WINDOW, BYTES), np.uint8), S, 1)
    *_, y = called(
        "float", SOURCE, "softmaxes", q, k, v, lists[-1].copy(), np.empty((4, 32), np.float32), S // WINDOW, look
    )
    np.testing.assert_allclose(
        y, softmax_rows(q, k, v, counts(mask[0])[-4:]), rtol=0, atol=2e-6 * max(1, size * size / 100)
    )


def test_a_row_by_its_maximum() -> None:
    rng = np.random.default_rng(5)
    S, D = 40, 3
    q, k, v = (rng.uniform(-9, 9, (S, D)).astype(np.float32) for _ in range(3))
    mask = rng.uniform(-1, 1, (S, S)).astype(np.float32)
    mask[7] = 1
    *_, y, _ = called("float", SOURCE, "by_maximum", q, k, v, np.empty((S, D), np.float32), mask, S, D)
    expected = np.concatenate(
        [softmax_rows(q[i : i + 1] * np.log2(np.e), k, v, counts(mask)[i : i + 1]) for i in range(S)]
    )
    np.testing.assert_allclose(y, expected, atol=2e-5)
