// C = A B in bf16 with fp32 sums: msbench_bf16_product.cuh, which chooses by size.
//
// Bound: 2 M N K flops at 786 to 820 TFLOP/s; 17 MB of B at 4.4 TB/s where M is 64.
//
// Measured (H200, cold; N = 2048, K = 4096; 2026-11-26): M = 64: 11.5 us (cuBLASLt 12.4), 256: 15.0 (15.2); (2026-11-23): 1024: 27.0, 4096:
// 89.8; 8192^3: 1440 to 1590.
#include "msbench_bf16_product.cuh"

extern "C" size_t matrix_mul_workspace(int64_t M, int64_t N, int64_t K) {
    return msbench::multiply_bf16_bytes(M, N, K);
}

extern "C" cudaError_t matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K, void* workspace,
                                  size_t, cudaStream_t stream) {
    return msbench::multiply_bf16({A, M, K, K}, {B, K, N, N}, C, N, workspace, false, stream);
}
