// RMS normalisation of one vector of N elements.
//
// N <= 8192: one block, one launch, everything in registers. Larger N: two passes of 16-byte packets. New here:
// - The second pass is launched with programmatic stream serialisation: its blocks start while the first pass drains and have
//   their first packets of w, b and x in registers before they wait for the partial sums.
// - The first pass streams through the front of x (evict first) and leaves the last 32 MiB in L2; the second pass runs from the
//   back to the front, so that it finds those there. w, b and y are streamed and do not displace them.
// Expected for 2^25 elements: about 64 + 32 + 192 MiB of DRAM traffic instead of 64 + 64 + 192, so about 72 us.
#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;        // of the kernels for large N
constexpr int kMaxBlocks = 132 * 6;  // one wave of them
constexpr int64_t kKept = (int64_t{32} << 20) / 16;  // packets of x that the first pass leaves in L2
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
    const int64_t count = (N - head) / 8;
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
    if (misalignment(weight) == misalignment(x) && misalignment(bias) == misalignment(x) &&
        misalignment(y) == misalignment(x)) {
        error = cudaLaunchKernelEx(&config, normalise_packets, x, weight, bias, y, partial, blocks, epsilon, head, count, N);
    } else {
        config.gridDim = dim3(blocks_for(N));
        error = cudaLaunchKernelEx(&config, normalise_any, x, weight, bias, y, partial, blocks, epsilon, N);
    }
    const cudaError_t first = cudaGetLastError();
    return error != cudaSuccess ? error : first;
}
