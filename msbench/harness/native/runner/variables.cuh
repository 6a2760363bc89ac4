// A version's variables in the device's memory. All are constants, since others are refused before they run; but a kernel
// can write to them, also to what is in constant memory, and find there in the next call what it wrote. So they are saved before
// the first call, put back before each repetition that is timed, and compared after each call and each batch.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "call.cuh"
#include "kernels.cuh"
#include "launch.cuh"
#include "poison.cuh"
#include "state.cuh"

namespace {

std::vector<Variable> variables;       // in the order of the names that they were asked for by
Variable* variables_there = nullptr;  // the same on the device

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
        variables.push_back({reinterpret_cast<unsigned char*>(data), nullptr, bytes});
    }
    return 0;
}

// Keeps what they hold.
int save_variables() {
    if (variables.empty()) return 0;
    for (Variable& variable : variables) {
        if (int code = cudaMalloc(reinterpret_cast<void**>(&variable.saved), variable.bytes)) return code;
        if (int code = cudaMemcpy(variable.saved, variable.data, variable.bytes, cudaMemcpyDeviceToDevice)) return code;
    }
    const size_t bytes = variables.size() * sizeof(Variable);
    if (int code = cudaMalloc(reinterpret_cast<void**>(&variables_there), bytes)) return code;
    return cudaMemcpy(variables_there, variables.data(), bytes, cudaMemcpyHostToDevice);
}

int put_variables_back() {
    if (variables.empty()) return 0;
    put_back<<<runner.multiprocessors, 256, 0, runner.stream>>>(variables_there, int(variables.size()));
    return cudaGetLastError();
}

// Counts which bytes of `count` variables from the `first` on are not what was saved, behind what is in the stream.
int count_changes(int first, int count) {
    if (!count) return 0;
    count_unlike<<<runner.multiprocessors, 256, 0, runner.stream>>>(variables_there + first, count, runner.counters + kChanged);
    return cudaGetLastError();
}

int count_changes() { return count_changes(0, int(variables.size())); }

// By themselves, once the stream is idle.
int variables_unchanged() {
    if (variables.empty()) return 0;
    if (int code = clear_counters()) return code;
    if (int code = count_changes()) return code;
    return wrote_elsewhere();
}

}  // namespace
