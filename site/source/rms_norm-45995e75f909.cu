// RMS normalisation by cuDNN's norm-forward operation, as a graph of one node (inference phase, which keeps no statistics).
//
// The vector is one row of a matrix of N columns, which cuDNN's engines were not made for: where none takes a size, the launcher
// says cudaErrorNotSupported. Building a plan, which may compile a kernel, happens on the first call with a size.
// msbench: link cudnn
#include "msbench_cudnn.cuh"

#include <map>

using namespace msbench::cudnn;

enum Uid : int64_t { kX = 1, kWeight, kBias, kEpsilon, kY };

// The graph y = weight·x/√(mean of squares + ε) + bias.
struct Graph {
    Tensor x, weight, bias, epsilon, y;
    Descriptor norm{CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR}, operations{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

struct Entry {
    Graph graph;
    Plans plans;
};

static cudaError_t finalize(Graph& graph, cudnnHandle_t handle, int64_t N) {
    MSBENCH_CUDNN(graph.x.matrix(kX, kType, 1, N));
    MSBENCH_CUDNN(graph.weight.matrix(kWeight, kType, 1, N));
    MSBENCH_CUDNN(graph.bias.matrix(kBias, kType, 1, N));
    MSBENCH_CUDNN(graph.epsilon.number(kEpsilon));
    MSBENCH_CUDNN(graph.y.matrix(kY, kType, 1, N));
    const cudnnBackendNormMode_t mode = CUDNN_RMS_NORM;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_INFERENCE;
    MSBENCH_CUDNN(graph.norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, graph.x)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, graph.weight)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, graph.bias)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph.epsilon)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, graph.y)
                      .finalize());
    MSBENCH_CUDNN(graph.operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
                      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, graph.norm)
                      .finalize());
    return cudaSuccess;
}

extern "C" size_t rms_norm_workspace(float epsilon, int64_t N) {
    return 4 * msbench::Staging::room(N * sizeof(scalar_t));
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                  float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    static auto& entries = *new std::map<int64_t, Entry>;  // outlives the process: cuDNN may be unloaded before it
    const cudnnHandle_t handle = handle_on(stream);
    if (!handle) return cudaErrorInitializationError;
    const size_t bytes = N * sizeof(scalar_t);
    msbench::Staging staging(workspace, stream);
    const scalar_t* input = staging.input(x, bytes);
    const scalar_t* scale = staging.input(weight, bytes);
    const scalar_t* shift = staging.input(bias, bytes);
    scalar_t* output = staging.output(y, bytes);

    const auto launch = [&](const Plan& plan) {
        return plan.run(handle, {{kX, input}, {kWeight, scale}, {kBias, shift}, {kEpsilon, &epsilon}, {kY, output}});
    };
    const auto [place, is_new] = entries.try_emplace(N);
    auto& [graph, plans] = place->second;
    if (is_new) MSBENCH_CUDA(finalize(graph, handle, N));
    const Plan* plan = plans.fastest(handle, graph.operations, stream, launch);
    if (!plan) return cudaErrorNotSupported;
    MSBENCH_CUDA(launch(*plan));
    return staging.finish();
}
