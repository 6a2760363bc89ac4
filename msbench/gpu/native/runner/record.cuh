// Records what a launcher puts into its stream, under capture: nothing of it runs. Arrays need not be mapped in this process.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "call.cuh"
#include "driver.cuh"
#include "kernels.cuh"
#include "launch.cuh"
#include "state.cuh"

namespace {

// Whether an error says that something is not possible while a stream is captured.
bool is_of_capture(int code) { return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread; }

// Behind an empty kernel, so that the graph tells whether the call's first kernel waits for what precedes it.
int capture(const Call* call, int set, cudaGraph_t* graph, double* host_ns, int* stage) {
    *stage = kSetUp;
    if (int code = cudaStreamBeginCapture(runner.stream, cudaStreamCaptureModeThreadLocal)) return code;
    nothing<<<1, 1, 0, runner.stream>>>();
    const auto start = std::chrono::steady_clock::now();
    const int code = invoke(call, set, stage);
    *host_ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    const int ended = cudaStreamEndCapture(runner.stream, graph);
    cudaGetLastError();
    if (ended && (!code || is_of_capture(code))) {  // which says more than what a launcher makes of it
        *stage = kCapture;
        return ended;
    }
    if (code) return code;
    *stage = kElsewhere;
    return cudaDeviceSynchronize();
}

// A recorded operation with what it points to; `function` in this process.
struct Operation {
    Node node{};
    CUfunction function = nullptr;
    std::string name;
    std::vector<unsigned char> bytes;
    std::vector<void*> parameters;
    void **given = nullptr, **extra = nullptr;  // the graph's own, while that lives; of a library's kernels not all sizes are known
};

// Where each parameter lies in an operation's bytes.
int lay_out(Operation& operation) {
    operation.parameters.clear();
    size_t offset = 0, size = 0;
    for (size_t i = 0; !driver.cuFuncGetParamInfo(operation.function, i, &offset, &size); ++i) {
        if (offset + size > operation.bytes.size()) return cudaErrorInvalidValue;
        operation.parameters.push_back(operation.bytes.data() + offset);
    }
    return 0;
}

int read_parameters(Operation& operation, const CUDA_KERNEL_NODE_PARAMS& kernel) {
    size_t offset = 0, size = 0;
    operation.given = kernel.kernelParams;
    operation.extra = kernel.kernelParams ? nullptr : kernel.extra;
    if (operation.extra) {  // one buffer: pairs of a key and a value up to CU_LAUNCH_PARAM_END
        const unsigned char* buffer = nullptr;
        for (void** pair = kernel.extra; *pair != CU_LAUNCH_PARAM_END; pair += 2) {
            if (*pair == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<const unsigned char*>(pair[1]);
            if (*pair == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t*>(pair[1]);
        }
        operation.bytes.assign(buffer, buffer + size);
        return lay_out(operation);
    }
    for (size_t i = 0; !driver.cuFuncGetParamInfo(operation.function, i, &offset, &size); ++i) {
        const auto* data = static_cast<const unsigned char*>(kernel.kernelParams[i]);
        operation.bytes.resize(std::max(operation.bytes.size(), offset + size));
        std::copy(data, data + size, operation.bytes.begin() + offset);
    }
    return lay_out(operation);
}

// What a kernel has that no launch of ours repeats, in words.
std::string unusual(CUgraphNode node) {
    CUlaunchAttributeValue value{};
    const auto has = [&](CUlaunchAttributeID id) { return driver.cuGraphKernelNodeGetAttribute(node, id, &value) == CUDA_SUCCESS; };
    if (has(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) && value.accessPolicyWindow.num_bytes) return "a window of persisting L2";
    if (has(CU_LAUNCH_ATTRIBUTE_PRIORITY) && value.priority) return "a priority";
    if (has(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN) && value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT)
        return "a memory synchronisation domain";
    return "";
}

int read_kernel(CUgraphNode node, Operation& operation, std::string* odd) {
    CUDA_KERNEL_NODE_PARAMS kernel{};
    if (int code = driver.cuGraphKernelNodeGetParams(node, &kernel)) return code;
    operation.function = kernel.func;
    if (!operation.function)
        if (int code = driver.cuKernelGetFunction(&operation.function, kernel.kern)) return code;
    const char* name = nullptr;
    if (int code = driver.cuFuncGetName(&name, operation.function)) return code;
    operation.name = name;
    Node& made = operation.node;
    const unsigned grid[3] = {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ};
    const unsigned block[3] = {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ};
    std::copy(grid, grid + 3, made.grid);
    std::copy(block, block + 3, made.block);
    made.shared = kernel.sharedMemBytes;
    CUlaunchAttributeValue value{};
    if (!driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value)) {
        const unsigned cluster[3] = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
        std::copy(cluster, cluster + 3, made.cluster);
    }
    if (!driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value)) made.cooperative = value.cooperative;
    if (!driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, &value))
        made.scheduling = value.clusterSchedulingPolicyPreference;
    driver.cuFuncGetAttribute(&made.max_shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, operation.function);
    driver.cuFuncGetAttribute(&made.carveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, operation.function);
    driver.cuFuncGetAttribute(&made.nonportable, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, operation.function);
    *odd = unusual(node);
    return read_parameters(operation, kernel);
}

