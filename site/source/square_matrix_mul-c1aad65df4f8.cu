// C = A B of square matrices in fp32, on the tensor cores where that pays.
//
// Idea: every number as two scaled fp16 ones, three products of them (msbench_split_product.cuh); where rows are few or K is short, as three
// bf16 ones, six products, in one pass (msbench_thin_product.cuh). Small products are plain arithmetic in one launch
// (msbench_small_product.cuh).
//
// Bound: 6 M^3 flops at 786 to 820 TFLOP/s: 4.1 ms at 8192, a fifth of what FFMA takes; and 1.07 GB of bytes for the split there.
#include "msbench_small_product.cuh"
#include "msbench_thin_product.cuh"

namespace {

constexpr int64_t kSmall = 406;  // 2^26 multiply-adds: one launch instead of two
constexpr int64_t kThin = 832;   // up to here a split of its own costs more than the six products of one pass: M = 777: 42.4 us for 35.0

}  // namespace

extern "C" size_t square_matrix_mul_workspace(int64_t M) {
    return M <= kSmall ? 0 : M <= kThin ? msbench::thin_product::bytes(M, M, M) : msbench::split_product_bytes(M, M, M);
}

extern "C" cudaError_t square_matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, void* workspace, size_t,
                                         cudaStream_t stream) {
    using namespace msbench;
    if (M <= kSmall) return multiply_small(RowMajor<float>{A, M}, RowMajor<float>{B, M}, C, M, M, M, M, false, stream);
    if (M <= kThin) return thin_product::launch(rows_of(A, M, M), columns_of(B, M, M), C, M, workspace, false, stream);
    return multiply_split(rows_of(A, M, M), columns_of(B, M, M), C, M, workspace, false, stream);
}
