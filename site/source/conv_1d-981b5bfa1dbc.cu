// Cross-correlation by cuDNN, of an image that is one row or one column of samples, whichever is faster.
// msbench: link cudnn
#include "msbench_cudnn_convolution.cuh"

extern "C" size_t conv_1d_workspace(int64_t N, int64_t K) {
    using msbench::Staging;
    return Staging::room(N * sizeof(scalar_t)) + Staging::room(K * sizeof(scalar_t)) +
           Staging::room((N - K + 1) * sizeof(scalar_t));
}

extern "C" cudaError_t conv_1d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t N, int64_t K, void* workspace,
                               size_t workspace_bytes, cudaStream_t stream) {
    msbench::Staging staging(workspace, stream);
    const scalar_t* signal = staging.input(x, N * sizeof(scalar_t));
    const scalar_t* filter = staging.input(w, K * sizeof(scalar_t));
    scalar_t* result = staging.output(y, (N - K + 1) * sizeof(scalar_t));
    MSBENCH_CUDA(msbench::convolve({{{1, N}, {1, K}, {0, 0}}, {{N, 1}, {K, 1}, {0, 0}}}, signal, filter, result, stream));
    return staging.finish();
}
