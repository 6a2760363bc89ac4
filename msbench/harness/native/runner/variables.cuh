// A version's variables in the device's memory. All are constants, since others are refused before they run; but a kernel
// can write to them, also to what is in constant memory, and find there in the next call what it wrote.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "call.cuh"
#include "kernels.cuh"
#include "launch.cuh"
#include "state.cuh"

namespace {

// Module memory comes in such blocks at least, so what lies behind a variable can be read as far as the next one, and written.
constexpr size_t kBlockBytes = 4096;

struct Variable {
    const unsigned char* data;
    size_t bytes;  // of it, and to the end of its block
};

std::vector<Variable> variables;  // in the order of the names that they were asked for by

// A function of the driver, which this library is not linked with.
template <class Function>
int entry_point(const char* name, Function* function) {
    cudaDriverEntryPointQueryResult told = cudaDriverEntryPointSymbolNotFound;
    void* found = nullptr;
#if CUDART_VERSION >= 12050
    const int code = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &told);
#else
    const int code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &told);
#endif
    *function = reinterpret_cast<Function>(found);
    return code ? code : told == cudaDriverEntryPointSuccess ? 0 : cudaErrorSymbolNotFound;
}

// The modules of the kernels that a recorded call launches.
int modules_of(cudaGraph_t graph, std::vector<CUmodule>* modules) {
    decltype(&cuFuncGetModule) module_of = nullptr;
    if (int code = entry_point("cuFuncGetModule", &module_of)) return code;
    size_t count = 0;
    if (int code = cudaGraphGetNodes(graph, nullptr, &count)) return code;
    std::vector<cudaGraphNode_t> nodes(count);
    if (int code = cudaGraphGetNodes(graph, nodes.data(), &count)) return code;
    for (cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        if (int code = cudaGraphNodeGetType(node, &type)) return code;
        if (type != cudaGraphNodeTypeKernel) continue;
        cudaKernelNodeParams kernel{};
        cudaFunction_t function = nullptr;
        CUmodule module = nullptr;
        if (int code = cudaGraphKernelNodeGetParams(node, &kernel)) return code;
        if (int code = cudaGetFuncBySymbol(&function, kernel.func)) return code;
        if (int code = module_of(&module, reinterpret_cast<CUfunction>(function))) return code;
        if (std::find(modules->begin(), modules->end(), module) == modules->end()) modules->push_back(module);
    }
    return 0;
}

// Finds variables by their names on the device. `missing` is the first that is in none of the modules, or -1.
int find_variables(const std::vector<CUmodule>& modules, const char* const* names, int count, int* missing) {
    decltype(&cuModuleGetGlobal) look_up = nullptr;
    if (int code = entry_point("cuModuleGetGlobal", &look_up)) return code;
    for (int i = 0; i < count; ++i) {
        CUdeviceptr data = 0;
        size_t bytes = 0;
        const auto has = [&](CUmodule module) { return look_up(&data, &bytes, module, names[i]) == CUDA_SUCCESS; };
        if (std::none_of(modules.begin(), modules.end(), has)) {
            variables.clear();
            *missing = i;
            return 0;
        }
        const CUdeviceptr end = (data + bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
        variables.push_back({reinterpret_cast<const unsigned char*>(data), size_t(end - data)});
    }
    return 0;
}

int hash_variable(const Variable& variable, uint64_t* hash) {
    unsigned long long* const sum = runner.counters + kContent;
    if (int code = cudaMemsetAsync(sum, 0, sizeof(*sum), runner.stream)) return code;
    sum_hashes<<<runner.multiprocessors, 256, 0, runner.stream>>>(variable.data, variable.bytes, sum);
    if (int code = cudaGetLastError()) return code;
    if (int code = cudaMemcpyAsync(hash, sum, sizeof(*sum), cudaMemcpyDeviceToHost, runner.stream)) return code;
    return cudaStreamSynchronize(runner.stream);
}

}  // namespace
