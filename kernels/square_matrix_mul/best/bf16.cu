// C = A B of square matrices in bf16 with fp32 sums: TMA feeds wgmma (msbench_tile_product.cuh), which chooses tiles and slices of K by a
// model of the time. What is smaller than two tiles needs no tensor map to be fetched: blocks of 16 x 16 that wait for memory once
// (msbench_tiny_product.cuh), or plain arithmetic where rows don't start on 16 bytes (msbench_small_product.cuh).
//
// Bound: 2 M^3 flops at 786 to 820 TFLOP/s; below 1024 a launch and a trip to DRAM.
//
// Measured (H200, 2026-11-26, cold, beside cuBLASLt): M = 16: 5.43 us for 5.96, 64: 5.70 for 6.12.
#include "msbench_small_product.cuh"
#include "msbench_tile_product.cuh"
#include "msbench_tiny_product.cuh"

namespace {

constexpr int64_t kSmall = msbench::tiny_product::kDepth;

}  // namespace

extern "C" size_t square_matrix_mul_workspace(int64_t M) {
    return M <= kSmall ? 0 : msbench::multiply_tiles_bytes<true>(M, M, M);
}

extern "C" cudaError_t square_matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, void* workspace, size_t,
                                         cudaStream_t stream) {
    using namespace msbench;
    if (M > kSmall) return multiply_tiles<true>({A, M, M, M}, {B, M, M, M}, C, M, workspace, false, stream);
    const int size = int(M);
    const tiny_product::Factors factors{A, B, size, size, size, size, size};
    if (tiny_product_allowed(factors)) return multiply_tiny(factors, {C, size, packets_allowed(C)}, false, stream);
    return multiply_small(RowMajor<scalar_t>{A, M}, RowMajor<scalar_t>{B, M}, C, M, M, M, M, false, stream);
}
