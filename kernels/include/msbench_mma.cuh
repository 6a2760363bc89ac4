// Products of a warp on tensor cores, from shared memory: ldmatrix and mma.sync, 16-bit factors, sums in fp32.
//
// A matrix of 8 x 8 is 8 rows of 16 bytes that lie anywhere in shared memory: rows may overlap, so that the Toeplitz matrix of a
// convolution's input is the input itself, read at addresses a few samples apart, and is never built.
#pragma once

#include <cuda_runtime.h>

namespace msbench {

enum class MmaType { kBf16, kFp16 };

using SharedAddress = unsigned;  // an address within shared memory, in bytes

__device__ __forceinline__ SharedAddress shared_address(const void* p) {
    return SharedAddress(__cvta_generic_to_shared(p));
}

// Four 8 x 8 matrices: lane l gives the address, in shared memory, of row l % 8 of matrix l / 8, a multiple of 16. v[m] has
// elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix m, the first in the lower half.
__device__ __forceinline__ void load_matrices(unsigned (&v)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(row)
                 : "memory");
}

// d += A B, 16 x 16 times 16 x 8. A's matrices: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15. b0 and b1 have elements
// 2 (l % 4) and the next of column l / 4 of B's upper and lower half. d has elements 2 (l % 4) and the next of rows l / 4 and l / 4 + 8.
template <MmaType kType>
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    if constexpr (kType == MmaType::kBf16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

}  // namespace msbench
