// What is in a recorded graph.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

bool on_device(const void* pointer) {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
}

// What one recorded operation is: "kernel" and its name, "memset", "copy", or what it should not be.
std::string node_name(cudaGraphNode_t node) {
    cudaGraphNodeType type;
    if (cudaGraphNodeGetType(node, &type)) return "unknown";
    switch (type) {
        case cudaGraphNodeTypeKernel: {
            const char* name = "";
#if CUDART_VERSION >= 12030
            cudaKernelNodeParams kernel{};
            if (cudaGraphKernelNodeGetParams(node, &kernel) || cudaFuncGetName(&name, kernel.func)) name = "?";
            cudaGetLastError();
#endif
            return std::string("kernel ") + name;
        }
        case cudaGraphNodeTypeMemset: return "memset";
        case cudaGraphNodeTypeEmpty: return "empty";
        case cudaGraphNodeTypeMemcpy: {
            cudaMemcpy3DParms copy{};
            if (cudaGraphMemcpyNodeGetParams(node, &copy)) return "unknown copy";
            return on_device(copy.srcPtr.ptr) && on_device(copy.dstPtr.ptr) ? "copy" : "host copy";
        }
        case cudaGraphNodeTypeHost: return "host function";
        case cudaGraphNodeTypeMemAlloc: return "allocation";
        case cudaGraphNodeTypeMemFree: return "free";
        default: return "node of type " + std::to_string(int(type));
    }
}

// Whether a node may start before the graph's first one has ended (programmatic dependent launch).
cudaError_t follows_early(cudaGraph_t graph, bool* early) {
    *early = false;
#if CUDART_VERSION >= 12030  // before, no graph had such an edge
    size_t nodes = 0;
    if (cudaError_t failed = cudaGraphGetNodes(graph, nullptr, &nodes)) return failed;
    size_t count = 2 * nodes;  // a stream's work is a chain; the number alone is not told where edges have data
    std::vector<cudaGraphNode_t> from(count), to(count);
    std::vector<cudaGraphEdgeData> data(count);
#if CUDART_VERSION >= 13000
    const cudaError_t failed = cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count);
#else
    const cudaError_t failed = cudaGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &count);
#endif
    if (failed) return failed;
    from.resize(count);
    to.resize(count);
    for (size_t i = 0; i < count; ++i)
        if (data[i].type == cudaGraphDependencyTypeProgrammatic && std::find(to.begin(), to.end(), from[i]) == to.end())
            *early = true;
#endif
    return cudaSuccess;
}

}  // namespace
