// A version's variables in the device's memory: whatever is in them after a call was there before it. A counter that resets
// itself is fine; anything else would outlive the call. So they are saved once loaded, put back before each repetition that is
// timed, and compared after each call and each batch.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "driver.cuh"
#include "kernels.cuh"
#include "play.cuh"
#include "poison.cuh"
#include "state.cuh"

namespace {

std::vector<Variable> variables;       // in the order of the names that they were asked for by
Variable* variables_there = nullptr;  // the same on the device

// Finds variables by their names on the device. `missing` is the first that is not there, or -1.
int find_variables(const char* const* names, int count, int* missing) {
    variables.clear();
    for (*missing = 0; *missing < count; ++*missing) {
        CUdeviceptr data = 0;
        size_t bytes = 0;
        const auto has = [&](CUlibrary library) {
            if (driver.cuLibraryGetGlobal(&data, &bytes, library, names[*missing]) == CUDA_SUCCESS) return true;
            CUmodule module = nullptr;  // which also knows what the compiler has added
            return driver.cuLibraryGetModule(&module, library) == CUDA_SUCCESS &&
                   driver.cuModuleGetGlobal(&data, &bytes, module, names[*missing]) == CUDA_SUCCESS;
        };
        if (std::none_of(libraries.begin(), libraries.end(), has)) return kUnknownVariable;
        variables.push_back({reinterpret_cast<unsigned char*>(data), nullptr, bytes});
    }
    *missing = -1;
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

}  // namespace
