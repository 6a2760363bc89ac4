"""msbench_packets.cuh: maps reach every element once, wherever arrays begin, and keep bits where they are told to. msbench_load_if.cuh."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import TYPES, bf16_bits, called, floats

SOURCE = """
#include <msbench_load_if.cuh>
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
__global__ void load_some(const scalar_t* x, const int32_t* wanted, float* y, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        msbench::Loaded<scalar_t> loaded;
        loaded.load_if(wanted[i] != 0, x + (wanted[i] ? i : int64_t(1) << 40));
        if (wanted[i]) y[i] = loaded.value();
    }
}
EXPORTED load_if(const scalar_t* x, const int32_t* wanted, float* y, int64_t count) {
    load_some<<<1, 64>>>(x, wanted, y, int(count));
    return cudaGetLastError();
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


@pytest.mark.parametrize("scalar", TYPES)
def test_only_what_is_wanted_is_loaded(scalar: str) -> None:
    """Addresses of the others are nowhere."""
    rng = np.random.default_rng(9)
    values, wanted = rng.integers(-100, 100, 300), rng.integers(0, 2, 300).astype(np.int32)
    x = (values if scalar == "float" else bf16_bits(values)).astype(TYPES[scalar])
    y = called(scalar, SOURCE, "load_if", x, wanted, np.full(300, 77, np.float32), 300)[2]
    np.testing.assert_array_equal(y, np.where(wanted, values, 77))
