// Softmax attention by cuDNN's fused attention for bf16, described in the ways that cuDNN's versions know it: as one operation,
// and as the graph of its parts (product, scale, maximum, difference, exponential, sum, quotient, product), whose weights are
// fp32 or bf16 in name. The first call with a shape tries every engine proposed for any of them and keeps the fastest few.
//
// cuDNN wants columns in multiples of eight, and has engines for some widths only; where it has none, the launcher says
// cudaErrorNotSupported. Arrays that are not aligned to 16 bytes are staged.
// msbench: link cudnn
// msbench: precisions bf16
#include <array>
#include <map>
#include <vector>

#include "msbench_cudnn.cuh"

using msbench::cudnn::Descriptor;
using msbench::cudnn::Plan;

enum Uid : int64_t { kQ = 1, kK, kV, kScale, kY, kScores, kScaled, kLargest, kDifference, kExponential, kSum, kWeights };

// A matrix that cuDNN sees as one head of one batch: [1, 1, rows, columns].
struct Matrix : Descriptor {
    Matrix() : Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR) {}

    cudnnStatus_t plain(Uid uid, int64_t rows, int64_t columns) {
        return describe(uid, CUDNN_DATA_BFLOAT16, rows, columns, columns, 1, false, false);
    }

    // What lies in memory as [columns, rows].
    cudnnStatus_t transposed(Uid uid, int64_t rows, int64_t columns) {
        return describe(uid, CUDNN_DATA_BFLOAT16, rows, columns, 1, rows, false, false);
    }

    // An intermediate result, which no memory holds.
    cudnnStatus_t intermediate(Uid uid, cudnnDataType_t type, int64_t rows, int64_t columns) {
        return describe(uid, type, rows, columns, columns, 1, true, false);
    }

    // A float that is passed from the host with each launch.
    cudnnStatus_t number(Uid uid) { return describe(uid, CUDNN_DATA_FLOAT, 1, 1, 1, 1, false, true); }

   private:
    cudnnStatus_t describe(int64_t uid, cudnnDataType_t type, int64_t rows, int64_t columns, int64_t row_stride,
                           int64_t column_stride, bool is_virtual, bool by_value) {
        const int64_t sizes[] = {1, 1, rows, columns}, alignment = 16;
        const int64_t strides[] = {rows * columns, rows * columns, row_stride, column_stride};
        return set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type)
            .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes)
            .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides)
            .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid)
            .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment)
            .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual)
            .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value)
            .finalize();
    }
};

// A graph and everything that it refers to; what it is described by has to outlive its plans.
struct Graph {
    Matrix q, k, v, scale, y, scores, scaled, largest, difference, exponential, sum, weights;
    std::vector<std::unique_ptr<Descriptor>> kept;
    std::vector<cudnnBackendDescriptor_t> nodes;
    Descriptor operations{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    void note(cudnnStatus_t next) {
        if (status == CUDNN_STATUS_SUCCESS) status = next;
    }

    Descriptor& keep(cudnnBackendDescriptorType_t type) {
        kept.push_back(std::make_unique<Descriptor>(type));
        return *kept.back();
    }

    void add(Descriptor& node) {
        note(node.finalize());
        nodes.push_back(node.raw());
    }

    void multiply(const Matrix& a, const Matrix& b, const Matrix& c) {
        const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
        Descriptor& how = keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
        note(how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute).finalize());
        add(keep(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
                .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how)
                .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
                .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
                .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c));
    }

    // y = mode(x), or mode(x, b)
    void pointwise(cudnnPointwiseMode_t mode, const Matrix& x, const Matrix* b, const Matrix& result) {
        const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
        Descriptor& how = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        note(how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
                 .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute)
                 .finalize());
        Descriptor& node = keep(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        node.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
            .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
            .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result);
        if (b) node.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
        add(node);
    }

    // Over each row.
    void reduce(cudnnReduceTensorOp_t operation, const Matrix& x, const Matrix& result) {
        const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
        Descriptor& how = keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        note(how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operation)
                 .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute)
                 .finalize());
        add(keep(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
                .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how)
                .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
                .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, result));
    }

    bool finalize(cudnnHandle_t handle) {
        operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
            .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(nodes.size()),
                 nodes.data());
        note(operations.finalize());
        return status == CUDNN_STATUS_SUCCESS;
    }
};

static void describe_arrays(Graph& graph, int64_t q, int64_t kv, int64_t d, int64_t dv) {
    graph.note(graph.q.plain(kQ, q, d));
    graph.note(graph.v.plain(kV, kv, dv));
    graph.note(graph.scale.number(kScale));
    graph.note(graph.y.plain(kY, q, dv));
}

#if CUDNN_VERSION >= 91300
static void as_one_operation(Graph& graph, int64_t q, int64_t kv, int64_t d, int64_t dv) {
    describe_arrays(graph, q, kv, d, dv);
    graph.note(graph.k.plain(kK, kv, d));
    graph.add(graph.keep(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR)
                  .set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, graph.q)
                  .set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, graph.k)
                  .set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, graph.v)
                  .set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, graph.scale)
                  .set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, graph.y));
}
#endif

