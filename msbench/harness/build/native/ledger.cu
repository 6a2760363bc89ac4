// Counts the memory that a file holds: linked with it and --wrap, so that its allocations come here.
#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace {

std::mutex guard;
std::unordered_map<void*, size_t> held;
int64_t live = 0;

cudaError_t taken(cudaError_t code, void* const* pointer, size_t bytes) {
    if (code == cudaSuccess) {
        const std::lock_guard<std::mutex> lock(guard);
        held[*pointer] = bytes;
        live += int64_t(bytes);
    }
    return code;
}

void returned(void* pointer) {
    const std::lock_guard<std::mutex> lock(guard);
    const auto found = held.find(pointer);
    if (found == held.end()) return;
    live -= int64_t(found->second);
    held.erase(found);
}

}  // namespace

extern "C" {

cudaError_t __real_cudaMalloc(void**, size_t);
cudaError_t __real_cudaMallocAsync(void**, size_t, cudaStream_t);
cudaError_t __real_cudaMallocManaged(void**, size_t, unsigned);
cudaError_t __real_cudaMallocHost(void**, size_t);
cudaError_t __real_cudaHostAlloc(void**, size_t, unsigned);
cudaError_t __real_cudaFree(void*);
cudaError_t __real_cudaFreeAsync(void*, cudaStream_t);
cudaError_t __real_cudaFreeHost(void*);

cudaError_t __wrap_cudaMalloc(void** p, size_t n) { return taken(__real_cudaMalloc(p, n), p, n); }
cudaError_t __wrap_cudaMallocAsync(void** p, size_t n, cudaStream_t s) { return taken(__real_cudaMallocAsync(p, n, s), p, n); }
cudaError_t __wrap_cudaMallocManaged(void** p, size_t n, unsigned f) { return taken(__real_cudaMallocManaged(p, n, f), p, n); }
cudaError_t __wrap_cudaMallocHost(void** p, size_t n) { return taken(__real_cudaMallocHost(p, n), p, n); }
cudaError_t __wrap_cudaHostAlloc(void** p, size_t n, unsigned f) { return taken(__real_cudaHostAlloc(p, n, f), p, n); }
cudaError_t __wrap_cudaFree(void* p) { return returned(p), __real_cudaFree(p); }
cudaError_t __wrap_cudaFreeAsync(void* p, cudaStream_t s) { return returned(p), __real_cudaFreeAsync(p, s); }
cudaError_t __wrap_cudaFreeHost(void* p) { return returned(p), __real_cudaFreeHost(p); }

__attribute__((used, visibility("default"))) int64_t msbench_live_bytes() {
    const std::lock_guard<std::mutex> lock(guard);
    return live;
}

}  // extern "C"
