// ldmatrix for B of mma.sync where its rows are K: matrices of shared memory turned on the way to registers.
#pragma once

#include "msbench_mma.cuh"

namespace msbench {

// As load_matrices, but v[m] has elements 2 (l % 4) and the next of column l / 4 of matrix m, the first in the lower half.
__device__ __forceinline__ void load_turned(unsigned (&v)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(row)
                 : "memory");
}

}  // namespace msbench
