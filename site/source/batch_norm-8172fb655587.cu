// Batch normalisation by cuDNN, training forward: to cuDNN the matrix is N images of one pixel with C channels (NHWC).
//
// The first call with a shape tries the classic call, in its two modes that take any values and in both layouts, which are the
// same memory here, and every plan that the graph API's heuristics propose. CUDNN_BATCHNORM_SPATIAL_PERSISTENT is left
// out: it adds up scaled integers, whose range large inputs leave. Statistics that cuDNN saves go to the workspace; scales and
// shifts are floats to it in both precisions.
// msbench: link cudnn
#include "msbench_cudnn.cuh"

#include <functional>
#include <map>
#include <vector>

using namespace msbench::cudnn;

enum Uid : int64_t { kX = 1, kGamma, kBeta, kEpsilon, kY, kMean, kInverse };

// Where the arrays of one launch lie, all aligned. `mean` and `inverse` (of the deviation) are cuDNN's further outputs.
struct Arrays {
    const scalar_t* x;
    const float *gamma, *beta;
    scalar_t* y;
    float *mean, *inverse;
};

struct Classic {
    cudnnBatchNormMode_t mode;
    cudnnTensorDescriptor_t matrix = nullptr, columns = nullptr;
    void *workspace = nullptr, *reserve = nullptr;
    size_t workspace_bytes = 0, reserve_bytes = 0;
};

struct Graph {
    Tensor x, gamma, beta, epsilon, y, mean, inverse;
    Descriptor norm{CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR}, operations{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

// What a shape may be run with; what fails to be described or run is left out.
struct Entry {
    msbench::Due due;
    Graph graph;
    std::vector<Plan> plans;
    std::vector<Classic> classics;
    std::function<cudaError_t(const Arrays&, float epsilon)> fastest;
};

static cudaError_t run(cudnnHandle_t handle, const Classic& classic, const Arrays& arrays, double epsilon) {
    const float one = 1, zero = 0;
    MSBENCH_CUDNN(cudnnBatchNormalizationForwardTrainingEx(
        handle, classic.mode, CUDNN_BATCHNORM_OPS_BN, &one, &zero, classic.matrix, arrays.x, nullptr, nullptr,
        classic.matrix, arrays.y, classic.columns, arrays.gamma, arrays.beta, 1.0, nullptr, nullptr, epsilon, arrays.mean,
        arrays.inverse, nullptr, classic.workspace, classic.workspace_bytes, classic.reserve, classic.reserve_bytes));
    return cudaSuccess;
}

static cudaError_t run(cudnnHandle_t handle, const Plan& plan, const Arrays& arrays, float epsilon) {
    return plan.run(handle, {{kX, arrays.x},
                             {kGamma, arrays.gamma},
                             {kBeta, arrays.beta},
                             {kEpsilon, &epsilon},
                             {kY, arrays.y},
                             {kMean, arrays.mean},
                             {kInverse, arrays.inverse}});
}

static cudaError_t describe(Classic& classic, cudnnHandle_t handle, cudnnTensorFormat_t format, int N, int C) {
    MSBENCH_CUDNN(cudnnCreateTensorDescriptor(&classic.matrix));
    MSBENCH_CUDNN(cudnnCreateTensorDescriptor(&classic.columns));
    MSBENCH_CUDNN(cudnnSetTensor4dDescriptor(classic.matrix, format, kType, N, C, 1, 1));
    MSBENCH_CUDNN(cudnnDeriveBNTensorDescriptor(classic.columns, classic.matrix, classic.mode));
    MSBENCH_CUDNN(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        handle, classic.mode, CUDNN_BATCHNORM_OPS_BN, classic.matrix, nullptr, classic.matrix, classic.columns, nullptr,
        &classic.workspace_bytes));
    MSBENCH_CUDNN(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        handle, classic.mode, CUDNN_BATCHNORM_OPS_BN, nullptr, classic.matrix, &classic.reserve_bytes));
    MSBENCH_CUDA(cudaMalloc(&classic.workspace, classic.workspace_bytes + 1));
    MSBENCH_CUDA(cudaMalloc(&classic.reserve, classic.reserve_bytes + 1));
    return cudaSuccess;
}

static cudaError_t finalize(Graph& graph, cudnnHandle_t handle, int64_t N, int64_t C) {
    MSBENCH_CUDNN(graph.x.matrix(kX, kType, N, C));
    MSBENCH_CUDNN(graph.gamma.matrix(kGamma, CUDNN_DATA_FLOAT, 1, C));
    MSBENCH_CUDNN(graph.beta.matrix(kBeta, CUDNN_DATA_FLOAT, 1, C));
    MSBENCH_CUDNN(graph.epsilon.number(kEpsilon));
    MSBENCH_CUDNN(graph.y.matrix(kY, kType, N, C));
    MSBENCH_CUDNN(graph.mean.matrix(kMean, CUDNN_DATA_FLOAT, 1, C));
    MSBENCH_CUDNN(graph.inverse.matrix(kInverse, CUDNN_DATA_FLOAT, 1, C));
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    MSBENCH_CUDNN(graph.norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, graph.x)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, graph.mean)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, graph.inverse)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, graph.gamma)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, graph.beta)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph.epsilon)
                      .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, graph.y)
                      .finalize());
    MSBENCH_CUDNN(graph.operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
                      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, graph.norm)
                      .finalize());
    return cudaSuccess;
}

