// What baselines on cuDNN's graphs share (backend C API): descriptors, tensors, and plans that are tried against each other.
//
// A graph is described once for a shape; an executable plan is what an engine makes of it, which may compile a kernel.
#pragma once

#include <cudnn.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "msbench_library.cuh"

// Handles of graphs and plans are deprecated in favour of device properties, which need no GPU at hand; here there is one.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define MSBENCH_CUDNN(call) MSBENCH_LIBRARY(cudnnGetErrorString, call)

namespace msbench::cudnn {

#ifdef MSBENCH_FP32
constexpr cudnnDataType_t kType = CUDNN_DATA_FLOAT;
#else
constexpr cudnnDataType_t kType = CUDNN_DATA_BFLOAT16;
#endif

// The handle of this process, set to `stream`; null where cuDNN has none to give.
inline cudnnHandle_t handle_on(cudaStream_t stream) {
    static cudnnHandle_t handle = nullptr;
    if (!handle && cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) return nullptr;
    return cudnnSetStream(handle, stream) == CUDNN_STATUS_SUCCESS ? handle : nullptr;
}

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

// A tensor descriptor of its own type, so that a graph can list tensors as members.
struct Tensor : Descriptor {
    Tensor() : Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR) {}

    // `rows`×`channels` elements, row-major: to cuDNN an image of one pixel, NHWC.
    cudnnStatus_t matrix(int64_t uid, cudnnDataType_t type, int64_t rows, int64_t channels) {
        return describe(uid, type, rows, channels, false);
    }

    // A float that is passed from the host with each launch.
    cudnnStatus_t number(int64_t uid) { return describe(uid, CUDNN_DATA_FLOAT, 1, 1, true); }

   private:
    cudnnStatus_t describe(int64_t uid, cudnnDataType_t type, int64_t rows, int64_t channels, bool by_value) {
        const int64_t sizes[] = {rows, channels, 1, 1}, strides[] = {channels, 1, channels, channels}, alignment = 16;
        return set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type)
            .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes)
            .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides)
            .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid)
            .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment)
            .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value)
            .finalize();
    }
};

// One tensor of a launch: its unique id in the graph and where it lies (on the host for a `number`).
struct Argument {
    int64_t uid;
    const void* pointer;
};

// An executable plan with its workspace and the configuration that it was made of; empty where no engine takes the graph.
// It lives as long as the process.
struct Plan {
    std::unique_ptr<Descriptor> configuration, execution;
    void* workspace = nullptr;

    explicit operator bool() const { return execution != nullptr; }

    cudaError_t run(cudnnHandle_t handle, std::initializer_list<Argument> arguments) const {
        std::vector<int64_t> uids;
        std::vector<const void*> pointers;
        for (const Argument& argument : arguments) {
            uids.push_back(argument.uid);
            pointers.push_back(argument.pointer);
        }
        const int64_t count = static_cast<int64_t>(uids.size());
        Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        MSBENCH_CUDNN(pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data())
                          .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data())
                          .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
                          .finalize());
        MSBENCH_CUDNN(cudnnBackendExecute(handle, execution->raw(), pack.raw()));
        return cudaSuccess;
    }
};

// The plan of an engine configuration; an empty one where the engine refuses.
inline Plan plan_of(cudnnHandle_t handle, std::unique_ptr<Descriptor> configuration) {
    auto execution = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    execution->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
        .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *configuration);
    if (execution->finalize() != CUDNN_STATUS_SUCCESS) return {};
    int64_t bytes = 0, found = 0;
    const cudnnStatus_t status = cudnnBackendGetAttribute(execution->raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                          CUDNN_TYPE_INT64, 1, &found, &bytes);
    Plan plan;
    if (status != CUDNN_STATUS_SUCCESS) return {};
    if (cudaMalloc(&plan.workspace, bytes + 1) != cudaSuccess) {
        cudaGetLastError();  // too much for this device must not fail the next launch
        return {};
    }
    plan.configuration = std::move(configuration);
    plan.execution = std::move(execution);
    return plan;
}

// How long a first call looks for something faster: a bench has hundreds of first calls.
constexpr double kSearchSeconds = 0.3;

class Stopwatch {
   public:
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

