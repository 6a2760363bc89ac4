// RMS normalisation of one vector of N elements.
//
// N <= 8192: one block, everything in registers. Middle N: two passes of 16-byte packets, the second launched early.
// New here, for x of more than 16 MiB: one cooperative launch, one block of 1024 threads a multiprocessor, which reads as little of
// x twice as it can. Every block keeps its first 224 KiB of x in shared memory (28.9 MiB on the whole device); of the rest, the
// last 36 MiB are left in L2. After the grid's barrier the rest is normalised from the back, then what shared memory holds.
// Expected for 2^25 elements: 256 MiB of DRAM traffic, the definition's own, so about 68 us with launch and barrier.
#include <cooperative_groups.h>

#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;        // of the kernels for large N
constexpr int kMaxBlocks = 132 * 6;  // one wave of them
constexpr int kHugeThreads = 1024;                   // of the cooperative kernel, one block a multiprocessor
constexpr int kHeld = 14;                            // packets of x that each of its threads keeps in shared memory
constexpr int kHeldBytes = kHeld * kHugeThreads * 16;
constexpr int64_t kHuge = (int64_t{16} << 20) / 16;  // packets of x, from which it is used
constexpr int64_t kKept = (int64_t{36} << 20) / 16;  // packets of x that the first pass leaves in L2
constexpr int kSmall = 8192;         // elements that one block of 1024 threads holds in registers, 8 a thread

