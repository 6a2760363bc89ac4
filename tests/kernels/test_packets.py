"""msbench_packets.cuh: maps reach every element once, wherever arrays begin, and keep bits where they are told to."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import TYPES, bf16_bits, called, floats

SOURCE = """
#include <msbench_packets.cuh>

struct Weigh {
    __device__ float operator()(float x, int32_t label) const { return label == 0 ? -x : x; }
};
struct Same {
    template <int kWidth>
    __device__ msbench::Group<scalar_t, kWidth> operator()(const msbench::Group<scalar_t, kWidth>& group) const { return group; }
};

// x, label and y begin this many elements after 64-byte boundaries.
EXPORTED weigh(scalar_t* x, int32_t* label, scalar_t* y, int64_t count, int64_t dx, int64_t dlabel, int64_t dy) {
    return msbench::map(nullptr, count, Weigh(), y + dy, x + dx, label + dlabel);
}
EXPORTED copy(scalar_t* x, scalar_t* y, int64_t count, int64_t dx, int64_t dy) {
    return msbench::map(nullptr, count, Same(), y + dy, x + dx);
}
"""


@pytest.mark.parametrize("starts", [(0, 0, 0), (3, 3, 3), (1, 2, 3), (4, 4, 0)])
@pytest.mark.parametrize("count", [1, 7, 4099, 140_001])
@pytest.mark.parametrize("scalar", TYPES)
def test_a_map_is_right_wherever_arrays_begin(scalar: str, count: int, starts: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(count)
    values = rng.integers(-100, 100, count)
    labels = rng.integers(0, 2, count)
    dx, dlabel, dy = starts
    # The process gets copies, which NumPy aligns to 16 bytes.
    x, label, y = (np.zeros(count + 16, dtype) for dtype in (TYPES[scalar], np.dtype(np.int32), TYPES[scalar]))
    x[dx : dx + count] = values if scalar == "float" else bf16_bits(values)
    label[dlabel : dlabel + count] = labels
    y[:] = x.dtype.type(77)
    *_, after = called(scalar, SOURCE, "weigh", x, label, y, count, dx, dlabel, dy)
    np.testing.assert_array_equal(floats(after[dy : dy + count]), np.where(labels == 0, -values, values))
    outside = np.delete(after, np.s_[dy : dy + count])
    np.testing.assert_array_equal(outside, 77)


@pytest.mark.parametrize("starts", [(0, 0), (5, 5), (1, 0)])
@pytest.mark.parametrize("scalar", TYPES)
def test_a_map_of_groups_keeps_every_bit(scalar: str, starts: tuple[int, int]) -> None:
    dx, dy = starts
    count = 140_000
    bits = np.random.default_rng(5).integers(0, 256, count * TYPES[scalar].itemsize, dtype=np.uint8)
    x = np.concatenate([np.zeros(dx, TYPES[scalar]), bits.view(TYPES[scalar])])
    y = np.zeros(count + 16, TYPES[scalar])
    _, after = called(scalar, SOURCE, "copy", x, y, count, dx, dy)
    assert after[dy : dy + count].tobytes() == bits.tobytes()
