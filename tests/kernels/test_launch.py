"""msbench_launch.cuh: a launch has the shared memory, the cooperation and the order that were asked for."""

from __future__ import annotations

import numpy as np

from tests.kernels.building import called

SOURCE = """
#include <cooperative_groups.h>
#include <msbench_launch.cuh>

__global__ void rotate(float* x, int bytes) {
    extern __shared__ float kept[];
    kept[bytes / 4 - 1] = x[(blockIdx.x + 1) % gridDim.x];
    cooperative_groups::this_grid().sync();
    x[blockIdx.x] = kept[bytes / 4 - 1];
}
__global__ void twice(float* x) {
    cudaGridDependencySynchronize();
    x[blockIdx.x] *= 2;
}
EXPORTED run(float* x, int64_t bytes) {
    using msbench::Launch;
    const int blocks = msbench::resident_blocks(rotate, 1, bytes) < 4 ? 0 : 4;
    const cudaError_t status = Launch(blocks, 1, nullptr).shared(bytes).cooperative()(rotate, x, int(bytes));
    return status == cudaSuccess ? Launch(blocks, 1, nullptr).early()(twice, x) : status;
}
"""


def test_a_launch_has_what_was_asked_for() -> None:
    (x,) = called("float", SOURCE, "run", np.arange(4, dtype=np.float32), 100 << 10)
    np.testing.assert_array_equal(x, [2, 4, 6, 0])
