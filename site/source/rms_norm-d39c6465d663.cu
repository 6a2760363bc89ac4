// RMS normalisation. Up to 8192 elements: one block, one launch, the sum stays in shared memory. Above: a pass of 16-byte loads
// adds up squares into one partial per block, and a second, persistent pass adds the partials once per block and normalises with
// 16-byte accesses. Bound: one launch (3.49 us) for small N; x is read twice, so about 77 us for N = 2^25.
#include "msbench.cuh"

using namespace msbench;

constexpr int kOneBlock = 8192;      // elements that one block does alone
constexpr int kSumThreads = 512;
constexpr int kMaxSums = 528;        // 4 blocks a multiprocessor
constexpr int kThreads = 256;
constexpr int kMaxBlocks = 1056;     // 8 blocks a multiprocessor

__device__ inline float squares(const Packet<scalar_t>& packet) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        float value = to_float(packet.lane[k]);
        sum = fmaf(value, value, sum);
    }
    return sum;
}

__device__ inline scalar_t result(scalar_t x, scalar_t weight, scalar_t bias, float inverse) {
    return from_float<scalar_t>(fmaf(to_float(weight), to_float(x) * inverse, to_float(bias)));
}

// This thread's share of the sum of squares, thread `index` of `count`.
template <bool kVector>
__device__ inline float own_squares(const scalar_t* x, int64_t N, int64_t index, int64_t count) {
    float own = 0;
    int64_t done = 0;
    if (kVector) {
        const int64_t packets = N / 8;
        done = packets * 8;
        int64_t i = index;
        for (; i + 3 * count < packets; i += 4 * count) {
            Packet<scalar_t> some[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) some[k] = load_packet(x, i + k * count);
#pragma unroll
            for (int k = 0; k < 4; ++k) own += squares(some[k]);
        }
        for (; i < packets; i += count) own += squares(load_packet(x, i));
    }
    for (int64_t i = done + index; i < N; i += count) {
        float value = to_float(x[i]);
        own = fmaf(value, value, own);
    }
    return own;
}

template <bool kVector>
__device__ inline void write(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float inverse,
                             int64_t N, int64_t index, int64_t count) {
    int64_t done = 0;
    if (kVector) {
        const int64_t packets = N / 8;
        done = packets * 8;
        for (int64_t i = index; i < packets; i += count) {
            const Packet<scalar_t> a = load_packet(x, i);
            const Packet<scalar_t> w = load_packet(weight, i);
            const Packet<scalar_t> b = load_packet(bias, i);
            Packet<scalar_t> out;
#pragma unroll
            for (int k = 0; k < 8; ++k) out.lane[k] = result(a.lane[k], w.lane[k], b.lane[k], inverse);
            store_packet(y, i, out);
        }
    }
    for (int64_t i = done + index; i < N; i += count) y[i] = result(x[i], weight[i], bias[i], inverse);
}

template <bool kVector>
__global__ void __launch_bounds__(1024) one_block(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                                  scalar_t* y, float epsilon, int64_t N) {
    __shared__ float scratch[32];
    const float sum = block_reduce(own_squares<kVector>(x, N, threadIdx.x, blockDim.x), Sum(), scratch);
    write<kVector>(x, weight, bias, y, 1.0f / sqrtf(sum / N + epsilon), N, threadIdx.x, blockDim.x);
}

template <bool kVector>
__global__ void __launch_bounds__(kSumThreads) sums_of_squares(const scalar_t* x, float* sums, int64_t N) {
    __shared__ float scratch[32];
    const int64_t index = blockIdx.x * static_cast<int64_t>(kSumThreads) + threadIdx.x;
    const int64_t count = gridDim.x * static_cast<int64_t>(kSumThreads);
    const float sum = block_reduce(own_squares<kVector>(x, N, index, count), Sum(), scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads) normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                                      scalar_t* y, const float* sums, int partials, float epsilon,
                                                      int64_t N) {
    __shared__ float scratch[32];
    float own = 0;
    for (int i = threadIdx.x; i < partials; i += kThreads) own += sums[i];
    const float sum = block_reduce(own, Sum(), scratch);
    const int64_t index = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
    write<kVector>(x, weight, bias, y, 1.0f / sqrtf(sum / N + epsilon), N, index,
                   gridDim.x * static_cast<int64_t>(kThreads));
}

extern "C" size_t rms_norm_workspace(float epsilon, int64_t N) {
    return kMaxSums * sizeof(float);
}

template <bool kVector>
void launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon, int64_t N,
            float* sums, cudaStream_t stream) {
    if (N <= kOneBlock) {
        const int threads = static_cast<int>(ceil_div(ceil_div(N, 8), 32) * 32);
        one_block<kVector><<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, N);
        return;
    }
    const int64_t items = kVector ? ceil_div(N, 8) : N;
    const int64_t most = ceil_div(items, kSumThreads);
    const int partials = static_cast<int>(most < kMaxSums ? most : kMaxSums);
    sums_of_squares<kVector><<<partials, kSumThreads, 0, stream>>>(x, sums, N);
    const int64_t wanted = ceil_div(items, kThreads);
    const int blocks = static_cast<int>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
    normalise<kVector><<<blocks, kThreads, 0, stream>>>(x, weight, bias, y, sums, partials, epsilon, N);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    if (packets_allowed(x, weight, bias, y)) {
        launch<true>(x, weight, bias, y, epsilon, N, sums, stream);
    } else {
        launch<false>(x, weight, bias, y, epsilon, N, sums, stream);
    }
    return cudaGetLastError();
}
