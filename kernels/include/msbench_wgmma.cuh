// wgmma: products of a warp group on the tensor cores, 64 rows of A at a time, 16-bit factors, sums in fp32.
//
//     mma_fence();
//     for each 16 of K: multiply_add<MmaType::kBf16>(d, a, b);
//     mma_commit();
//     mma_wait<0>();
//     hold(d);   // and hold(a) where A comes from registers: the compiler does not know that they were in use until here
//
// Of its warp's 16 rows and of columns 8 j to 8 j + 7 a thread has d[4 j + 2 h + e]: row 8 h + lane / 4, column 8 j + 2 (lane % 4) + e.
// The tensor cores truncate when they add: long fp32-grade sums are cut into chains that registers add up.
#pragma once

#include <cstdint>

#include "msbench_mma.cuh"

namespace msbench {

constexpr int kGroupThreads = 128, kGroupRows = 64, kMmaK = 16;

// ---------------------------------------------------------------- where operands lie

// Descriptors count in 16 bytes, so that places in a panel are added to them after division by 16.
//
// K fastest, rows of 128 bytes in the swizzle of that size; groups of eight rows follow each other. 16 of K are 32 bytes on.
__device__ __forceinline__ uint64_t descriptor_k_fastest(SharedAddress start) {
    return uint64_t(1) << 62 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 16 | (start & 0x3ffff) >> 4;
}

// N fastest, boxes of 64 columns, `box_bytes` apart, whose rows of 128 bytes are one k each, in the swizzle of that size. 16 of K are 2048
// bytes on.
__device__ __forceinline__ uint64_t descriptor_n_fastest(SharedAddress start, int box_bytes) {
    return uint64_t(1) << 62 | uint64_t(1024 >> 4) << 32 | uint64_t(box_bytes >> 4) << 16 | (start & 0x3ffff) >> 4;
}

// K fastest, cores of 8 rows x 16 bytes without swizzle: `k_bytes` from a core to the next along K, `row_bytes` along rows.
__device__ __forceinline__ uint64_t descriptor_cores(SharedAddress start, int k_bytes, int row_bytes) {
    return uint64_t(row_bytes >> 4) << 32 | uint64_t(k_bytes >> 4) << 16 | (start & 0x3ffff) >> 4;
}

// ---------------------------------------------------------------- order

__device__ __forceinline__ void mma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void mma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps registers that wgmma reads or writes from being used for anything else before this point.
template <int kCount>
__device__ __forceinline__ void hold(float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void hold(unsigned (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

// ---------------------------------------------------------------- products

#define MSBENCH_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MSBENCH_16(i) MSBENCH_4(i), MSBENCH_4(i + 4), MSBENCH_4(i + 8), MSBENCH_4(i + 12)
#define MSBENCH_64 MSBENCH_16(0), MSBENCH_16(16), MSBENCH_16(32), MSBENCH_16(48)
#define MSBENCH_D32                                                                                           \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MSBENCH_D64                                                                                        \
    MSBENCH_D32                                                                                            \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
    "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MSBENCH_D128                                                                                                          \
    MSBENCH_D64                                                                                                               \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "   \
    "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
    "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define MSBENCH_PRODUCT(N, TYPE, NAMES, A, B, KEEP, N_FASTEST, A_FLAGS, ...)                                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE   \
                 "." TYPE " {" NAMES "}, " A ", " B ", p, 1, 1" A_FLAGS ", " N_FASTEST ";\n}"                           \
                 : __VA_ARGS__)

// d = A B, or d += A B where `keep`, for 64 x 16 of A and 16 x N of B in shared memory, N twice the sums. kNFastest: B has N
// fastest; otherwise K, as A always has.
#define MSBENCH_FROM_SHARED(N, COUNT, NAMES, A, B, KEEP, N_FASTEST, ...)                                                \
    template <MmaType kType, bool kNFastest = false>                                                                   \
    __device__ __forceinline__ void multiply_add(float (&d)[COUNT], uint64_t a, uint64_t b, bool keep = true) {         \
        if constexpr (kType == MmaType::kFp16)                                                                         \
            MSBENCH_PRODUCT(N, "f16", NAMES, A, B, KEEP, N_FASTEST, ", 0", __VA_ARGS__                                  \
                            : "l"(a), "l"(b), "r"(int(keep)), "n"(int(kNFastest)));                                     \
        else                                                                                                           \
            MSBENCH_PRODUCT(N, "bf16", NAMES, A, B, KEEP, N_FASTEST, ", 0", __VA_ARGS__                                 \
                            : "l"(a), "l"(b), "r"(int(keep)), "n"(int(kNFastest)));                                     \
    }

MSBENCH_FROM_SHARED("64", 32, MSBENCH_D32, "%32", "%33", "%34", "%35", MSBENCH_16(0), MSBENCH_16(16))
MSBENCH_FROM_SHARED("128", 64, MSBENCH_D64, "%64", "%65", "%66", "%67", MSBENCH_64)
MSBENCH_FROM_SHARED("256", 128, MSBENCH_D128, "%128", "%129", "%130", "%131", MSBENCH_64, MSBENCH_16(64), MSBENCH_16(80),
                    MSBENCH_16(96), MSBENCH_16(112))

// The same for 128 columns with A from registers, in the order of mma's A.
template <MmaType kType, bool kNFastest = false>
__device__ __forceinline__ void multiply_add(float (&d)[64], const unsigned* a, uint64_t b, bool keep = true) {
    if constexpr (kType == MmaType::kFp16)
        MSBENCH_PRODUCT("128", "f16", MSBENCH_D64, "{%64, %65, %66, %67}", "%68", "%69", "%70", "", MSBENCH_64
                        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(keep)), "n"(int(kNFastest)));
    else
        MSBENCH_PRODUCT("128", "bf16", MSBENCH_D64, "{%64, %65, %66, %67}", "%68", "%69", "%70", "", MSBENCH_64
                        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(keep)), "n"(int(kNFastest)));
}

#undef MSBENCH_FROM_SHARED
#undef MSBENCH_PRODUCT
#undef MSBENCH_D128
#undef MSBENCH_D64
#undef MSBENCH_D32
#undef MSBENCH_64
#undef MSBENCH_16
#undef MSBENCH_4

}  // namespace msbench
