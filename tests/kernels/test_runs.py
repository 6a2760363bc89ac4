"""Products whose lines lie in runs: on the emulator, with the tensor cores' instructions in software (soft_hopper/)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.building import bf16_bits, called, floats
from tests.kernels.hopper import soft_headers

SOURCE = """
#include <msbench_few_rows.cuh>
#include <msbench_row_stream.cuh>
#include <msbench_split_stream.cuh>

using namespace msbench;

cudaError_t stream(const RunFactor<float>& A, const RunFactor<float>& B, float* C) { return split_stream::launch(A, B, C, nullptr); }
cudaError_t stream(const RunFactor<__nv_bfloat16>& A, const RunFactor<__nv_bfloat16>& B, __nv_bfloat16* C) {
    return row_stream::launch(A, B, C, nullptr);
}

// A is [outer, x, inner, y], B is [x, columns, y].
EXPORTED run(scalar_t* A, scalar_t* B, scalar_t* C, int64_t outer, int64_t inner, int64_t columns, int64_t x, int64_t y, int64_t few) {
    constexpr int kPacket = Packet<scalar_t>::kSize;
    const auto runs = [&](const scalar_t* data, int64_t outer, int64_t inner) {
        return RunFactor<scalar_t>{data, x * inner * y, int(inner * y), int(outer * inner), int(x * y / kPacket), Divisor(uint32_t(inner)),
                                   Divisor(uint32_t(y / kPacket))};
    };
    const auto a = runs(A, outer, inner), b = runs(B, 1, columns);
    return few ? few_rows::launch(a, b, C, nullptr) : stream(a, b, C);
}
"""


@pytest.fixture(scope="module")
def include(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return soft_headers(tmp_path_factory.mktemp("include"))


def check(include: Path, scalar: str, A: Any, B: Any, few: bool) -> None:
    """Against float64: within 16 roundings of the sum of sizes, and not finite where that is not."""
    (outer, x, inner, y), columns = A.shape, B.shape[1]
    given = [bf16_bits(each) if scalar != "float" else np.ascontiguousarray(each, np.float32) for each in (A, B)]
    C = np.zeros((outer, inner, columns), given[0].dtype)
    *_, C = called(scalar, SOURCE, "run", *given, C, outer, inner, columns, x, y, int(few), include=include)
    A, B, C = (floats(each) for each in (*given, C))
    with np.errstate(all="ignore"):
        expected = np.einsum("axby,xcy->abc", A, B)
        sizes = np.einsum("axby,xcy->abc", np.abs(A), np.abs(B))
        finite = np.isfinite(expected.astype(np.float32))
        np.testing.assert_array_equal(C[~finite], expected[~finite].astype(np.float32))
        once = 2.0**-8 * np.abs(expected) if scalar != "float" else 0.0
        assert np.all((np.abs(C - expected) <= 16 * 2.0**-24 * sizes + once + 2.0**-126)[finite])


def numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SHAPES = [(1, 8, 16, 1, 8), (3, 50, 70, 5, 16), (2, 33, 130, 3, 40), (5, 7, 9, 17, 8), (70, 4, 20, 2, 64)]


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("scalar", ["float", "__nv_bfloat16"])
@pytest.mark.parametrize(("outer", "inner", "columns", "x", "y"), SHAPES)
def test_usual_numbers(
    include: Path, scalar: str, few: bool, outer: int, inner: int, columns: int, x: int, y: int
) -> None:
    check(include, scalar, numbers(1, outer, x, inner, y), numbers(2, x, columns, y), few)


@pytest.mark.parametrize("few", [False, True])
def test_numbers_that_are_not_finite_and_lines_whose_numbers_lie_far_apart(include: Path, few: bool) -> None:
    A, B = numbers(3, 3, 5, 50, 20), numbers(4, 5, 30, 20)
    A[0, 4, 3, 19], A[1, 0, 7, 0], A[2, 2, 49, 3] = np.inf, -np.inf, np.nan
    B[3, 29, 0], B[4, 5, 19], B[0, 9, 0] = np.inf, np.nan, 0
    check(include, "float", A, B, few)
    A, B = numbers(5, 3, 5, 50, 20), numbers(6, 5, 30, 20)
    A[0, :, 3] *= np.float32(2.0**-120)
    A[0, 0, 3, 1], A[0, 1:, 6] = 1, 2.0**-149
    A[1, :, 4] = 0
    B[0, :20, 1] = 0
    B[::2, 29] *= np.float32(2.0**-110)
    check(include, "float", A, B, few)
    A *= np.exp2(np.random.default_rng(7).uniform(-60, 60, A.shape)).astype(np.float32)
    check(include, "float", A, B, few)


@pytest.mark.parametrize("large", [2.0**70, 2.0**82, 1e30])
def test_a_large_number_that_meets_zeros_hides_none(include: Path, large: float) -> None:
    A, B = np.zeros((1, 2, 8, 8), np.float32), np.zeros((2, 8, 8), np.float32)
    A[..., 0, :, 0], A[..., 0, :, 1], B[0, :, 1], B[0, :, 2] = large, 1, 1, large
    check(include, "float", A, B, False)
    A[..., 0, :, 1] = 1e-30
    check(include, "float", A, B, False)
