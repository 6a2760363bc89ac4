// SELU by cuDNN's ELU, whose result cuDNN multiplies with a scale.
// msbench: link cudnn
#include "msbench_cudnn_activation.cuh"

extern "C" size_t selu_workspace(float alpha, float scale, int64_t N) {
    return msbench::cudnn_activation_workspace(N);
}

extern "C" cudaError_t selu(const scalar_t* x, scalar_t* y, float alpha, float scale, int64_t N, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    return msbench::cudnn_activation(CUDNN_ACTIVATION_ELU, alpha, scale, x, y, N, workspace, stream);
}
