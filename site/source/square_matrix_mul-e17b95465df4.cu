// C = A B of square matrices in bf16 with fp32 sums: TMA feeds wgmma (msbench_tile_product.cuh), which chooses tiles and slices of K by a
// model of the time. What is smaller than two tiles is plain arithmetic (msbench_small_product.cuh): no tensor map has to be fetched.
//
// Bound: 2 M^3 flops at 786 to 820 TFLOP/s; below 1024 a launch and a trip to DRAM.
#include "msbench_small_product.cuh"
#include "msbench_tile_product.cuh"

namespace {

constexpr int64_t kSmall = 128;

}  // namespace

extern "C" size_t square_matrix_mul_workspace(int64_t M) {
    return M <= kSmall ? 0 : msbench::multiply_tiles_bytes<true>(M, M, M);
}

extern "C" cudaError_t square_matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, void* workspace, size_t,
                                         cudaStream_t stream) {
    using namespace msbench;
    if (M <= kSmall) return multiply_small(RowMajor<scalar_t>{A, M}, RowMajor<scalar_t>{B, M}, C, M, M, M, M, false, stream);
    return multiply_tiles<true>({A, M, M, M}, {B, M, M, M}, C, M, workspace, false, stream);
}