__device__ inline void unpack(const uint4& packet, float (&value)[8]) {
    const uint32_t word[4] = {packet.x, packet.y, packet.z, packet.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        value[2 * i] = __uint_as_float(word[i] << 16);
        value[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
}

__device__ inline uint32_t pack(float low, float high) {
    const uint32_t a = __bfloat16_as_ushort(__float2bfloat16_rn(low));
    const uint32_t b = __bfloat16_as_ushort(__float2bfloat16_rn(high));
    return a | b << 16;
}

// w x / root + b for 8 elements. x / root comes first: it is at most sqrt(N), so that it cannot overflow.
__device__ inline uint4 normalised(const uint4& x, const uint4& w, const uint4& b, float scale) {
    float xs[8], ws[8], bs[8];
    unpack(x, xs);
    unpack(w, ws);
    unpack(b, bs);
#pragma unroll
    for (int i = 0; i < 8; ++i) xs[i] = xs[i] * scale * ws[i] + bs[i];
    return {pack(xs[0], xs[1]), pack(xs[2], xs[3]), pack(xs[4], xs[5]), pack(xs[6], xs[7])};
}

__device__ inline float sum_of_squares(const uint4& x) {
    float xs[8];
    unpack(x, xs);
    float even = xs[0] * xs[0], odd = xs[1] * xs[1];
#pragma unroll
    for (int i = 2; i < 8; i += 2) {
        even += xs[i] * xs[i];
        odd += xs[i + 1] * xs[i + 1];
    }
    return even + odd;
}

__device__ inline scalar_t normalised_one(scalar_t x, scalar_t w, scalar_t b, float scale) {
    return __float2bfloat16_rn(__bfloat162float(x) * scale * __bfloat162float(w) + __bfloat162float(b));
}

__device__ inline const uint4* packets(const scalar_t* array) { return reinterpret_cast<const uint4*>(array); }
__device__ inline uint4* packets(scalar_t* array) { return reinterpret_cast<uint4*>(array); }

// The sum over the block, in every thread; for one warp without shared memory. Called once a kernel.
__device__ inline float block_sum(float x, float* scratch) {
    x = msbench::warp_reduce(x, msbench::Sum());
    if (blockDim.x > 32) {
        if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
        __syncthreads();
        x = threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : 0.0f;
        x = msbench::warp_reduce(x, msbench::Sum());
    }
    return x;
}

__device__ inline float scale_of(float sum, float epsilon, int64_t N) {
    return 1.0f / sqrtf(sum / static_cast<float>(N) + epsilon);
}

// ------------------------------------------------------------------------------------------------ small N: one block

// N is a multiple of 8, all arrays are aligned to 16 bytes.
__global__ void __launch_bounds__(1024) small_packets(const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
                                                      const scalar_t* __restrict__ bias, scalar_t* __restrict__ y,
                                                      float epsilon, int N) {
    __shared__ float scratch[32];
    const int at = threadIdx.x;
    const bool inside = at < N / 8;
    uint4 xs = {}, ws = {}, bs = {};
    if (inside) {
        xs = packets(x)[at];
        ws = packets(weight)[at];
        bs = packets(bias)[at];
    }
    const float scale = scale_of(block_sum(sum_of_squares(xs), scratch), epsilon, N);
    if (inside) packets(y)[at] = normalised(xs, ws, bs, scale);
}

__global__ void __launch_bounds__(1024) small_any(const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
                                                  const scalar_t* __restrict__ bias, scalar_t* __restrict__ y,
                                                  float epsilon, int N) {
    __shared__ float scratch[32];
    const int threads = blockDim.x;
    scalar_t xs[8], ws[8], bs[8];
    float own = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int at = i * threads + threadIdx.x;
        if (at < N) {
            xs[i] = x[at];
            ws[i] = weight[at];
            bs[i] = bias[at];
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (i * threads + threadIdx.x < N) {
            const float value = __bfloat162float(xs[i]);
            own += value * value;
        }
    }
    const float scale = scale_of(block_sum(own, scratch), epsilon, N);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int at = i * threads + threadIdx.x;
        if (at < N) y[at] = normalised_one(xs[i], ws[i], bs[i], scale);
    }
}

// ------------------------------------------------------------------------------------------------ large N: two passes

// Elements before the first packet: `head`; whole packets: `count`; the rest follows.
__global__ void __launch_bounds__(kThreads) sums_of_squares(const scalar_t* __restrict__ x, float* __restrict__ sums,
                                                            int head, int64_t count, int64_t N) {
    __shared__ float scratch[32];
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const uint4* body = packets(x + head);
    cudaTriggerProgrammaticLaunchCompletion();  // the second pass may start; it waits for the sums itself
    float own[4] = {};
    int64_t at = thread;
    for (; at + 3 * stride < count - kKept; at += 4 * stride) {
        uint4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) loaded[i] = __ldcs(body + at + i * stride);
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] += sum_of_squares(loaded[i]);
    }
    for (; at + 3 * stride < count; at += 4 * stride) {
        uint4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) loaded[i] = __ldcg(body + at + i * stride);
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] += sum_of_squares(loaded[i]);
    }
    for (; at < count; at += stride) own[0] += sum_of_squares(__ldcg(body + at));
    const int64_t tail = head + count * 8;
    if (thread < head) {
        const float value = __bfloat162float(x[thread]);
        own[1] += value * value;
    }
    if (thread < N - tail) {
        const float value = __bfloat162float(x[tail + thread]);
        own[2] += value * value;
    }
    const float sum = block_sum(own[0] + own[1] + (own[2] + own[3]), scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__device__ inline float total(const float* sums, int partials, float* scratch) {
    float own = 0;
    for (int i = threadIdx.x; i < partials; i += kThreads) own += __ldcg(sums + i);
    return block_sum(own, scratch);
}

__global__ void __launch_bounds__(kThreads, 6)
    normalise_packets(const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
                      const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, const float* sums,
                      int partials, float epsilon, int head, int64_t count, int64_t N) {
    __shared__ float scratch[32];
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const uint4* const all_x = packets(x + head);
    const uint4* const all_w = packets(weight + head);
    const uint4* const all_b = packets(bias + head);
    int64_t at = count - 1 - thread;  // from the back, where the first pass ended
    uint4 xs = {}, ws = {}, bs = {};
    if (at >= 0) {
        ws = __ldcs(all_w + at);
        bs = __ldcs(all_b + at);
        xs = __ldcs(all_x + at);
    }
    cudaGridDependencySynchronize();
    const float scale = scale_of(total(sums, partials, scratch), epsilon, N);
    while (at >= 0) {
        __stcs(packets(y + head) + at, normalised(xs, ws, bs, scale));
        at -= stride;
        if (at >= 0) {
            xs = __ldcs(all_x + at);
            ws = __ldcs(all_w + at);
            bs = __ldcs(all_b + at);
        }
    }
    const int64_t tail = head + count * 8;
    if (thread < head) y[thread] = normalised_one(x[thread], weight[thread], bias[thread], scale);
    if (thread < N - tail) {
        const int64_t at = tail + thread;
        y[at] = normalised_one(x[at], weight[at], bias[at], scale);
    }
}

__global__ void __launch_bounds__(kThreads)
    normalise_any(const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
                  const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, const float* sums,
                  int partials, float epsilon, int64_t N) {
    __shared__ float scratch[32];
    cudaGridDependencySynchronize();
    const float scale = scale_of(total(sums, partials, scratch), epsilon, N);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
#pragma unroll 4
    for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < N; at += stride) {
        y[at] = normalised_one(x[at], weight[at], bias[at], scale);
    }
}