   private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What the heuristics propose for a graph in one mode, best guess first.
inline std::vector<std::unique_ptr<Descriptor>> proposals(const Descriptor& operations, cudnnBackendHeurMode_t mode) {
    constexpr int kMost = 16;
    std::vector<std::unique_ptr<Descriptor>> configurations;
    std::vector<cudnnBackendDescriptor_t> raw;
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (heuristics.finalize() != CUDNN_STATUS_SUCCESS) return configurations;  // no engine in this mode
    for (int i = 0; i < kMost; ++i) {
        configurations.push_back(std::make_unique<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
        raw.push_back(configurations.back()->raw());
    }
    int64_t count = 0;
    const cudnnStatus_t status = cudnnBackendGetAttribute(
        heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, &count, raw.data());
    configurations.resize(status == CUDNN_STATUS_SUCCESS ? std::min<int64_t>(count, kMost) : 0);
    return configurations;
}

// The fastest of what it is given, the fastest first. Of what takes long it keeps fewer: that is disturbed less by others who use
// the device, takes longer to choose from anew, and often has large workspaces.
template <typename Candidate>
class Podium {
   public:
    // The time to beat; infinity as long as there is none.
    float best() const { return places_.empty() ? std::numeric_limits<float>::infinity() : places_.front().first; }

    // Takes a candidate that ran for so many milliseconds, infinity if it failed. What falls off comes back.
    std::vector<Candidate> add(float time, Candidate candidate) {
        std::vector<Candidate> off;
        const bool ran = time < std::numeric_limits<float>::infinity();
        const auto place =
            std::find_if(places_.begin(), places_.end(), [&](const auto& other) { return time < other.first; });
        places_.emplace(ran ? place : places_.end(), time, std::move(candidate));
        const size_t most = best() > kLongMilliseconds ? 3 : 8;
        while (!places_.empty() && (places_.size() > most || places_.back().first == std::numeric_limits<float>::infinity())) {
            off.push_back(std::move(places_.back().second));
            places_.pop_back();
        }
        return off;
    }

    std::vector<Candidate> take() {
        std::vector<Candidate> all;
        for (auto& [time, candidate] : places_) all.push_back(std::move(candidate));
        places_.clear();
        return all;
    }

   private:
    static constexpr float kLongMilliseconds = 1;

    std::vector<std::pair<float, Candidate>> places_;
};

// The fastest plans for a graph, of those that the heuristics propose, best guess first, until `kSearchSeconds` have passed (many
// engines compile a kernel for each shape); of those that can do it at all where they propose none that works; none where none
// does. `launch(plan)` runs one and gives a cudaError_t. Synchronises.
template <typename Launch>
std::vector<Plan> fastest_plans(cudnnHandle_t handle, const Descriptor& operations, cudaStream_t stream, Launch launch) {
    Podium<Plan> podium;
    const float none = podium.best();
    const Stopwatch since_start{};
    const Flush flush;
    for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
        if (podium.best() < none && mode == CUDNN_HEUR_MODE_FALLBACK) break;
        for (std::unique_ptr<Descriptor>& configuration : proposals(operations, mode)) {
            if (podium.best() < none && since_start.seconds() > kSearchSeconds) return podium.take();
            Plan plan = plan_of(handle, std::move(configuration));
            if (!plan) continue;
            const float time = milliseconds(stream, [&] { return launch(plan); }, podium.best(), flush);
            for (const Plan& off : podium.add(time, std::move(plan))) cudaFree(off.workspace);
        }
    }
    return podium.take();
}

// The plans for one graph, and which of them is run.
class Plans {
   public:
    // The fastest; null where no engine takes the graph. Where a choice is due, it is found out: the first time of all that
    // `fastest_plans` finds, later of those that were fastest then.
    template <typename Launch>
    const Plan* fastest(cudnnHandle_t handle, const Descriptor& operations, cudaStream_t stream, Launch launch) {
        if (due_.take()) {
            if (!looked_) plans_ = fastest_plans(handle, operations, stream, launch);
            looked_ = true;
            choose(stream, launch);
        }
        return plans_.empty() ? nullptr : &plans_[fastest_];
    }

   private:
    template <typename Launch>
    void choose(cudaStream_t stream, Launch launch) {
        float best = std::numeric_limits<float>::infinity();
        const Flush flush;
        for (size_t i = 0; i < plans_.size(); ++i) {
            const float time = milliseconds(stream, [&] { return launch(plans_[i]); }, best, flush);
            if (time >= best) continue;
            best = time;
            fastest_ = i;
        }
    }

    Due due_;
    bool looked_ = false;
    std::vector<Plan> plans_;
    size_t fastest_ = 0;
};

}  // namespace msbench::cudnn
