// The k largest values by cub::DeviceRadixSort (Adinets and Merrill 2022, "Onesweep"): all pairs of value and index are sorted in
// descending order, stably, and the first k are kept.
//
// The indices 0, 1, 2, … that are sorted along depend on sizes only, so they are written once and kept.
#include <cub/device/device_radix_sort.cuh>

#include "msbench_library.cuh"

constexpr int kThreads = 256;

__global__ void count_up(int32_t* numbers, int64_t count) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
    if (i < count) numbers[i] = static_cast<int32_t>(i);
}

__global__ void take(const scalar_t* sorted, const int32_t* order, scalar_t* values, int32_t* indices, int64_t k) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
    if (i >= k) return;
    values[i] = sorted[i];
    indices[i] = order[i];
}

static unsigned blocks_for(int64_t count) {
    return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

// At least N numbers. Shorter arrays made before are kept: a captured graph may still read them.
static cudaError_t natural_numbers(const int32_t** numbers, int64_t N, cudaStream_t stream) {
    static int32_t* longest = nullptr;
    static int64_t length = 0;
    if (N > length) {
        int64_t needed = 4096;
        while (needed < N) needed *= 2;
        int32_t* made = nullptr;
        MSBENCH_CUDA(cudaMalloc(&made, needed * sizeof(int32_t)));
        count_up<<<blocks_for(needed), kThreads, 0, stream>>>(made, needed);
        MSBENCH_CUDA(cudaStreamSynchronize(stream));
        longest = made;
        length = needed;
    }
    *numbers = longest;
    return cudaSuccess;
}

static cudaError_t sort(void* storage, size_t& bytes, const scalar_t* x, scalar_t* sorted, const int32_t* numbers,
                        int32_t* order, int64_t N, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortPairsDescending(storage, bytes, x, sorted, numbers, order, static_cast<int>(N), 0,
                                                     8 * static_cast<int>(sizeof(scalar_t)), stream);
}

// The workspace holds the sorted values, their indices, and CUB's own temporary storage.
extern "C" size_t top_k_workspace(int64_t N, int64_t k) {
    size_t bytes = 0;
    sort(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, N, nullptr);
    return msbench::Staging::room(N * sizeof(scalar_t)) + msbench::Staging::room(N * sizeof(int32_t)) + bytes;
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k,
                             void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int32_t* numbers = nullptr;
    MSBENCH_CUDA(natural_numbers(&numbers, N, stream));
    char* const start = static_cast<char*>(workspace);
    const size_t order_at = msbench::Staging::room(N * sizeof(scalar_t));
    const size_t storage_at = order_at + msbench::Staging::room(N * sizeof(int32_t));
    scalar_t* const sorted = static_cast<scalar_t*>(workspace);
    int32_t* const order = reinterpret_cast<int32_t*>(start + order_at);
    size_t bytes = workspace_bytes - storage_at;
    MSBENCH_CUDA(sort(start + storage_at, bytes, x, sorted, numbers, order, N, stream));
    take<<<blocks_for(k), kThreads, 0, stream>>>(sorted, order, values, indices, k);
    return cudaGetLastError();
}
