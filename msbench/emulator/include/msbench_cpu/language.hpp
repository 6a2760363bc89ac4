// CUDA's additions to the C++ language, as far as a host compiler can be told about them by macros. The rest (launches,
// __shared__, inline PTX) is what msbench/emulator/rewrite.py does.
#ifndef MSBENCH_CPU_LANGUAGE_HPP
#define MSBENCH_CPU_LANGUAGE_HPP

#include <cfloat>
#include <climits>
#define lerp msbench_std_lerp  // C++20's, which the kernels' C++17 does not have: many have one of their own
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <math.h>
#undef lerp
#include <memory>  // the C++ library's own word __noinline__ must not meet the macro below
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define __builtin_assume(condition) static_cast<void>(0)

// A name that unsupported.py turns into "thread block clusters"; within alignas it is an error wherever attributes may stand.
#define __cluster_dims__(...) alignas(msbench_unsupported_thread_block_clusters)

// One pass compiles host and device code: device branches are taken, as for the H200.
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000

// Lets a kernel file tell this executor from nvcc.
#define MSBENCH_CPU 1

#define MSBENCH_CPU_INLINE static inline __attribute__((always_inline, unused))

namespace msbench_cpu {

/// Where the kernel's author wrote something: file and line, filled in at the call.
using Site = std::source_location;

}  // namespace msbench_cpu

#endif