// ------------------------------------------------------------------------------------------------ huge N: one pass and a half

__global__ void __launch_bounds__(kHugeThreads, 1)
    huge_packets(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float* sums, float epsilon,
                 int head, int64_t count, int64_t N) {
    extern __shared__ uint4 held[];  // every thread reads only what it wrote
    __shared__ float scratch[2][32];
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kHugeThreads;
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kHugeThreads + threadIdx.x;
    const uint4* const all_x = packets(x + head);
    const uint4* const all_w = packets(weight + head);
    const uint4* const all_b = packets(bias + head);
    uint4* const all_y = packets(y + head);
    uint4* const mine = held + threadIdx.x;
    const int64_t tail = head + count * 8;

    float own[4] = {};
    for (int first = 0; first < kHeld; first += kHeld / 2) {
        uint4 loaded[kHeld / 2];
#pragma unroll
        for (int i = 0; i < kHeld / 2; ++i) {
            const int64_t from = thread + (first + i) * stride;
            loaded[i] = from < count ? __ldcs(all_x + from) : uint4{};
        }
#pragma unroll
        for (int i = 0; i < kHeld / 2; ++i) {
            mine[(first + i) * kHugeThreads] = loaded[i];
            own[i % 4] += sum_of_squares(loaded[i]);
        }
    }
    const int64_t start = thread + kHeld * stride;
    int64_t at = start;
    for (; at + 3 * stride < count - kKept; at += 4 * stride) {
        uint4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) loaded[i] = __ldcs(all_x + at + i * stride);
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] += sum_of_squares(loaded[i]);
    }
    for (; at < count; at += 4 * stride) {
        uint4 loaded[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) loaded[i] = at + i * stride < count ? __ldcg(all_x + at + i * stride) : uint4{};
#pragma unroll
        for (int i = 0; i < 4; ++i) own[i] += sum_of_squares(loaded[i]);
    }
    if (thread < head) {
        const float value = __bfloat162float(x[thread]);
        own[1] += value * value;
    }
    if (thread < N - tail) {
        const float value = __bfloat162float(x[tail + thread]);
        own[2] += value * value;
    }
    const float part = block_sum(own[0] + own[1] + (own[2] + own[3]), scratch[0]);
    if (threadIdx.x == 0) sums[blockIdx.x] = part;

    cooperative_groups::this_grid().sync();

    float all = 0;
    for (int i = threadIdx.x; i < static_cast<int>(gridDim.x); i += kHugeThreads) all += __ldcg(sums + i);
    const float scale = scale_of(block_sum(all, scratch[1]), epsilon, N);

    // The rest, two packets at a time, from the back.
    at = count > start ? start + (count - 1 - start) / stride * stride : -1;
    for (; at >= start; at -= 2 * stride) {
        const int64_t other = at - stride;
        const bool two = other >= start;
        uint4 xs[2] = {}, ws[2] = {}, bs[2] = {};
        xs[0] = __ldcs(all_x + at);
        ws[0] = __ldcs(all_w + at);
        bs[0] = __ldcs(all_b + at);
        if (two) {
            xs[1] = __ldcs(all_x + other);
            ws[1] = __ldcs(all_w + other);
            bs[1] = __ldcs(all_b + other);
        }
        __stcs(all_y + at, normalised(xs[0], ws[0], bs[0], scale));
        if (two) __stcs(all_y + other, normalised(xs[1], ws[1], bs[1], scale));
    }
    // What shared memory holds.
    for (int first = 0; first < kHeld; first += 2) {
        const int64_t from = thread + first * stride;
        const bool one = from < count;
        const bool two = from + stride < count;
        uint4 ws[2] = {}, bs[2] = {};
        if (one) {
            ws[0] = __ldcs(all_w + from);
            bs[0] = __ldcs(all_b + from);
        }
        if (two) {
            ws[1] = __ldcs(all_w + from + stride);
            bs[1] = __ldcs(all_b + from + stride);
        }
        if (one) __stcs(all_y + from, normalised(mine[first * kHugeThreads], ws[0], bs[0], scale));
        if (two) __stcs(all_y + from + stride, normalised(mine[(first + 1) * kHugeThreads], ws[1], bs[1], scale));
    }
    if (thread < head) y[thread] = normalised_one(x[thread], weight[thread], bias[thread], scale);
    if (thread < N - tail) {
        const int64_t last = tail + thread;
        y[last] = normalised_one(x[last], weight[last], bias[last], scale);
    }
}