static void as_parts(Graph& graph, cudnnDataType_t weights, int64_t q, int64_t kv, int64_t d, int64_t dv) {
    describe_arrays(graph, q, kv, d, dv);
    graph.note(graph.k.transposed(kK, d, kv));
    graph.note(graph.scores.intermediate(kScores, CUDNN_DATA_FLOAT, q, kv));
    graph.note(graph.scaled.intermediate(kScaled, CUDNN_DATA_FLOAT, q, kv));
    graph.note(graph.largest.intermediate(kLargest, CUDNN_DATA_FLOAT, q, 1));
    graph.note(graph.difference.intermediate(kDifference, CUDNN_DATA_FLOAT, q, kv));
    graph.note(graph.exponential.intermediate(kExponential, CUDNN_DATA_FLOAT, q, kv));
    graph.note(graph.sum.intermediate(kSum, CUDNN_DATA_FLOAT, q, 1));
    graph.note(graph.weights.intermediate(kWeights, weights, q, kv));
    graph.multiply(graph.q, graph.k, graph.scores);
    graph.pointwise(CUDNN_POINTWISE_MUL, graph.scores, &graph.scale, graph.scaled);
    graph.reduce(CUDNN_REDUCE_TENSOR_MAX, graph.scaled, graph.largest);
    graph.pointwise(CUDNN_POINTWISE_SUB, graph.scaled, &graph.largest, graph.difference);
    graph.pointwise(CUDNN_POINTWISE_EXP, graph.difference, nullptr, graph.exponential);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, graph.exponential, graph.sum);
    graph.pointwise(CUDNN_POINTWISE_DIV, graph.exponential, &graph.sum, graph.weights);
    graph.multiply(graph.weights, graph.v, graph.y);
}

// What a shape may be run with: plans of several graphs. None where cuDNN has no engine for the shape.
struct Entry {
    msbench::Due due;
    std::vector<std::unique_ptr<Graph>> graphs;
    std::vector<Plan> plans;
    size_t fastest = 0;
};

// The fastest few plans of every description.
template <typename Launch>
static Entry look(cudnnHandle_t handle, int64_t q, int64_t kv, int64_t d, int64_t dv, cudaStream_t stream, Launch launch) {
    constexpr size_t kKept = 3;
    std::vector<std::unique_ptr<Graph>> graphs;
#if CUDNN_VERSION >= 91300
    graphs.push_back(std::make_unique<Graph>());
    as_one_operation(*graphs.back(), q, kv, d, dv);
#endif
    for (cudnnDataType_t weights : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16}) {
        graphs.push_back(std::make_unique<Graph>());
        as_parts(*graphs.back(), weights, q, kv, d, dv);
    }
    Entry entry;
    for (std::unique_ptr<Graph>& graph : graphs) {
        if (!graph->finalize(handle)) continue;
        for (Plan& plan : msbench::cudnn::fastest_plans(handle, graph->operations, stream, kKept, launch)) {
            entry.plans.push_back(std::move(plan));
        }
        entry.graphs.push_back(std::move(graph));
    }
    return entry;
}

template <typename Launch>
static void choose(Entry& entry, cudaStream_t stream, Launch launch) {
    float best = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < entry.plans.size(); ++i) {
        const float time = msbench::milliseconds(stream, [&] { return launch(entry.plans[i]); }, best);
        if (time >= best) continue;
        best = time;
        entry.fastest = i;
    }
}

extern "C" size_t softmax_attention_workspace(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    using msbench::Staging;
    return Staging::room(q * d * sizeof(scalar_t)) + Staging::room(kv * d * sizeof(scalar_t)) +
           Staging::room(kv * dv * sizeof(scalar_t)) + Staging::room(q * dv * sizeof(scalar_t));
}

extern "C" cudaError_t softmax_attention(const scalar_t* Q, const scalar_t* K, const scalar_t* V, scalar_t* Y,
                                         int64_t q, int64_t kv, int64_t d, int64_t dv, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    using Key = std::array<int64_t, 4>;
    static auto& entries = *new std::map<Key, Entry>;  // outlives the process: cuDNN may be unloaded before it
    if (d % 8 || dv % 8) return cudaErrorNotSupported;
    const cudnnHandle_t handle = msbench::cudnn::handle_on(stream);
    if (!handle) return cudaErrorUnknown;
    msbench::Staging staging(workspace, stream);
    const scalar_t* queries = staging.input(Q, q * d * sizeof(scalar_t));
    const scalar_t* keys = staging.input(K, kv * d * sizeof(scalar_t));
    const scalar_t* values = staging.input(V, kv * dv * sizeof(scalar_t));
    scalar_t* result = staging.output(Y, q * dv * sizeof(scalar_t));
    const float scale = 1 / sqrtf(static_cast<float>(d));
    const auto launch = [&](const Plan& plan) {
        return plan.run(handle, {{kQ, queries}, {kK, keys}, {kV, values}, {kScale, &scale}, {kY, result}});
    };
    const auto [place, is_new] = entries.try_emplace(Key{q, kv, d, dv});
    Entry& entry = place->second;
    if (is_new) entry = look(handle, q, kv, d, dv, stream, launch);
    if (entry.plans.empty()) return cudaErrorNotSupported;
    if (entry.due.take()) choose(entry, stream, launch);
    MSBENCH_CUDA(launch(entry.plans[entry.fastest]));
    return staging.finish();
}
