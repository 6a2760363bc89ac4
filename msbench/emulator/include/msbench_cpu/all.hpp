// Everything that <cuda_runtime.h> brings. Precompiled once; bf16, cooperative groups and CUB come with their own
// headers, so that a kernel that forgot to include them fails here as it does under nvcc.
#ifndef MSBENCH_CPU_ALL_HPP
#define MSBENCH_CPU_ALL_HPP

#include <limits>

#include "api.hpp"
#include "atomics.hpp"
#include "barriers.hpp"
#include "device.hpp"
#include "intrinsics.hpp"
#include "launch.hpp"
#include "math.hpp"
#include "memory.hpp"
#include "warp.hpp"

#endif
