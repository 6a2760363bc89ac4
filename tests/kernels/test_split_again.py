"""msbench_split_tiles.cuh and what it computes again: on the emulator, with the tensor cores' instructions in software (soft_hopper/)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.building import called
from tests.kernels.hopper import soft_headers

SOURCE = """
#include <msbench_split_tiles.cuh>

#include <vector>

using namespace msbench;

// What split_lines makes of lines, a thread each.
__global__ void split(const Lines from, const Planes to, int panels) {
    const int line = blockIdx.x * blockDim.x + threadIdx.x;
    const auto number = [&](int k) { return line < from.count && k < from.K ? from.value(line, k) : 0.0f; };
    Extremes extremes;
    for (int k = 0; k < from.K; ++k) extremes.look(number(k));
    float unscale = extremes.unscale();
    const float scale = scale_of(unscale);
    if (__float_as_uint(unscale) >> 31) {
        float lost = 0;
        for (int k = 0; k < from.K; ++k) lost += loss_of(number(k), scale);
        if (unscale != unscale) lost = unscale;
        if (lost == 0.0f) unscale = fabsf(unscale);
        to.losses[line] = lost;
    }
    to.unscales[line] = unscale;
    for (int c = 0; c < panels * 4; ++c) {
        float x[8];
        for (int i = 0; i < 8; ++i) x[i] = number(c * 8 + i);
        store_split(x, scale, to, c / 4, line, c % 4);
    }
}

EXPORTED run(const float* A, const float* B, float* C, int64_t M, int64_t N, int64_t K, int64_t slices) {
    using namespace split_product;
    const int panels = int(ceil_div(K, 96)) * 3, tiles_m = int(ceil_div(M, 128)), tiles_n = int(ceil_div(N, 128));
    const Lines lines[2] = {{A, int(M), int(K), int(M), int(K), 0, K, 0, 1}, {B, int(N), int(K), int(N), int(K), 0, 1, 0, N}};
    std::vector<uint4> panels_of[2];
    std::vector<float> numbers_of[2];
    Planes planes[2];
    for (int i = 0; i < 2; ++i) {
        const int count = (i ? tiles_n : tiles_m) * 128;
        panels_of[i].resize(count * panels * 8), numbers_of[i].resize(2 * count);
        planes[i] = {reinterpret_cast<unsigned char*>(panels_of[i].data()), numbers_of[i].data(), count, numbers_of[i].data() + count};
        split<<<count / 128, 128>>>(lines[i], planes[i], panels);
    }
    const int slice_panels = int(ceil_div(ceil_div(panels, slices), kChainPanels)) * kChainPanels;
    const Shape shape{int(M), int(N), int(K), panels, int(ceil_div(panels, slice_panels)), slice_panels, N, false};
    const int works = tiles_m * tiles_n * shape.slices;
    const cudaError_t error = cudaFuncSetAttribute(multiply<Lines>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (error != cudaSuccess) return int(error);
    // Without slices two blocks take the tiles in turn.
    multiply<Lines><<<shape.slices > 1 || works < 2 ? works : 2, kThreads, kSharedBytes>>>(planes[0], planes[1], lines[0], lines[1], C, shape);
    return int(cudaGetLastError());
}
"""


@pytest.fixture(scope="module")
def include(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return soft_headers(tmp_path_factory.mktemp("include"))


def product(include: Path, A: Any, B: Any, slices: int) -> Any:
    A, B = (np.ascontiguousarray(each, np.float32) for each in (A, B))
    (M, K), N = A.shape, B.shape[1]
    C = np.zeros((M, N), np.float32)
    *_, C = called("float", SOURCE, "run", A, B, C, M, N, K, slices, include=include)
    return C


def check(include: Path, A: Any, B: Any, slices: int = 1) -> None:
    """Against float64: within 16 roundings of the sum of sizes, and not finite where that is not."""
    A, B = (np.asarray(each, np.float32).astype(float) for each in (A, B))
    C = product(include, A, B, slices)
    with np.errstate(all="ignore"):
        expected = A @ B
        sizes = np.abs(A) @ np.abs(B)
        finite = np.isfinite(expected.astype(np.float32))
        np.testing.assert_array_equal(C[~finite], expected[~finite].astype(np.float32))
        assert np.all(np.abs(C - expected)[finite] <= 16 * 2.0**-24 * sizes[finite] + 2.0**-149)


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("M", "N", "K", "slices"), [(128, 128, 96, 1), (140, 270, 100, 1), (131, 20, 300, 3)])
def test_usual_numbers_and_some_that_are_not_finite(include: Path, M: int, N: int, K: int, slices: int) -> None:
    A, B = numbers(1, M, K), numbers(2, K, N)
    check(include, A, B, slices)
    A[3, K - 1], A[7, 0], A[M - 1, K // 2] = np.inf, -np.inf, np.nan
    B[K // 3, N - 1], B[K - 1, 5], B[K - 1, 9] = np.inf, np.nan, 0
    check(include, A, B, slices)


def test_lines_whose_numbers_lie_far_apart(include: Path) -> None:
    A, B = numbers(3, 130, 100), numbers(4, 100, 40)
    A[3] *= np.float32(2.0**-120)
    A[3, 1], A[6, 2:] = 1, 2.0**-149
    B[1, :20] = 0
    B[::2, 39] *= np.float32(2.0**-110)
    check(include, A, B)
    spread = np.exp2(np.random.default_rng(5).uniform(-60, 60, (130, 100))).astype(np.float32)
    check(include, numbers(6, 130, 100) * spread, B)


@pytest.mark.parametrize("large", [2.0**70, 2.0**82, 1e30])
def test_a_large_number_that_meets_zeros_hides_none(include: Path, large: float) -> None:
    """Of two scaled numbers that are whole the product may be too small."""
    A, B = np.zeros((4, 40), np.float32), np.zeros((40, 4), np.float32)
    A[:, 0], A[:, 1], B[1], B[2] = large, 1, 1, large
    check(include, A, B)
    A[:, 1] = 1e-30  # scaled, nothing is left of it
    check(include, A, B)


def test_an_infinity_in_one_slice_and_a_large_number_in_another(include: Path) -> None:
    A, B = np.zeros((4, 300), np.float32), np.zeros((300, 4), np.float32)
    A[:, 0], A[:, 250], B[0], B[250], B[1] = np.inf, -2e38, 1, 1e-3, 1
    check(include, A, B, slices=3)
