"""msbench_tiny_product.cuh: on the emulator, with mma.sync and ldmatrix in software (soft_hopper/)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.kernels.building import bf16_bits, called
from tests.kernels.hopper import soft_headers

SOURCE = """
#include <msbench_tiny_product.cuh>

// Rows of A and B start on 16 bytes.
EXPORTED run(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int64_t M, int64_t N, int64_t K, int64_t pitch, int64_t vectors) {
    const msbench::tiny_product::Factors factors{A, B, int(K + 7) / 8 * 8, int(N + 7) / 8 * 8, int(M), int(N), int(K)};
    return msbench::multiply_tiny(factors, {C, int(pitch), vectors != 0}, false, nullptr);
}

EXPORTED allowed(int64_t a_offset, int64_t b_offset, int64_t a_pitch, int64_t b_pitch, int64_t K, int* answer) {
    const auto at = [](int64_t elements) { return reinterpret_cast<const __nv_bfloat16*>(4096 + 2 * elements); };
    *answer = msbench::tiny_product_allowed({at(a_offset), at(b_offset), int(a_pitch), int(b_pitch), 8, 8, int(K)});
    return 0;
}
"""
NAN, UNTOUCHED = 0x7FC0, 0x1234


@pytest.mark.parametrize("M, N, K", [(1, 1, 1), (16, 16, 16), (17, 9, 100), (33, 50, 30), (16, 40, 128), (5, 24, 127)])
@pytest.mark.parametrize("vectors", [True, False])
def test_integers_are_exact_and_nothing_comes_from_padding(
    M: int, N: int, K: int, vectors: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(M * N)
    factors = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((M, K), (K, N))]
    padded = []
    for factor in factors:
        padded.append(np.full((factor.shape[0], -(-factor.shape[1] // 8) * 8), NAN, np.uint16))
        padded[-1][:, : factor.shape[1]] = bf16_bits(factor)
    C = np.full((M + 1, padded[1].shape[1] if vectors else N + 3), UNTOUCHED, np.uint16)
    *_, C = called(
        "__nv_bfloat16", SOURCE, "run", *padded, C, M, N, K, C.shape[1], int(vectors), include=soft_headers(tmp_path)
    )
    np.testing.assert_array_equal(C[:M, :N], bf16_bits(factors[0] @ factors[1]))
    assert np.all(C[M] == UNTOUCHED)
    assert vectors or np.all(C[:M, N:] == UNTOUCHED)


def test_zero_times_infinity_is_nan_in_its_column_only(tmp_path: Path) -> None:
    A, B = np.zeros((8, 40), np.uint16), np.full((40, 8), 0x3F80, np.uint16)
    B[17, 3] = 0x7F80
    C = np.zeros((8, 8), np.uint16)
    *_, C = called("__nv_bfloat16", SOURCE, "run", A, B, C, 8, 8, 40, 8, 1, include=soft_headers(tmp_path))
    np.testing.assert_array_equal((C & 0x7FFF) > 0x7F80, np.tile(np.arange(8) == 3, (8, 1)))


@pytest.mark.parametrize(
    "given, expected",
    [
        ((0, 0, 128, 16, 128), True),
        ((8, 16, 8, 8, 1), True),
        ((0, 0, 136, 16, 129), False),
        ((4, 0, 128, 16, 128), False),
        ((0, 1, 128, 16, 128), False),
        ((0, 0, 124, 16, 124), False),
        ((0, 0, 128, 12, 128), False),
    ],
)
def test_what_packets_cannot_do_is_left_to_others(given: tuple[int, ...], expected: bool, tmp_path: Path) -> None:
    *_, answer = called(
        "__nv_bfloat16", SOURCE, "allowed", *given, np.zeros(1, np.int32), include=soft_headers(tmp_path)
    )
    assert bool(answer[0]) == expected
