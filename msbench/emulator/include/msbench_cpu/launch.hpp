// Kernel launches. launches.py turns `k<<<grid, block, bytes, stream>>>(a, b)` into
// `::msbench_cpu::bind<&k>("k", ::msbench_cpu::Config(grid, block, bytes, stream))(a, b)`, or into bind_call where &k
// may be ambiguous.
#ifndef MSBENCH_CPU_LAUNCH_HPP
#define MSBENCH_CPU_LAUNCH_HPP

#include <map>

#include "runtime.hpp"

typedef struct CUstream_st* cudaStream_t;
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(0x1))
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(0x2))

namespace msbench_cpu {

/// What stands between <<< and >>>.
struct Config {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    Config(dim3 g, dim3 b, size_t bytes = 0, cudaStream_t s = nullptr)
        : grid(g), block(b), shared_bytes(bytes), stream(s) {}
};

template <class F>
cudaError_t launch(const char* name, const void* function, const Config& c, const F& thread, bool cooperative = false) {
    if (c.stream == nullptr || c.stream == cudaStreamLegacy) count_default_stream();
    return run({name, function, c.grid, c.block, c.shared_bytes, cooperative,
                [](const void* context) { (*static_cast<const F*>(context))(); }, &thread});
}

template <class... P>
const void* address(void (*kernel)(P...)) {
    return reinterpret_cast<const void*>(kernel);
}

/// A kernel whose address is known: its arguments are converted to its parameters, as nvcc does.
template <auto kernel>
struct Bound;

template <class... P, void (*kernel)(P...)>
struct Bound<kernel> {
    const char* name;
    Config config;
    void operator()(P... arguments) const {
        launch(name, address(kernel), config, [&] { kernel(arguments...); });
    }
};

template <auto kernel>
Bound<kernel> bind(const char* name, const Config& config) {
    return {name, config};
}

/// A kernel that only a call can name: overloaded, or with template arguments that are deduced.
template <class F>
struct BoundCall {
    const char* name;
    Config config;
    F call;
    template <class... A>
    void operator()(A&&... arguments) const {
        launch(name, nullptr, config, [&] { call(arguments...); });
    }
};

template <class F>
BoundCall<F> bind_call(F call, const char* name, const Config& config) {
    return {name, config, call};
}

template <class... P, size_t... i>
cudaError_t launch_pointers(void (*kernel)(P...), const Config& config, void** arguments, bool cooperative,
                            std::index_sequence<i...>) {
    return launch(
        "kernel", address(kernel), config,
        [&] { kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<P>>*>(arguments[i])...); }, cooperative);
}

/// Kernels whose addresses were cast to `void*`, and what launches each: launches.py turns `(const void*)k` into `Known()->*k`.
using LaunchOfKnown = cudaError_t (*)(const void*, const Config&, void**, bool);
inline std::map<const void*, LaunchOfKnown>& known_kernels() {
    static std::map<const void*, LaunchOfKnown> known;
    return known;
}

struct Known {
    template <class... P>
    void* operator->*(void (*kernel)(P...)) const {
        known_kernels()[address(kernel)] = [](const void* known, const Config& config, void** arguments, bool cooperative) {
            return launch_pointers(reinterpret_cast<void (*)(P...)>(const_cast<void*>(known)), config, arguments, cooperative,
                                   std::index_sequence_for<P...>());
        };
        return const_cast<void*>(address(kernel));
    }
    template <class T>
    void* operator->*(T variable) const {  // that is called what a kernel is
        return (void*)variable;
    }
};

inline cudaError_t launch_known(const void* kernel, const Config& config, void** arguments, bool cooperative) {
    const auto found = known_kernels().find(kernel);
    if (found == known_kernels().end()) return remember(cudaErrorInvalidDeviceFunction);
    return found->second(kernel, config, arguments, cooperative);
}

}  // namespace msbench_cpu

// launches.py strips `(void*)` and `(const void*)` from the first argument, so that the parameters' types are known
// here; of a variable they are known from where the address was taken.
inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t bytes = 0,
                                    cudaStream_t stream = nullptr) {
    return msbench_cpu::launch_known(kernel, {grid, block, bytes, stream}, arguments, false);
}
inline cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t bytes = 0,
                                               cudaStream_t stream = nullptr) {
    return msbench_cpu::launch_known(kernel, {grid, block, bytes, stream}, arguments, true);
}
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t bytes = 0,
                             cudaStream_t stream = nullptr) {
    return msbench_cpu::launch_pointers(kernel, {grid, block, bytes, stream}, arguments, false,
                                        std::index_sequence_for<P...>());
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t bytes = 0,
                                        cudaStream_t stream = nullptr) {
    return msbench_cpu::launch_pointers(kernel, {grid, block, bytes, stream}, arguments, true,
                                        std::index_sequence_for<P...>());
}

// ------------------------------------------------------------------ cudaLaunchKernelEx

enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
    cudaLaunchAttributePriority = 8,
    cudaLaunchAttributePreferredSharedMemoryCarveout = 14,
};
struct cudaLaunchAttributeValue {
    int cooperative;
    int programmaticStreamSerializationAllowed;
    int priority;
    unsigned sharedMemCarveout;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    cudaLaunchAttribute* attrs = nullptr;
    unsigned int numAttrs = 0;
};

namespace msbench_cpu {

/// The last attribute of a kind counts; priorities and carve-outs mean nothing here.
inline bool asks_for_cooperation(const cudaLaunchConfig_t& config) {
    bool cooperative = false;
    for (unsigned i = 0; i < config.numAttrs; ++i)
        if (config.attrs[i].id == cudaLaunchAttributeCooperative) cooperative = config.attrs[i].val.cooperative != 0;
    return cooperative;
}

}  // namespace msbench_cpu

// launches.py strips the cast to void* here too.
template <class... P>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*kernel)(P...), void** arguments) {
    return msbench_cpu::launch_pointers(kernel,
                                        {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream},
                                        arguments, msbench_cpu::asks_for_cooperation(*config),
                                        std::index_sequence_for<P...>());
}
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
    return msbench_cpu::launch_known(kernel,
                                     {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream},
                                     arguments, msbench_cpu::asks_for_cooperation(*config));
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... given) {
    bool cooperative = msbench_cpu::asks_for_cooperation(*config);
    std::tuple<P...> arguments(static_cast<P>(given)...);
    return msbench_cpu::launch(
        "kernel", msbench_cpu::address(kernel),
        {config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream},
        [&] { std::apply(kernel, arguments); }, cooperative);
}

#endif
