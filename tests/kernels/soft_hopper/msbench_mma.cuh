// Types of kernels/include/msbench_mma.cuh, without its instructions.
#pragma once

#include <cuda_runtime.h>

namespace msbench {

enum class MmaType { kBf16, kFp16 };

using SharedAddress = unsigned;

inline SharedAddress shared_address(const void* p) {
    return SharedAddress(__cvta_generic_to_shared(p));
}

}  // namespace msbench
