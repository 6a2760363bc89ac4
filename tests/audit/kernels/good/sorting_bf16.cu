// In place: a bitonic network over a copy that is filled up to a power of two, keys as ordered integers.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void load(unsigned* keys, const __nv_bfloat16* data, int N, int padded) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= padded) return;
    const unsigned bits = i < N ? __bfloat16_as_ushort(data[i]) : 0xffffu;
    keys[i] = i >= N ? 0xffffffffu : bits & 0x8000u ? 0xffffu - bits : bits + 0x8000u;
}

__global__ void exchange(unsigned* keys, int padded, int size, int distance) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, partner = i ^ distance;
    if (i >= padded || partner < i) return;
    if ((keys[i] > keys[partner]) == !(i & size)) {
        const unsigned kept = keys[i];
        keys[i] = keys[partner];
        keys[partner] = kept;
    }
}

__global__ void store(__nv_bfloat16* data, const unsigned* keys, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) data[i] = __ushort_as_bfloat16(keys[i] < 0x8000u ? 0xffffu - keys[i] : keys[i] - 0x8000u);
}

extern "C" void sorting_bf16(__nv_bfloat16* data, int N) {
    int padded = 1;
    while (padded < N) padded *= 2;
    unsigned* keys;
    cudaMalloc(&keys, padded * sizeof(unsigned));
    const int blocks = (padded + 255) / 256;
    load<<<blocks, 256>>>(keys, data, N, padded);
    for (int size = 2; size <= padded; size *= 2)
        for (int distance = size / 2; distance > 0; distance /= 2) exchange<<<blocks, 256>>>(keys, padded, size, distance);
    store<<<blocks, 256>>>(data, keys, N);
    cudaDeviceSynchronize();
    cudaFree(keys);
}
