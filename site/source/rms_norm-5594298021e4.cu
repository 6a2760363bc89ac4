// RMS normalisation by cuDNN's norm-forward operation, as a graph of one node (backend C API, inference phase).
//
// The vector is one row of a matrix of N columns, which cuDNN's engines were not made for: where none takes a size, the launcher
// says cudaErrorNotSupported. Building a plan, which may compile a kernel, happens on the first call with a size.
// msbench: link cudnn
#include <cudnn.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <vector>

#include "msbench_library.cuh"

// Handles of graphs and plans are deprecated in favour of device properties, which need no GPU at hand; here there is one.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define CUDNN(call) MSBENCH_LIBRARY(cudnnGetErrorString, call)

#ifdef MSBENCH_FP32
constexpr cudnnDataType_t kType = CUDNN_DATA_FLOAT;
#else
constexpr cudnnDataType_t kType = CUDNN_DATA_BFLOAT16;
#endif

enum Uid : int64_t { kX = 1, kWeight, kBias, kEpsilon, kY };

// An owned descriptor of the backend API. The first status that is no success stays; later calls do nothing.
class Descriptor {
   public:
    explicit Descriptor(cudnnBackendDescriptorType_t type) { status_ = cudnnBackendCreateDescriptor(type, &raw_); }
    Descriptor(const Descriptor&) = delete;
    ~Descriptor() {
        if (raw_) cudnnBackendDestroyDescriptor(raw_);
    }

    Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* value) {
        if (status_ == CUDNN_STATUS_SUCCESS) status_ = cudnnBackendSetAttribute(raw_, name, type, count, value);
        return *this;
    }

    Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
        return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
    }

    cudnnStatus_t finalize() {
        if (status_ == CUDNN_STATUS_SUCCESS) status_ = cudnnBackendFinalize(raw_);
        return status_;
    }

    cudnnBackendDescriptor_t raw() const { return raw_; }

   private:
    cudnnBackendDescriptor_t raw_ = nullptr;
    cudnnStatus_t status_;
};

// An executable plan and the engine configuration that it was made of; without `execution` where no engine takes the size.
struct Plan {
    std::unique_ptr<Descriptor> configuration, execution;
    void* workspace = nullptr;
};

// The graph y = weight·x/rms(x) + bias.
struct Graph {
    Descriptor x{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, weight{CUDNN_BACKEND_TENSOR_DESCRIPTOR},
        bias{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, epsilon{CUDNN_BACKEND_TENSOR_DESCRIPTOR},
        y{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, norm{CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR},
        operations{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

struct Entry {
    Graph graph;
    Plan plan;
};

static cudnnHandle_t handle = nullptr;

// A tensor of `columns` elements in one row; `by_value` for a scalar that is passed from the host with each launch.
static cudnnStatus_t describe(Descriptor& tensor, Uid uid, cudnnDataType_t type, int64_t columns, bool by_value) {
    const int64_t sizes[] = {1, columns, 1, 1}, strides[] = {columns, 1, columns, columns}, id = uid, alignment = 16;
    return tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes)
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment)
        .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value)
        .finalize();
}

static cudaError_t finalize(Graph& graph, int64_t N) {
    CUDNN(describe(graph.x, kX, kType, N, false));
    CUDNN(describe(graph.weight, kWeight, kType, N, false));
    CUDNN(describe(graph.bias, kBias, kType, N, false));
    CUDNN(describe(graph.epsilon, kEpsilon, CUDNN_DATA_FLOAT, 1, true));
    CUDNN(describe(graph.y, kY, kType, N, false));
    const cudnnBackendNormMode_t mode = CUDNN_RMS_NORM;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_INFERENCE;
    CUDNN(graph.norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode)
              .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase)
              .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, graph.x)
              .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, graph.weight)
              .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, graph.bias)
              .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph.epsilon)
              .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, graph.y)
              .finalize());
    CUDNN(graph.operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
              .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, graph.norm)
              .finalize());
    return cudaSuccess;
}

static cudaError_t run(const Plan& plan, const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                       float epsilon) {
    const int64_t uids[] = {kX, kWeight, kBias, kEpsilon, kY};
    const void* pointers[] = {x, weight, bias, &epsilon, y};
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    CUDNN(pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 5, uids)
              .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 5, pointers)
              .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &plan.workspace)
              .finalize());
    CUDNN(cudnnBackendExecute(handle, plan.execution->raw(), pack.raw()));
    return cudaSuccess;
}

// The plan of an engine configuration, or one without `execution` where the engine refuses.
static Plan build(std::unique_ptr<Descriptor> configuration) {
    auto execution = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    execution->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
        .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *configuration);
    if (execution->finalize() != CUDNN_STATUS_SUCCESS) return {};
    int64_t bytes = 0, found = 0;
    const cudnnStatus_t status = cudnnBackendGetAttribute(execution->raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                          CUDNN_TYPE_INT64, 1, &found, &bytes);
    Plan plan;
    if (status != CUDNN_STATUS_SUCCESS || cudaMalloc(&plan.workspace, bytes + 1) != cudaSuccess) return {};
    plan.configuration = std::move(configuration);
    plan.execution = std::move(execution);
    return plan;
}

// Tries what the heuristics propose for the graph, and keeps the fastest.
template <typename Launch>
static cudaError_t choose(Plan& fastest, const Graph& graph, cudnnBackendHeurMode_t mode, cudaStream_t stream,
                          Launch launch) {
    constexpr int kCandidates = 8;
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.operations)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (heuristics.finalize() != CUDNN_STATUS_SUCCESS) return cudaSuccess;  // no engine in this mode
    std::vector<std::unique_ptr<Descriptor>> configurations;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int i = 0; i < kCandidates; ++i) {
        configurations.push_back(std::make_unique<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
        raw.push_back(configurations.back()->raw());
    }
    int64_t count = 0;
    CUDNN(cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   kCandidates, &count, raw.data()));
    float best = std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < count && i < kCandidates; ++i) {
        Plan plan = build(std::move(configurations[i]));
        if (!plan.execution) continue;
        const float time = msbench::milliseconds(stream, [&] { return launch(plan); });
        if (time < best) {
            best = time;
            std::swap(fastest, plan);
        }
        cudaFree(plan.workspace);
    }
    return cudaSuccess;
}

extern "C" size_t rms_norm_workspace(float epsilon, int64_t N) {
    return 4 * msbench::Staging::room(N * sizeof(scalar_t));
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    static auto& entries = *new std::map<int64_t, Entry>;  // outlives the process: cuDNN may be unloaded before it
    if (!handle) CUDNN(cudnnCreate(&handle));
    CUDNN(cudnnSetStream(handle, stream));
    const size_t bytes = N * sizeof(scalar_t);
    msbench::Staging staging(workspace, stream);
    const scalar_t* input = staging.input(x, bytes);
    const scalar_t* scale = staging.input(weight, bytes);
    const scalar_t* shift = staging.input(bias, bytes);
    scalar_t* output = staging.output(y, bytes);

    const auto launch = [&](const Plan& plan) { return run(plan, input, scale, shift, output, epsilon); };
    const auto [place, is_new] = entries.try_emplace(N);
    auto& [graph, plan] = place->second;
    if (is_new) {
        MSBENCH_CUDA(finalize(graph, N));
        for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
            if (!plan.execution) MSBENCH_CUDA(choose(plan, graph, mode, stream, launch));
        }
    }
    if (!plan.execution) return cudaErrorNotSupported;
    MSBENCH_CUDA(launch(plan));
    return staging.finish();
}
