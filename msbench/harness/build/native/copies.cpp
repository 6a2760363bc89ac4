// Stands between a version and the runtime's copies (ld --wrap): a copy from device to device is captured only with pointers that
// this process has mapped, one of the default kind with any. Where addresses are unique they mean the same. Types are spelt
// out, so that this compiles without CUDA's headers.
#include <cstddef>

namespace {
constexpr int kDeviceToDevice = 3;
constexpr int kDefault = 4;

int plain(int kind) { return kind == kDeviceToDevice ? kDefault : kind; }
}  // namespace

#define MSBENCH_HIDDEN extern "C" __attribute__((visibility("hidden")))

extern "C" int __real_cudaMemcpyAsync(void*, const void*, size_t, int, void*);
extern "C" int __real_cudaMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, int, void*);

MSBENCH_HIDDEN int __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
    return __real_cudaMemcpyAsync(to, from, bytes, plain(kind), stream);
}

MSBENCH_HIDDEN int __wrap_cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                            size_t height, int kind, void* stream) {
    return __real_cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, plain(kind), stream);
}
