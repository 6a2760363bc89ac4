// Sorting by cub::DeviceRadixSort (Adinets and Merrill 2022, "Onesweep"), which reads x and writes y.
#include <cub/device/device_radix_sort.cuh>

static cudaError_t sort(void* workspace, size_t& workspace_bytes, const scalar_t* x, scalar_t* y, int64_t N,
                        cudaStream_t stream) {
    return cub::DeviceRadixSort::SortKeys(workspace, workspace_bytes, x, y, static_cast<int>(N), 0,
                                          8 * static_cast<int>(sizeof(scalar_t)), stream);
}

extern "C" size_t sorting_workspace(int64_t N) {
    size_t bytes = 0;
    sort(nullptr, bytes, nullptr, nullptr, N, nullptr);
    return bytes;
}

extern "C" cudaError_t sorting(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    return sort(workspace, workspace_bytes, x, y, N, stream);
}
