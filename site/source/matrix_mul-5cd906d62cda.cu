// C = A B in fp32, on the tensor cores where that pays.
//
// Idea: every number as two scaled fp16 ones, three products of them (msbench_split_product.cuh); where rows are few or K is short, as three
// bf16 ones, six products, in one pass (msbench_thin_product.cuh). Small products are plain arithmetic in one launch
// (msbench_small_product.cuh).
//
// Bound: 6 M N K flops at 786 to 820 TFLOP/s: 4.1 ms at 8192^3, a fifth of what FFMA takes; and 1.07 GB of bytes for the split there.
//
// Measured (H200, 2026-11-23, cold; N = 2048, K = 4096): M = 64: 26.2 us (with a split of its own 51.8), 256: 60.8, 1024: 113, 4096: 352,
// 16384: 1338; 8192^3: 5190 to 5390 (cuBLAS: 21400).
#include "msbench_small_product.cuh"
#include "msbench_thin_product.cuh"

namespace {

// One launch instead of two, and no tile of 128 columns for a few.
bool small(int64_t M, int64_t N, int64_t K) {
    return N <= 32 || M * N * K <= int64_t(1) << 26;
}

}  // namespace

extern "C" size_t matrix_mul_workspace(int64_t M, int64_t N, int64_t K) {
    return small(M, N, K) ? 0 : msbench::multiply_fp32_bytes(M, N, K);
}

extern "C" cudaError_t matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K, void* workspace,
                                  size_t, cudaStream_t stream) {
    using namespace msbench;
    if (small(M, N, K)) return multiply_small(RowMajor<float>{A, K}, RowMajor<float>{B, N}, C, N, M, N, K, false, stream);
    return multiply_fp32(rows_of(A, M, K), columns_of(B, K, N), C, N, workspace, false, stream);
}
