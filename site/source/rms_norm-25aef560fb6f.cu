// RMS normalisation, y = weight·x/√(mean of squares + ε) + bias, by cuDNN's norm-forward operation.
// msbench: link cudnn
#include "msbench_cudnn_norm.cuh"

extern "C" size_t rms_norm_workspace(float epsilon, int64_t N) {
    return msbench::cudnn_norm_workspace(N);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return msbench::cudnn_norm(CUDNN_RMS_NORM, x, weight, bias, y, epsilon, N, workspace, stream);
}
