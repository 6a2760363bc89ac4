// Additions to four neighbours in global memory at once, which L2 does as fast as one.
#pragma once

#include "msbench.cuh"

namespace msbench {

struct AddQuad {
    __device__ void operator()(float4* sums, const float4& x) const {
#ifdef __NVCC__
        asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                     ::"l"(sums), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                     : "memory");
#else  // the processor's executor has no such instruction
        atomicAdd(&sums->x, x.x), atomicAdd(&sums->y, x.y), atomicAdd(&sums->z, x.z), atomicAdd(&sums->w, x.w);
#endif
    }
};

}  // namespace msbench
