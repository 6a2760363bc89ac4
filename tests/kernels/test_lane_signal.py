"""msbench_lane_signal.cuh: correlations by lanes that share outputs, for any number of samples and with y anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import bf16_bits, called, floats

SOURCE = """
#include <msbench_lane_signal.cuh>

EXPORTED run(scalar_t* x, scalar_t* w, scalar_t* y, int64_t N, int64_t K, int64_t offset) {
    using namespace msbench;
    if (!suits_lanes(x, w, N, K) || suits_lanes(x + 1, w, N, K) || suits_lanes(x, w, N, K - 1) || suits_lanes(x, w, 1 << 17, K)) return cudaErrorInvalidValue;
    return correlate_by_lanes(x, w, y + offset, N, K, nullptr);
}
"""


@pytest.mark.parametrize("scalar", ["float", "__nv_bfloat16"])
@pytest.mark.parametrize(
    ("N", "K", "offset"), [(1500, 32, 0), (1403, 44, 1), (131, 128, 0), (66, 64, 1), (9, 4, 2), (4, 4, 0)]
)
def test_against_float64(scalar: str, N: int, K: int, offset: int) -> None:
    rng = np.random.default_rng(N)
    given = [rng.uniform(-1, 1, count).astype(np.float32) for count in (N, K)]
    given = [bf16_bits(each) if scalar != "float" else each for each in given]
    y = np.full(N - K + 1 + 2 * offset, 77, given[0].dtype)
    *_, y = called(scalar, SOURCE, "run", *given, y, N, K, offset)
    x, w = (floats(each).astype(np.float64) for each in given)
    outside = np.concatenate([y[:offset], y[offset + N - K + 1 :]])
    assert np.all(outside == 77)
    y = floats(y[offset : offset + N - K + 1])
    once = 2.0**-8 if scalar != "float" else 2.0**-20
    np.testing.assert_allclose(y, np.correlate(x, w, "valid"), rtol=once, atol=2.0**-21 * np.sqrt(K))