// How many blocks of the cooperative kernel run at once, at most kMaxBlocks; 0 where this device cannot run it.
int huge_blocks() {
    int device = 0, cooperative = 0, multiprocessors = 0, shared = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess ||
        !cooperative || shared < kHeldBytes + 1024 ||
        cudaFuncSetAttribute(huge_packets, cudaFuncAttributeMaxDynamicSharedMemorySize, kHeldBytes) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return multiprocessors < kMaxBlocks ? multiprocessors : kMaxBlocks;
}

int misalignment(const void* pointer) { return static_cast<int>(reinterpret_cast<uintptr_t>(pointer) & 15); }

int blocks_for(int64_t items) {
    const int64_t blocks = msbench::ceil_div(items, kThreads);
    return static_cast<int>(blocks < 1 ? 1 : blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

}  // namespace

extern "C" size_t rms_norm_workspace(float epsilon, int64_t N) { return kMaxBlocks * sizeof(float); }

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    if (N <= kSmall) {
        const int threads = static_cast<int>(msbench::ceil_div(msbench::ceil_div(N, 8), 32) * 32);
        if (N % 8 == 0 && msbench::packets_allowed(x, weight, bias, y)) {
            small_packets<<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, static_cast<int>(N));
        } else {
            small_any<<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, static_cast<int>(N));
        }
        return cudaGetLastError();
    }
    float* sums = static_cast<float*>(workspace);
    const int head = (16 - misalignment(x)) % 16 / 2;
    int64_t count = (N - head) / 8;
    const bool aligned_alike = misalignment(weight) == misalignment(x) && misalignment(bias) == misalignment(x) &&
                               misalignment(y) == misalignment(x);
    if (aligned_alike && count > kHuge) {
        const int grid = huge_blocks();
        if (grid > 0) {
            int head_argument = head;
            void* arguments[] = {&x, &weight, &bias, &y, &sums, &epsilon, &head_argument, &count, &N};
            const cudaError_t error =
                cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(huge_packets), dim3(grid), dim3(kHugeThreads),
                                            arguments, static_cast<size_t>(kHeldBytes), stream);
            const cudaError_t first = cudaGetLastError();
            return error != cudaSuccess ? error : first;
        }
    }
    const int blocks = blocks_for(count);
    sums_of_squares<<<blocks, kThreads, 0, stream>>>(x, sums, head, count, N);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    const float* partial = sums;
    cudaError_t error;
    if (aligned_alike) {
        error = cudaLaunchKernelEx(&config, normalise_packets, x, weight, bias, y, partial, blocks, epsilon, head, count, N);
    } else {
        config.gridDim = dim3(blocks_for(N));
        error = cudaLaunchKernelEx(&config, normalise_any, x, weight, bias, y, partial, blocks, epsilon, N);
    }
    const cudaError_t first = cudaGetLastError();
    return error != cudaSuccess ? error : first;
}
