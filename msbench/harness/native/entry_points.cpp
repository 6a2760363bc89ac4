// Stands between a version and the runtime's way to any function of the driver (ld --wrap): given out are only the functions
// that describe tensor maps, which touch nothing but the map. Types are spelt out, so that this compiles without CUDA's headers.
#include <cstring>

namespace {
constexpr int kNotPermitted = 800;   // cudaErrorNotPermitted
constexpr int kSymbolNotFound = 1;   // cudaDriverEntryPointSymbolNotFound
constexpr char kAllowed[] = "cuTensorMap";

bool allowed(const char* symbol) { return std::strncmp(symbol, kAllowed, sizeof kAllowed - 1) == 0; }

int refuse(void** function, int* result) {
    *function = nullptr;
    if (result) *result = kSymbolNotFound;
    return kNotPermitted;
}
}  // namespace

#define MSBENCH_HIDDEN extern "C" __attribute__((visibility("hidden")))

// Weak, since a release of CUDA has one or both.
extern "C" __attribute__((weak)) int __real_cudaGetDriverEntryPoint(const char*, void**, unsigned long long, int*);
extern "C" __attribute__((weak)) int __real_cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long, int*);

MSBENCH_HIDDEN int __wrap_cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags, int* result) {
    return allowed(symbol) && __real_cudaGetDriverEntryPoint ? __real_cudaGetDriverEntryPoint(symbol, function, flags, result)
                                                             : refuse(function, result);
}

MSBENCH_HIDDEN int __wrap_cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                                           unsigned long long flags, int* result) {
    return allowed(symbol) && __real_cudaGetDriverEntryPointByVersion
               ? __real_cudaGetDriverEntryPointByVersion(symbol, function, version, flags, result)
               : refuse(function, result);
}
