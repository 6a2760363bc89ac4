// C = A B in bf16 with fp32 sums, by what suits the size: one trip to memory (msbench_tiny_product.cuh), a tile or a slice of one a block
// (msbench_few_tiles.cuh), or blocks that walk over tiles (msbench_tile_product.cuh), which also copies what TMA can't take.
//
// Where slices and tall tiles begin to pay was measured (H200, 2026-11-26, cold): of 64 rows, 1024 columns: quarters of K = 1024 7.7 us, halves
// 7.9, whole 8.3, and at 4096 9.3 and 11.3; 2048 columns: halves of 1024 8.3, whole 8.3, of 4096 11.5, quarters 15.1 (two waves of clusters);
// 256 x 2048 x 4096: halves of 128 rows 15.0, whole 16.5; 1024^3: 128 rows 9.2, blocks that walk over 64 x 128 9.6.
#pragma once

#include "msbench_few_tiles.cuh"
#include "msbench_small_product.cuh"
#include "msbench_tiny_product.cuh"

namespace msbench {

namespace few_tiles {

enum class Kind { kNone, kLow, kTall, kLowHalves, kTallHalves, kQuarters };

// All blocks run at once; kNone: there are too many, or too few for so long a K.
inline Kind choose(int64_t M, int64_t N, int64_t K) {
    constexpr int64_t kAtOnce = 132;  // multiprocessors
    const int64_t columns = ceil_div(N, 64), low = ceil_div(M, 64) * columns, tall = ceil_div(M, 128) * columns;
    if (4 * low <= kAtOnce / 2 && K >= 1024) return K <= 8192 ? Kind::kQuarters : Kind::kNone;
    if (2 * low <= kAtOnce && K >= 2048) return Kind::kLowHalves;
    if (2 * tall <= kAtOnce && K >= 4096) return Kind::kTallHalves;
    if (low <= kAtOnce) return Kind::kLow;
    return tall <= kAtOnce && K <= 1024 ? Kind::kTall : Kind::kNone;
}

}  // namespace few_tiles

namespace bf16_product {

// Up to here a block of 16 x 16 loads all of its K at once; where rows don't start on 16 bytes plain arithmetic is faster than a copy.
constexpr int64_t kTiny = tiny_product::kDepth;

inline bool tiny(int64_t M, int64_t N, int64_t K) {
    return M <= kTiny && N <= kTiny && K <= kTiny;
}

}  // namespace bf16_product

inline size_t multiply_bf16_bytes(int64_t M, int64_t N, int64_t K) {
    return bf16_product::tiny(M, N, K) ? 0 : multiply_tiles_bytes<true>(M, N, K);
}

// C's rows are `pitch` apart; where that is N rounded up to 8, what lies between may be overwritten. `behind`: not the launcher's first kernel.
inline cudaError_t multiply_bf16(const Matrix16& A, const Matrix16& B, __nv_bfloat16* C, int64_t pitch, void* workspace, bool behind,
                                 cudaStream_t stream) {
    const int64_t M = A.rows, N = B.columns, K = A.columns;
    const bool aligned = A.for_tma() && B.for_tma();
    if (bf16_product::tiny(M, N, K)) {
        if (aligned) {
            return multiply_tiny({A.data, B.data, int(A.pitch), int(B.pitch), int(M), int(N), int(K)},
                                 {C, int(pitch), pitch % 8 == 0 && packets_allowed(C)}, behind, stream);
        }
        return multiply_small(RowMajor<__nv_bfloat16>{A.data, A.pitch}, RowMajor<__nv_bfloat16>{B.data, B.pitch}, C, pitch, M, N, K, behind, stream);
    }
    using few_tiles::Kind, few_tiles::Plan;
    switch (aligned ? few_tiles::choose(M, N, K) : Kind::kNone) {
        case Kind::kLow: return few_tiles::launch<Plan<1, 8, 1>>(A, B, C, pitch, behind, stream);
        case Kind::kTall: return few_tiles::launch<Plan<2, 9, 1>>(A, B, C, pitch, behind, stream);
        case Kind::kLowHalves: return few_tiles::launch<Plan<1, 12, 2>>(A, B, C, pitch, behind, stream);
        case Kind::kTallHalves: return few_tiles::launch<Plan<2, 8, 2>>(A, B, C, pitch, behind, stream);
        case Kind::kQuarters: return few_tiles::launch<Plan<1, 11, 4>>(A, B, C, pitch, behind, stream);
        case Kind::kNone: break;
    }
    return multiply_tiles<true>(A, B, C, pitch, workspace, behind, stream);
}

}  // namespace msbench
