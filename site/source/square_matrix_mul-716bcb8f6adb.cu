// C = A B of square matrices in bf16 with fp32 sums: msbench_bf16_product.cuh, which chooses by size.
//
// Bound: 2 M^3 flops at 786 to 820 TFLOP/s; below 1024 a launch and a trip to DRAM.
//
// Measured (H200, 2026-11-26, cold, beside cuBLASLt): M = 16: 5.19 us for 5.83, 64: 5.48 for 6.03, 256: 6.46 for 6.78, 1024: 9.22 for 9.66.
#include "msbench_bf16_product.cuh"

extern "C" size_t square_matrix_mul_workspace(int64_t M) {
    return msbench::multiply_bf16_bytes(M, M, M);
}

extern "C" cudaError_t square_matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, void* workspace, size_t,
                                         cudaStream_t stream) {
    return msbench::multiply_bf16({A, M, M, M}, {B, M, M, M}, C, M, workspace, false, stream);
}
