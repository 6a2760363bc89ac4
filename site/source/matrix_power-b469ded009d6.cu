// Matrix power by binary powering with cuBLASLt: for P = 11, A², A⁴, A⁵, A¹⁰, A¹¹. Every product runs the algorithm that was the
// fastest of all that the heuristics proposed on the first call with a size; intermediate powers are in the element type.
// msbench: link cublasLt
#include "msbench_cublaslt.cuh"

static size_t power_bytes(int64_t N) {
    return msbench::Staging::room(N * N * sizeof(scalar_t));
}

extern "C" size_t matrix_power_workspace(int64_t N, int64_t P) {
    return msbench::cublaslt::kWorkspaceBytes + 2 * power_bytes(N);
}

extern "C" cudaError_t matrix_power(const scalar_t* A, scalar_t* B, int64_t N, int64_t P, void* workspace,
                                    size_t workspace_bytes, cudaStream_t stream) {
    if (P == 1) return cudaMemcpyAsync(B, A, N * N * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream);
    char* free = static_cast<char*>(workspace) + msbench::cublaslt::kWorkspaceBytes;
    scalar_t* buffers[] = {reinterpret_cast<scalar_t*>(free), reinterpret_cast<scalar_t*>(free + power_bytes(N))};
    int64_t bit = 1;
    while (bit <= P / 2) bit *= 2;
    const scalar_t* power = A;
    int next = 0;
    const auto multiply_by = [&](const scalar_t* factor, bool last) {
        scalar_t* product = last ? B : buffers[next];
        next = 1 - next;
        const scalar_t* left = power;
        power = product;
        return msbench::cublaslt::multiply({N, N, N}, 1, left, factor, product, workspace, stream);
    };
    for (bit /= 2; bit > 0; bit /= 2) {
        const bool odd = P & bit;
        MSBENCH_CUDA(multiply_by(power, bit == 1 && !odd));
        if (odd) MSBENCH_CUDA(multiply_by(A, bit == 1));
    }
    return cudaGetLastError();
}
