// Logistic function by cuDNN's activation.
// msbench: link cudnn
#include "msbench_cudnn_activation.cuh"

extern "C" size_t sigmoid_workspace(int64_t N) {
    return msbench::cudnn_activation_workspace(N);
}

extern "C" cudaError_t sigmoid(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    return msbench::cudnn_activation(CUDNN_ACTIVATION_SIGMOID, 0.0, 1.0f, x, y, N, workspace, stream);
}
