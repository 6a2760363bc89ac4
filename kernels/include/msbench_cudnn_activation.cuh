// What the activation baselines share: y = scale·activation(x) of a vector, by cudnnActivationForward.
//
// A vector can be told to cuDNN in several ways that mean the same and run at different speeds; where a choice is due for a
// size, they are tried. A file that includes this says `// msbench: link cudnn`.
#pragma once

#include <cudnn.h>

#include <map>
#include <utility>

#include "msbench_library.cuh"

// The call is deprecated in favour of cuDNN's graphs, which are for fusing an activation with what comes before it.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace msbench {

#define CUDNN(call) MSBENCH_LIBRARY(cudnnGetErrorString, call)

#ifdef MSBENCH_FP32
constexpr cudnnDataType_t kActivationType = CUDNN_DATA_FLOAT;
#else
constexpr cudnnDataType_t kActivationType = CUDNN_DATA_BFLOAT16;
#endif

struct Activation {
    cudnnActivationDescriptor_t function = nullptr;
    cudnnTensorDescriptor_t vector = nullptr;  // null until a view has been chosen
    Due due;
};

inline cudaError_t run(cudnnHandle_t handle, const Activation& activation, float scale, const scalar_t* x,
                       scalar_t* y) {
    const float zero = 0;
    CUDNN(cudnnActivationForward(handle, activation.function, &scale, activation.vector, x, &zero, activation.vector, y));
    return cudaSuccess;
}

// Tries the vector as one row, as channels and as a batch, and keeps the fastest.
inline cudaError_t choose(cudnnHandle_t handle, Activation& activation, float scale, const scalar_t* x, scalar_t* y,
                          int N, cudaStream_t stream) {
    const int views[][4] = {{1, 1, 1, N}, {1, N, 1, 1}, {N, 1, 1, 1}};
    float best = std::numeric_limits<float>::infinity();
    if (activation.vector) CUDNN(cudnnDestroyTensorDescriptor(activation.vector));
    activation.vector = nullptr;
    for (const auto& [n, c, h, w] : views) {
        Activation trial = activation;
        CUDNN(cudnnCreateTensorDescriptor(&trial.vector));
        const cudnnStatus_t status =
            cudnnSetTensor4dDescriptor(trial.vector, CUDNN_TENSOR_NCHW, kActivationType, n, c, h, w);
        const bool possible = status == CUDNN_STATUS_SUCCESS;
        const float time = possible ? milliseconds(stream, [&] { return run(handle, trial, scale, x, y); }) : best;
        if (time < best) {
            best = time;
            std::swap(activation, trial);
        }
        if (trial.vector) CUDNN(cudnnDestroyTensorDescriptor(trial.vector));
    }
    return activation.vector ? cudaSuccess : cudaErrorNotSupported;
}

inline size_t cudnn_activation_workspace(int64_t N) {
    return 2 * Staging::room(N * sizeof(scalar_t));
}

// `coefficient` is α for ELU and of no meaning for the others; `scale` multiplies the result.
inline cudaError_t cudnn_activation(cudnnActivationMode_t mode, double coefficient, float scale, const scalar_t* x,
                                    scalar_t* y, int64_t N, void* workspace, cudaStream_t stream) {
    static cudnnHandle_t handle = nullptr;
    static auto& activations = *new std::map<std::pair<double, int64_t>, Activation>;  // a launcher has one mode
    if (!handle) CUDNN(cudnnCreate(&handle));
    CUDNN(cudnnSetStream(handle, stream));
    Staging staging(workspace, stream);
    const scalar_t* input = staging.input(x, N * sizeof(scalar_t));
    scalar_t* output = staging.output(y, N * sizeof(scalar_t));
    Activation& activation = activations[{coefficient, N}];
    if (!activation.function) {
        CUDNN(cudnnCreateActivationDescriptor(&activation.function));
        CUDNN(cudnnSetActivationDescriptor(activation.function, mode, CUDNN_PROPAGATE_NAN, coefficient));
    }
    if (activation.due.take()) MSBENCH_CUDA(choose(handle, activation, scale, input, output, static_cast<int>(N), stream));
    if (!activation.vector) return cudaErrorNotSupported;
    MSBENCH_CUDA(run(handle, activation, scale, input, output));
    return staging.finish();
}

#undef CUDNN

}  // namespace msbench
