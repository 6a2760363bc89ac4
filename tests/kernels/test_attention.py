"""What attention is made of where no tensor core is needed: small attention, softmaxes of rows and of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.building import TYPES, called, floats

SOURCE = """
#include <msbench_running_softmax.cuh>
#include <msbench_score_rows.cuh>
#include <msbench_small_attention.cuh>

using namespace msbench;

EXPORTED small(float* Q, float* K, float* V, float* Y, int64_t q, int64_t kv, int64_t d, int64_t dv, float* scores) {
    return small_attention::attend_small(Q, K, V, Y, q, kv, d, dv, scores, nullptr);
}

EXPORTED softmaxes(float* layers, scalar_t* weights, int64_t q, int64_t kv, int64_t pitch, int64_t to_pitch, int64_t count, int64_t d) {
    return softmax(layers, weights, q, kv, pitch, to_pitch, int(count), d, nullptr);
}

// Sixteen rows of scores, `pitch` apart, of which `keys` count, in tiles of 64; out: sums of a row's weights and of weights times keys' numbers.
template <int kSlack, int kTop>
__global__ void tiles(const float* scores, float* out, int keys, int pitch, float scale) {
    const int lane = threadIdx.x;
    RunningSoftmax<kSlack, kTop> state;
    const float scales[2] = {scale, scale};
    float weighed[2] = {};
    for (int first = 0; first < keys; first += 64) {
        float s[32], factor[2];
        for (int i = 0; i < 32; ++i) s[i] = scores[(i / 2 % 2 * 8 + lane / 4) * pitch + first + i / 4 * 8 + lane % 4 * 2 + i % 2];
        const int left = keys - first;
        const bool moves = left < 64 ? state.template weigh<true>(s, factor, scales, left, lane)
                                     : state.template weigh<false>(s, factor, scales, left, lane);
        for (int h = 0; h < 2; ++h) {
            if (moves) weighed[h] *= factor[h];
            for (int i = 0; i < 32; ++i) {
                if (i / 2 % 2 == h) weighed[h] += s[i] * float(first + i / 4 * 8 + lane % 4 * 2 + i % 2);
            }
        }
    }
    for (int h = 0; h < 2; ++h) {
        atomicAdd(out + 2 * (h * 8 + lane / 4), state.sum[h]);
        atomicAdd(out + 2 * (h * 8 + lane / 4) + 1, weighed[h]);
    }
}
EXPORTED running(float* scores, float* out, int64_t keys, int64_t pitch, int64_t wide) {
    if (wide) tiles<8, 0><<<1, 32>>>(scores, out, int(keys), int(pitch), kLog2e);
    else tiles<1, 14><<<1, 32>>>(scores, out, int(keys), int(pitch), kLog2e);
    return cudaGetLastError();
}
"""


def softmax(scores: Any) -> Any:
    weights = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def drawn(q: int, kv: int, d: int, dv: int) -> tuple[Any, Any, Any, Any]:
    """Queries, keys, values and the result; scores differ by a few units."""
    rng = np.random.default_rng(q * kv + d)
    Q, K, V = (rng.uniform(-2, 2, shape).astype(np.float32) for shape in ((q, d), (kv, d), (kv, dv)))
    return Q, K, V, softmax(Q.astype(np.float64) @ K.T / np.sqrt(d)) @ V


SIZES = [(1, 1, 1, 1), (16, 16, 32, 32), (17, 33, 40, 33), (15, 255, 7, 31), (5, 257, 33, 70), (3, 1024, 12, 5)]


@pytest.mark.parametrize("q, kv, d, dv", SIZES)
def test_small_attention(q: int, kv: int, d: int, dv: int) -> None:
    Q, K, V, expected = drawn(q, kv, d, dv)
    scores, Y = np.empty((q, kv), np.float32), np.full(q * dv + 3, 77, np.float32)
    _, _, _, Y, _ = called("float", SOURCE, "small", Q, K, V, Y, q, kv, d, dv, scores)
    np.testing.assert_allclose(Y[: q * dv].reshape(q, dv), expected, atol=2e-6)
    assert np.all(Y[q * dv :] == 77)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row_or_column(bad: float) -> None:
    Q, K, V, expected = drawn(18, 40, 8, 35)
    Q[17, 3] = bad
    V[39, 34] = np.nan
    *_, Y, _ = called(
        "float", SOURCE, "small", Q, K, V, np.empty((18, 35), np.float32), 18, 40, 8, 35, np.empty((18, 40), np.float32)
    )
    assert np.all(np.isnan(Y[17])) and np.all(np.isnan(Y[:, 34]))
    np.testing.assert_allclose(Y[:17, :34], expected[:17, :34], atol=2e-6)


@pytest.mark.parametrize("scalar", TYPES)
@pytest.mark.parametrize("q, kv, count", [(1, 1, 1), (3, 5, 2), (2, 1030, 3), (4, 256, 1)])
def test_softmaxes_of_layers_end_in_zeros(scalar: str, q: int, kv: int, count: int) -> None:
    rng = np.random.default_rng(kv)
    d, pitch, to_pitch = 16, -(-kv // 4) * 4, -(-kv // 8) * 8
    layers = np.full((count, q, pitch), np.nan, np.float32)
    layers[:, :, :kv] = rng.uniform(-9, 9, (count, q, kv))
    weights = np.full((q, to_pitch), 77, TYPES[scalar])
    _, weights = called(scalar, SOURCE, "softmaxes", layers, weights, q, kv, pitch, to_pitch, count, d)
    expected = softmax(layers[:, :, :kv].sum(axis=0) / np.sqrt(d))
    np.testing.assert_allclose(floats(weights)[:, :kv], expected, rtol=2e-6 if scalar == "float" else 4.1e-3, atol=1e-7)
    assert np.all(floats(weights)[:, kv:] == 0)


@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize("keys", [1, 63, 64, 65, 300])
def test_a_running_softmax_follows_its_largest_score(keys: int, wide: int) -> None:
    rng = np.random.default_rng(keys)
    scores = rng.uniform(-3, 3, (16, -(-keys // 64) * 64)).astype(np.float32)
    scores[:8] += np.linspace(0, 40, scores.shape[1], dtype=np.float32)  # later ones are larger
    scores[4, :64] = -np.inf if keys > 64 else 0.0
    scores[:, keys:] = np.nan
    counted = scores[:, :keys]
    *_, out = called("float", SOURCE, "running", scores, np.zeros((16, 2), np.float32), keys, scores.shape[1], wide)
    np.testing.assert_allclose(out[:, 1] / out[:, 0], softmax(counted) @ np.arange(keys), rtol=1e-5, atol=1e-5)
    weights = np.exp(counted.astype(np.float64) - counted.max(axis=1, keepdims=True)).sum(axis=1)
    low, high = (1, 2.0**8) if wide else (2.0**14, 2.0**15)
    assert np.all(out[:, 0] >= weights * low * 0.9999) and np.all(out[:, 0] <= weights * high * 1.0001)