// Nothing where memory of the host is named as such; `to` and `from` are addresses of either where it is not.
int read_copy(CUgraphNode node, Operation& operation, std::string* odd) {
    CUDA_MEMCPY3D copy{};
    if (int code = driver.cuGraphMemcpyNodeGetParams(node, &copy)) return code;
    const auto is_host = [](CUmemorytype type) { return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_ARRAY; };
    if (is_host(copy.srcMemoryType) || is_host(copy.dstMemoryType)) *odd = "memory of the host, or a CUDA array";
    if (copy.Depth > 1) *odd = "three dimensions";
    Node& made = operation.node;
    made.to = copy.dstDevice + copy.dstXInBytes + copy.dstY * copy.dstPitch;
    made.from = copy.srcDevice + copy.srcXInBytes + copy.srcY * copy.srcPitch;
    made.to_pitch = copy.dstPitch;
    made.from_pitch = copy.srcPitch;
    made.width = copy.WidthInBytes;
    made.height = std::max<size_t>(copy.Height, 1);
    return 0;
}

int read_memset(CUgraphNode node, Operation& operation) {
    CUDA_MEMSET_NODE_PARAMS set{};
    if (int code = driver.cuGraphMemsetNodeGetParams(node, &set)) return code;
    Node& made = operation.node;
    made.to = set.dst;
    made.to_pitch = set.pitch;
    made.value = set.value;
    made.element = set.elementSize;
    made.width = set.width;
    made.height = std::max<size_t>(set.height, 1);
    return 0;
}

// A graph's nodes from the first to the last, each of which waits for the one before; kForks where they are no such row.
// early[i]: node i need not wait for the end of the one before (programmatic dependent launch).
int in_order(cudaGraph_t graph, std::vector<cudaGraphNode_t>* nodes, std::vector<bool>* early) {
    size_t count = 0;
    if (int code = cudaGraphGetNodes(graph, nullptr, &count)) return code;
    std::vector<cudaGraphNode_t> all(count);
    if (int code = cudaGraphGetNodes(graph, all.data(), &count)) return code;
    size_t edges = 4 * count + 16;
    std::vector<cudaGraphNode_t> from(edges), to(edges);
    std::vector<cudaGraphEdgeData> data(edges);
#if CUDART_VERSION >= 13000
    if (int code = cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &edges)) return code;
#else
    if (int code = cudaGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &edges)) return code;
#endif
    from.resize(edges);
    to.resize(edges);
    while (!all.empty()) {
        const auto ready = [&](cudaGraphNode_t node) {
            for (size_t e = 0; e < edges; ++e)
                if (to[e] == node && std::find(all.begin(), all.end(), from[e]) != all.end()) return false;
            return true;
        };
        const auto next = std::find_if(all.begin(), all.end(), ready);
        if (next == all.end() || std::count_if(all.begin(), all.end(), ready) != 1) return kForks;
        bool programmatic = false;
        for (size_t e = 0; e < edges; ++e)
            programmatic |= to[e] == *next && !nodes->empty() && from[e] == nodes->back() &&
                            data[e].type == cudaGraphDependencyTypeProgrammatic;
        early->push_back(programmatic);
        nodes->push_back(*next);
        all.erase(next);
    }
    return 0;
}

int read(CUgraphNode node, Operation& operation, std::string* odd) {
    CUgraphNodeType type;
    if (int code = driver.cuGraphNodeGetType(node, &type)) return code;
    operation.node.kind = type;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) return read_kernel(node, operation, odd);
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY) return read_copy(node, operation, odd);
    if (type == CU_GRAPH_NODE_TYPE_MEMSET) return read_memset(node, operation);
    return 0;
}

std::string listed(const unsigned (&values)[3]) {
    return "[" + std::to_string(values[0]) + "," + std::to_string(values[1]) + "," + std::to_string(values[2]) + "]";
}

std::string quoted(const std::string& text) {
    std::string made = "\"";
    for (unsigned char c : text) made += c < ' ' || c == '"' || c == '\\' || c > '~' ? '?' : char(c);
    return made + "\"";
}

// One operation as an object of JSON with Node's members.
std::string told(const Operation& operation, const std::string& odd) {
    const Node& n = operation.node;
    static const char digits[] = "0123456789abcdef";
    std::string hex;
    for (unsigned char byte : operation.bytes) hex = hex + digits[byte >> 4] + digits[byte & 15];
    std::string made = "{\"name\":" + quoted(operation.name) + ",\"odd\":" + quoted(odd) + ",\"parameters\":\"" + hex + "\"";
    const auto put = [&](const char* key, const std::string& value) { made += std::string(",\"") + key + "\":" + value; };
    put("grid", listed(n.grid));
    put("block", listed(n.block));
    put("cluster", listed(n.cluster));
    const std::pair<const char*, unsigned long long> numbers[] = {
        {"kind", n.kind}, {"early", n.early}, {"cooperative", n.cooperative}, {"scheduling", n.scheduling},
        {"max_shared", n.max_shared}, {"nonportable", n.nonportable}, {"shared", n.shared}, {"value", n.value},
        {"element", n.element}, {"to", n.to}, {"from", n.from}, {"to_pitch", n.to_pitch}, {"from_pitch", n.from_pitch},
        {"width", n.width}, {"height", n.height}};
    for (const auto& [key, value] : numbers) put(key, std::to_string(value));
    put("carveout", std::to_string(n.carveout));  // -1 for none
    return made + "}";
}

// Reads a captured graph: its operations, but for the empty kernel in front, and the same as a list of JSON.
int read_graph(cudaGraph_t graph, std::vector<Operation>* record, std::string* text) {
    std::vector<cudaGraphNode_t> nodes;
    std::vector<bool> early;
    if (int code = in_order(graph, &nodes, &early)) return code;
    record->clear();
    *text = "[";
    for (size_t i = 1; i < nodes.size(); ++i) {
        std::string odd;
        Operation& operation = record->emplace_back();
        if (int code = read(nodes[i], operation, &odd)) return code;
        operation.node.early = early[i];
        *text += (i > 1 ? "," : "") + told(operation, odd);
    }
    *text += "]";
    return 0;
}

}  // namespace