static void describe(Entry& entry, cudnnHandle_t handle, const Arrays& arrays, float epsilon, int64_t N, int64_t C,
                     cudaStream_t stream) {
    const auto launch = [&](const Plan& plan) { return run(handle, plan, arrays, epsilon); };
    if (finalize(entry.graph, handle, N, C) == cudaSuccess) {
        entry.plans = fastest_plans(handle, entry.graph.operations, stream, launch);
    }
    for (cudnnBatchNormMode_t mode : {CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_PER_ACTIVATION}) {
        for (cudnnTensorFormat_t format : {CUDNN_TENSOR_NHWC, CUDNN_TENSOR_NCHW}) {
            Classic classic{mode};
            if (describe(classic, handle, format, static_cast<int>(N), static_cast<int>(C)) == cudaSuccess) {
                entry.classics.push_back(classic);
            } else {
                cudaFree(classic.workspace);
                cudaFree(classic.reserve);
            }
        }
    }
}

static void choose(Entry& entry, cudnnHandle_t handle, const Arrays& arrays, float epsilon, cudaStream_t stream) {
    float best = std::numeric_limits<float>::infinity();
    const auto consider = [&](const auto& way) {
        const float time = msbench::milliseconds(stream, [&] { return run(handle, way, arrays, epsilon); }, best);
        if (time >= best) return;
        best = time;
        entry.fastest = [handle, &way](const Arrays& on, float epsilon) { return run(handle, way, on, epsilon); };
    };
    for (const Plan& plan : entry.plans) consider(plan);
    for (const Classic& classic : entry.classics) consider(classic);
}

static size_t column_room(int64_t C) {
    return msbench::Staging::room(C * sizeof(float));
}

#ifdef MSBENCH_BF16
__global__ void widen(const scalar_t* gamma, const scalar_t* beta, float* wide_gamma, float* wide_beta, int64_t C) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= C) return;
    wide_gamma[i] = static_cast<float>(gamma[i]);
    wide_beta[i] = static_cast<float>(beta[i]);
}
#endif

// Room for mean, inverse deviation, and γ and β as floats; then for copies of γ, β, x and y where they are misaligned.
extern "C" size_t batch_norm_workspace(float epsilon, int64_t N, int64_t C) {
    return 6 * column_room(C) + 2 * msbench::Staging::room(N * C * sizeof(scalar_t));
}

extern "C" cudaError_t batch_norm(const scalar_t* x, const scalar_t* gamma, const scalar_t* beta, scalar_t* y,
                                  float epsilon, int64_t N, int64_t C, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    static auto& entries = *new std::map<std::pair<int64_t, int64_t>, Entry>;  // outlives the process, as cuDNN may not
    const cudnnHandle_t handle = handle_on(stream);
    if (!handle) return cudaErrorInitializationError;
    char* bytes = static_cast<char*>(workspace);
    Arrays arrays{};
    arrays.mean = reinterpret_cast<float*>(bytes);
    arrays.inverse = reinterpret_cast<float*>(bytes + column_room(C));
    msbench::Staging staging(bytes + 4 * column_room(C), stream);
#ifdef MSBENCH_BF16
    float* wide_gamma = reinterpret_cast<float*>(bytes + 2 * column_room(C));
    float* wide_beta = reinterpret_cast<float*>(bytes + 3 * column_room(C));
    const int threads = 256;
    widen<<<(C + threads - 1) / threads, threads, 0, stream>>>(gamma, beta, wide_gamma, wide_beta, C);
    arrays.gamma = wide_gamma;
    arrays.beta = wide_beta;
#else
    arrays.gamma = staging.input(gamma, C * sizeof(float));
    arrays.beta = staging.input(beta, C * sizeof(float));
#endif
    arrays.x = staging.input(x, N * C * sizeof(scalar_t));
    arrays.y = staging.output(y, N * C * sizeof(scalar_t));

    const auto [place, is_new] = entries.try_emplace({N, C});
    Entry& entry = place->second;
    if (is_new) describe(entry, handle, arrays, epsilon, N, C, stream);
    if (entry.due.take()) choose(entry, handle, arrays, epsilon, stream);
    if (!entry.fastest) return cudaErrorNotSupported;
    MSBENCH_CUDA(entry.fastest(arrays, epsilon));
    return staging.finish();
}
