// The runner's own kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace {

constexpr int kMaxPermuted = 16;
constexpr int kMaxElementBytes = 8;
constexpr int kPoison = 0xFF;  // NaN in both element types

__device__ unsigned long long global_timer() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

constexpr size_t kLine = 128;  // bytes of L2

__device__ uint4 read_to_keep(const uint4* from) {
#if __CUDA_ARCH__ >= 800
    unsigned long long last;
    uint4 pack;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
    asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(pack.x), "=r"(pack.y), "=r"(pack.z), "=r"(pack.w)
                 : "l"(from), "l"(last));
    return pack;
#else
    return *from;  // no version can have L2 keep anything
#endif
}

// Reads more than the cache holds. Lines that a write leaves behind would have to be written back while the next call runs
// (up to 14 us of an H200's bandwidth for its 60 MB); lines that were only read are simply replaced. It has L2 keep them, since
// others do not replace what a version has L2 keep: a copy of 2 MB found some of it in the next repetition (8 % faster, H200).
__global__ void read_over(const uint4* data, size_t packs, unsigned* never) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    unsigned mixed = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += step) {
        const uint4 pack = read_to_keep(data + i);
        mixed |= pack.x | pack.y | pack.z | pack.w;
    }
    if (mixed) *never = mixed;  // the memory is zero, which only the host knows
}

// Afterwards L2 need not keep them: the next call has all of it.
__global__ void let_go(const char* data, size_t lines) {
#if __CUDA_ARCH__ >= 800
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < lines; i += step)
        asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(data + i * kLine) : "memory");
#endif
}

__global__ void hold_stream(volatile unsigned* flags, unsigned ticket, unsigned long long limit_ns) {
    const unsigned long long start = global_timer();
    while (flags[0] < ticket) {
        if (global_timer() - start > limit_ns) {
            flags[1] = ticket;
            __threadfence_system();
            return;
        }
        __nanosleep(200);
    }
}

// Two elements of each of a few arrays.
struct Swaps {
    unsigned char* first[kMaxPermuted];
    unsigned char* second[kMaxPermuted];
    unsigned bytes[kMaxPermuted];
};

// Has them change places, so that no two repetitions have the same inputs: what a version remembers is worth nothing.
__global__ void permute(Swaps swaps) {
    if (threadIdx.x >= swaps.bytes[blockIdx.x]) return;
    unsigned char &first = swaps.first[blockIdx.x][threadIdx.x], &second = swaps.second[blockIdx.x][threadIdx.x];
    const unsigned char kept = first;
    first = second;
    second = kept;
}

__global__ void nothing() {}

// Arithmetic on every multiprocessor for a while: raises the clocks before anything is timed.
__global__ void busy(unsigned long long duration_ns, float* sink) {
    const unsigned long long start = global_timer();
    float x = threadIdx.x, y = 1.0001f;
    while (global_timer() - start < duration_ns) {
#pragma unroll 64
        for (int i = 0; i < 1024; ++i) x = fmaf(x, y, 0.5f);
    }
    if (x == 0.12345f) *sink = x;
}

// Counts the bytes of a buffer that differ from the one that it was filled with.
__global__ void count_changed(const unsigned char* data, size_t bytes, unsigned char filled, unsigned long long* count) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < bytes; i += size_t(gridDim.x) * blockDim.x)
        mine += data[i] != filled;
    if (mine) atomicAdd(count, mine);
}

__device__ unsigned long long mixed(unsigned long long z) {  // SplitMix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Fills memory that is aligned to 16 bytes with a pattern that nobody has seen before.
__global__ void redraw(unsigned char* data, size_t bytes, unsigned long long seed) {
    const size_t packs = bytes / 16, first = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    for (size_t i = first; i < packs; i += size_t(gridDim.x) * blockDim.x) {
        const unsigned long long drawn = mixed(seed + i);
        reinterpret_cast<ulonglong2*>(data)[i] = {drawn, ~drawn};
    }
    if (first < bytes % 16) data[packs * 16 + first] = (unsigned char)(seed >> 8);
}

// What a kernel leaves in shared memory the next one on the same multiprocessor would find (seen on an H200); so every block
// that fits takes all of it, and overwrites it.
__global__ void scrub_shared(unsigned value, size_t words) {
    extern __shared__ unsigned shared[];
    for (size_t i = threadIdx.x; i < words; i += blockDim.x) reinterpret_cast<volatile unsigned*>(shared)[i] = value;
    __syncthreads();
}

// The same for local memory, as much of each thread's as most kernels spill.
constexpr int kLocalWords = 512;

__global__ void scrub_local(unsigned value, unsigned* never) {
    volatile unsigned local[kLocalWords];
    for (int i = 0; i < kLocalWords; ++i) local[i] = value;
    if (local[value % kLocalWords] != value) *never = 1;
}

// A variable of a version, and a copy of what it held before the first call.
struct Variable {
    unsigned char* data;
    unsigned char* saved;
    size_t bytes;
};

__global__ void put_back(const Variable* variables, int count) {
    for (const Variable* one = variables; one < variables + count; ++one)
        for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < one->bytes; i += size_t(gridDim.x) * blockDim.x)
            if (one->data[i] != one->saved[i]) one->data[i] = one->saved[i];
}

__global__ void count_unlike(const Variable* variables, int count, unsigned long long* sum) {
    unsigned long long mine = 0;
    for (const Variable* one = variables; one < variables + count; ++one)
        for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < one->bytes; i += size_t(gridDim.x) * blockDim.x)
            mine += one->data[i] != one->saved[i];
    if (mine) atomicAdd(sum, mine);
}

}  // namespace
