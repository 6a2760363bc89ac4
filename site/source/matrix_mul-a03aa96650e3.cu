// C = A B in bf16 with fp32 sums: TMA feeds wgmma (msbench_tile_product.cuh), which chooses tiles and slices of K by a model of the time.
//
// Bound: 2 M N K flops at 786 to 820 TFLOP/s; 17 MB of B at 4.4 TB/s where M is 64.
//
// Measured (H200, 2026-11-23, cold; N = 2048, K = 4096): M = 64: 13.0 us, 256: 15.8, 1024: 27.0, 4096: 89.8; 8192^3: 1440 to 1590; the
// kernel before it, with a second launch for slices, took 1430 to 1530 in the same sessions.
#include "msbench_tile_product.cuh"

extern "C" size_t matrix_mul_workspace(int64_t M, int64_t N, int64_t K) {
    return msbench::multiply_tiles_bytes<true>(M, N, K);
}

extern "C" cudaError_t matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K, void* workspace,
                                  size_t, cudaStream_t stream) {
    return msbench::multiply_tiles<true>({A, M, K, K}, {B, K, N, N}, C, N, workspace, false, stream);
}
