// Functions of the driver, which this library is not linked with: it also has to load where there is none.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>

namespace {

#define MSBENCH_DRIVER(X)                                                                                                     \
    X(cuFuncGetAttribute) X(cuFuncGetName) X(cuFuncGetParamInfo) X(cuFuncSetAttribute) X(cuGraphKernelNodeGetAttribute)        \
    X(cuGraphKernelNodeGetParams) X(cuGraphMemcpyNodeGetParams) X(cuGraphMemsetNodeGetParams) X(cuGraphNodeGetType)            \
    X(cuKernelGetFunction) X(cuLaunchKernelEx) X(cuLibraryGetGlobal) X(cuLibraryGetKernel) X(cuLibraryGetModule)               \
    X(cuLibraryLoadData) X(cuMemsetD16Async) X(cuMemsetD2D16Async) X(cuMemsetD2D32Async) X(cuMemsetD32Async) X(cuModuleGetGlobal)

struct Driver {
#define MSBENCH_MEMBER(function) decltype(&::function) function = nullptr;
    MSBENCH_DRIVER(MSBENCH_MEMBER)
#undef MSBENCH_MEMBER
} driver;

template <class Function>
int entry_point(const char* name, Function* function) {
    cudaDriverEntryPointQueryResult told = cudaDriverEntryPointSymbolNotFound;
    void* found = nullptr;
#if CUDART_VERSION >= 12050
    int version = 0;
    if (int code = cudaDriverGetVersion(&version)) return code;
    const int code = cudaGetDriverEntryPointByVersion(name, &found, std::min(version, CUDART_VERSION), cudaEnableDefault, &told);
#else
    const int code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &told);
#endif
    *function = reinterpret_cast<Function>(found);
    return code ? code : told == cudaDriverEntryPointSuccess ? 0 : cudaErrorSymbolNotFound;
}

int find_driver() {
#define MSBENCH_FIND(function) \
    if (int code = entry_point(#function, &driver.function)) return code;
    MSBENCH_DRIVER(MSBENCH_FIND)
#undef MSBENCH_FIND
    return 0;
}

}  // namespace
