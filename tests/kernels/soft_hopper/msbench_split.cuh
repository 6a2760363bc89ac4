// Constants of kernels/include/msbench_split.cuh, whose kernel needs thread block clusters.
#pragma once

#include "msbench.cuh"
#include "msbench_lines.cuh"
#include "msbench_split_scales.cuh"

namespace msbench {

constexpr int kLineMultiple = 128, kChainPanels = 3;

}  // namespace msbench
