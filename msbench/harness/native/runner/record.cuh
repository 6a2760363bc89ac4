// What is in a recorded graph.
#pragma once

#include <cuda_runtime.h>

#include <string>

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

}  // namespace
