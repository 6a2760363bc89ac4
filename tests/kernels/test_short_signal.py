"""msbench_short_signal.cuh: correlations by FFMA, with the filter shared by one warp or several."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import bf16_bits, called, floats

SOURCE = """
#include <msbench_short_signal.cuh>

EXPORTED run(scalar_t* x, scalar_t* w, scalar_t* y, int64_t N, int64_t K, int64_t offset, int64_t shares) {
    using namespace msbench;
    y += offset;
    return shares == 1 ? correlate_by<ShortPlan<4, 1>>(x, w, y, N, K, nullptr) : shares == 2 ? correlate_by<ShortPlan<8, 2>>(x, w, y, N, K, nullptr)
         : shares == 4 ? correlate_by<ShortPlan<4, 4>>(x, w, y, N, K, nullptr) : correlate_short_signal(x, w, y, N, K, nullptr);
}
"""


@pytest.mark.parametrize("scalar", ["float", "__nv_bfloat16"])
@pytest.mark.parametrize("shares", [0, 1, 2, 4])
@pytest.mark.parametrize(("N", "K", "offset"), [(1500, 32, 0), (1403, 77, 1), (131, 130, 0), (9, 1, 2)])
def test_against_float64(scalar: str, shares: int, N: int, K: int, offset: int) -> None:
    rng = np.random.default_rng(N)
    given = [rng.uniform(-1, 1, count).astype(np.float32) for count in (N, K)]
    given = [bf16_bits(each) if scalar != "float" else each for each in given]
    y = np.full(N - K + 1 + 2 * offset, 77, given[0].dtype)
    *_, y = called(scalar, SOURCE, "run", *given, y, N, K, offset, shares)
    x, w = (floats(each).astype(np.float64) for each in given)
    outside = np.concatenate([y[:offset], y[offset + N - K + 1 :]])
    assert np.all(outside == 77)
    y = floats(y[offset : offset + N - K + 1])
    once = 2.0**-8 if scalar != "float" else 2.0**-20
    np.testing.assert_allclose(y, np.correlate(x, w, "valid"), rtol=once, atol=2.0**-21 * np.sqrt(K))
