// wgmma with A from registers for 32, 64 and 128 columns of B in shared memory, K fastest: see msbench_wgmma.cuh.
#pragma once

#include "msbench_wgmma.cuh"

namespace msbench {

#define MSBENCH_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MSBENCH_16(i) MSBENCH_4(i), MSBENCH_4(i + 4), MSBENCH_4(i + 8), MSBENCH_4(i + 12)
#define MSBENCH_D16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define MSBENCH_D32 MSBENCH_D16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MSBENCH_D64                                                                                                 \
    MSBENCH_D32                                                                                                     \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
    "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// d = A B, or d += A B where `keep`, for 64 x 16 of A in the order of mma's A, and 16 x N of B, N twice the sums. In bf16, or fp16.
#define MSBENCH_FROM_ROWS(N, COUNT, NAMES, A0, A1, A2, A3, B, KEEP, ...)                                               \
    template <MmaType kType = MmaType::kBf16>                                                                          \
    __device__ __forceinline__ void multiply_add_rows(float (&d)[COUNT], const unsigned (&a)[4], uint64_t b, bool keep) { \
        if constexpr (kType == MmaType::kBf16) MSBENCH_ROWS("bf16", N, NAMES, A0, A1, A2, A3, B, KEEP, __VA_ARGS__);    \
        else MSBENCH_ROWS("f16", N, NAMES, A0, A1, A2, A3, B, KEEP, __VA_ARGS__);                                       \
    }
#define MSBENCH_ROWS(TYPE, N, NAMES, A0, A1, A2, A3, B, KEEP, ...)                                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE \
                 " {" NAMES "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1, 0;\n}"                               \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(keep)))

MSBENCH_FROM_ROWS("32", 16, MSBENCH_D16, "%16", "%17", "%18", "%19", "%20", "%21", MSBENCH_16(0))
MSBENCH_FROM_ROWS("64", 32, MSBENCH_D32, "%32", "%33", "%34", "%35", "%36", "%37", MSBENCH_16(0), MSBENCH_16(16))
MSBENCH_FROM_ROWS("128", 64, MSBENCH_D64, "%64", "%65", "%66", "%67", "%68", "%69", MSBENCH_16(0), MSBENCH_16(16), MSBENCH_16(32),
                  MSBENCH_16(48))

#undef MSBENCH_ROWS
#undef MSBENCH_FROM_ROWS
#undef MSBENCH_D64
#undef MSBENCH_D32
#undef MSBENCH_D16
#undef MSBENCH_16
#undef MSBENCH_4

}  // namespace msbench
