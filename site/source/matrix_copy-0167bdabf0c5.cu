// Matrix copy by cudaMemcpyAsync.

extern "C" cudaError_t matrix_copy(const scalar_t* A, scalar_t* B, int64_t M, int64_t N, void* workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    return cudaMemcpyAsync(B, A, M * N * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream);
}
