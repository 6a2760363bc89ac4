"""msbench_dft.cuh: transforms in registers, at a factor and without one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.building import called

SOURCE = """
#include <msbench_dft.cuh>

template <bool kUnit, int R>
__global__ void transform(const float* x, float* y, float turns) {
    float2 v[R];
    for (int i = 0; i < R; ++i) v[i] = make_float2(x[2 * i], x[2 * i + 1]);
    msbench::dft<kUnit>(v, kUnit ? make_float2(1, 0) : msbench::root_of_unity(int(turns * 1024), 2.0f / 1024));
    for (int i = 0; i < R; ++i) y[2 * i] = v[i].x, y[2 * i + 1] = v[i].y;
}
template <int R>
cudaError_t launch(float* x, float* y, int64_t over_1024) {
    if (over_1024 < 0) transform<true, R><<<1, 1>>>(x, y, 0);
    else transform<false, R><<<1, 1>>>(x, y, float(over_1024) / 1024);
    return cudaGetLastError();
}
EXPORTED run(float* x, float* y, int64_t r, int64_t over_1024) {
    return r == 1 ? launch<1>(x, y, over_1024) : r == 2 ? launch<2>(x, y, over_1024) : r == 4 ? launch<4>(x, y, over_1024)
         : r == 8 ? launch<8>(x, y, over_1024) : launch<16>(x, y, over_1024);
}
"""


@pytest.mark.parametrize("over_1024", [-1, 0, 1, 37, 1023])
@pytest.mark.parametrize("r", [1, 2, 4, 8, 16])
def test_polynomials_at_roots_of_unity(r: int, over_1024: int) -> None:
    x = np.random.default_rng(r).uniform(-1, 1, 2 * r).astype(np.float32)
    _, y = called("float", SOURCE, "run", x, np.zeros_like(x), r, over_1024)
    j = np.arange(r)
    angles = np.outer(j / r + max(over_1024, 0) / 1024, j)
    expected = np.exp(-2j * np.pi * angles) @ (x[::2] + 1j * x[1::2])
    np.testing.assert_allclose(y[::2] + 1j * y[1::2], expected, atol=1e-6 * r)
