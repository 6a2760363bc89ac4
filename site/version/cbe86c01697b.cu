// RMS normalisation: a short vector stays in the registers of one block; a long one takes one cooperative launch that keeps a part of x in
// shared memory between its two phases.

#include <cooperative_groups.h>

#include "msbench.cuh"

namespace {

constexpr int WIDTH = 16 / sizeof(scalar_t);  // elements of a 16-byte access
constexpr int MAX_THREADS = 1024,
              MAX_HELD = 4;  // the single block, and the 16-byte packs that each of its threads holds
constexpr int COOP_THREADS = 1024, COOP_UNROLL = 4, COOP_MAP_UNROLL = 2;
constexpr int MULTIPROCESSORS = 132;
constexpr int CACHE_BYTES = 200 * 1024;  // of shared memory, for x

template <int N>
struct alignas(N * sizeof(scalar_t)) Pack {
    scalar_t v[N];
};

template <int N>
__device__ Pack<N> load(const scalar_t* p, int64_t pack) {
    return reinterpret_cast<const Pack<N>*>(p)[pack];
}

// Loads and stores of what nobody reads again: first to leave L2, so that x can stay.
template <int N>
__device__ Pack<N> load_once(const scalar_t* p, int64_t pack) {
    if constexpr (N == 1) {
        return load<N>(p, pack);
    } else {
        const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(p) + pack);
        return reinterpret_cast<const Pack<N>&>(raw);
    }
}

template <int N>
__device__ void store_once(scalar_t* p, int64_t pack, const Pack<N>& values) {
    if constexpr (N == 1) {
        p[pack] = values.v[0];
    } else {
        __stcs(reinterpret_cast<uint4*>(p) + pack, reinterpret_cast<const uint4&>(values));
    }
}

template <int N>
__device__ float square_sum(const Pack<N>& x) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < N; ++k) {
        sum = fmaf(x.v[k], x.v[k], sum);
    }
    return sum;
}

template <int N>
__device__ Pack<N> normalised(const Pack<N>& x, const Pack<N>& w, const Pack<N>& b, float scale) {
    Pack<N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) y.v[k] = fmaf(w.v[k], x.v[k] * scale, b.v[k]);
    return y;
}

__device__ float warp_sum(float v) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
}

// The sum over the block, in every thread. A kernel calls it once, so one barrier is enough.
__device__ float block_sum(float v) {
    __shared__ float warp_sums[32];
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    v = warp_sum(v);
    if (warps == 1) return v;
    if (lane == 0) warp_sums[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_sum(lane < warps ? warp_sums[lane] : 0.0f);
}

// One block, the whole vector in registers: HELD packs a thread, and the fewer than N elements after the last pack.
template <int N, int HELD>
__global__ void __launch_bounds__(MAX_THREADS) one_block(const scalar_t* x, const scalar_t* w, const scalar_t* b,
                                                         scalar_t* y, float epsilon, float inverse_n, int n) {
    const int packs = n / N;
    const int tail = packs * N + threadIdx.x;
    Pack<N> xs[HELD] = {}, ws[HELD], bs[HELD];
    Pack<1> x_tail = {}, w_tail, b_tail;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int pack = i * blockDim.x + threadIdx.x;
        if (pack < packs) {
            xs[i] = load<N>(x, pack);
            ws[i] = load<N>(w, pack);
            bs[i] = load<N>(b, pack);
        }
    }
    if (tail < n) {
        x_tail = load<1>(x, tail);
        w_tail = load<1>(w, tail);
        b_tail = load<1>(b, tail);
    }
    float sum = square_sum(x_tail);
#pragma unroll
    for (int i = 0; i < HELD; ++i) sum += square_sum(xs[i]);
    const float scale = rsqrtf(fmaf(block_sum(sum), inverse_n, epsilon));
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int pack = i * blockDim.x + threadIdx.x;
        if (pack < packs) store_once(y, pack, normalised(xs[i], ws[i], bs[i], scale));
    }
    if (tail < n) store_once(y, tail, normalised(x_tail, w_tail, b_tail, scale));
}

// Every block owns every gridDim.x-th tile of COOP_THREADS packs and keeps its first `kept` tiles in shared memory.
template <int N>
__global__ void __launch_bounds__(COOP_THREADS, 1)
    cooperative(const scalar_t* x, const scalar_t* w, const scalar_t* b, scalar_t* y, float* partials, float epsilon,
                float inverse_n, int64_t n, int kept) {
    extern __shared__ __align__(16) unsigned char raw[];
    Pack<N>* cache = reinterpret_cast<Pack<N>*>(raw);
    __shared__ float scratch[32];
    const int64_t packs = n / N, step = int64_t(gridDim.x) * COOP_THREADS;
    const int64_t first = int64_t(blockIdx.x) * COOP_THREADS + threadIdx.x;
    const int64_t tail = packs * N + first;
    const int64_t turns = packs > first ? (packs - first + step - 1) / step : 0;
    float sum = tail < n ? square_sum(load<1>(x, tail)) : 0.0f;
    int64_t turn = 0;
    for (; turn + COOP_UNROLL <= turns; turn += COOP_UNROLL) {
        Pack<N> xs[COOP_UNROLL];
#pragma unroll
        for (int i = 0; i < COOP_UNROLL; ++i) xs[i] = load<N>(x, first + (turn + i) * step);
#pragma unroll
        for (int i = 0; i < COOP_UNROLL; ++i) {
            sum += square_sum(xs[i]);
            if (turn + i < kept) cache[(turn + i) * COOP_THREADS + threadIdx.x] = xs[i];
        }
    }
    for (; turn < turns; ++turn) {
        const Pack<N> one = load<N>(x, first + turn * step);
        sum += square_sum(one);
        if (turn < kept) cache[turn * COOP_THREADS + threadIdx.x] = one;
    }
    sum = msbench::block_reduce(sum, msbench::Sum(), scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    cooperative_groups::this_grid().sync();
    sum = 0.0f;
    for (int i = threadIdx.x; i < int(gridDim.x); i += COOP_THREADS) sum += partials[i];
    const float scale = rsqrtf(fmaf(msbench::block_reduce(sum, msbench::Sum(), scratch), inverse_n, epsilon));

    if (tail < n) store_once(y, tail, normalised(load<1>(x, tail), load<1>(w, tail), load<1>(b, tail), scale));
    turn = turns - 1;
    for (; turn - (COOP_MAP_UNROLL - 1) >= 0; turn -= COOP_MAP_UNROLL) {
        Pack<N> xs[COOP_MAP_UNROLL], ws[COOP_MAP_UNROLL], bs[COOP_MAP_UNROLL];
#pragma unroll
        for (int i = 0; i < COOP_MAP_UNROLL; ++i) {
            const int64_t pack = first + (turn - i) * step;
            xs[i] = turn - i < kept ? cache[(turn - i) * COOP_THREADS + threadIdx.x] : load<N>(x, pack);
            ws[i] = load_once<N>(w, pack);
            bs[i] = load_once<N>(b, pack);
        }
#pragma unroll
        for (int i = 0; i < COOP_MAP_UNROLL; ++i)
            store_once(y, first + (turn - i) * step, normalised(xs[i], ws[i], bs[i], scale));
    }
    for (; turn >= 0; --turn) {
        const int64_t pack = first + turn * step;
        const Pack<N> one = turn < kept ? cache[turn * COOP_THREADS + threadIdx.x] : load<N>(x, pack);
        store_once(y, pack, normalised(one, load_once<N>(w, pack), load_once<N>(b, pack), scale));
    }
}

template <int N>
cudaError_t launch(const scalar_t* x, const scalar_t* w, const scalar_t* b, scalar_t* y, float epsilon, int64_t n,
                   float* partials, cudaStream_t stream) {
    const float inverse_n = float(1.0 / double(n));
    const int64_t packs = n / N;
    if (packs <= MAX_THREADS) {
        const int threads = packs > 32 ? int((packs + 31) / 32) * 32 : 32;
        one_block<N, 1><<<1, threads, 0, stream>>>(x, w, b, y, epsilon, inverse_n, int(n));
    } else if (packs <= MAX_THREADS * MAX_HELD) {
        one_block<N, MAX_HELD><<<1, MAX_THREADS, 0, stream>>>(x, w, b, y, epsilon, inverse_n, int(n));
    } else {
        int device = 0, multiprocessors = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
        const int64_t wanted = (packs + COOP_THREADS - 1) / COOP_THREADS;
        const int limit = multiprocessors < MULTIPROCESSORS ? multiprocessors : MULTIPROCESSORS;
        const unsigned blocks = unsigned(wanted < limit ? wanted : limit);
        const int64_t turns = (packs + int64_t(blocks) * COOP_THREADS - 1) / (int64_t(blocks) * COOP_THREADS);
        constexpr int TURN_BYTES = COOP_THREADS * int(sizeof(Pack<N>));
        int kept = int(turns < CACHE_BYTES / TURN_BYTES ? turns : CACHE_BYTES / TURN_BYTES);
        const size_t shared_bytes = size_t(kept) * TURN_BYTES;
        const auto kernel = cooperative<N>;
        const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, CACHE_BYTES);
        if (error != cudaSuccess) return error;
        void* arguments[] = {&x, &w, &b, &y, &partials, &epsilon, const_cast<float*>(&inverse_n), &n, &kept};
        return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(COOP_THREADS),
                                           arguments, shared_bytes, stream);
    }
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t rms_norm_workspace(float, int64_t) {
    return MULTIPROCESSORS * sizeof(float);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t n, void* workspace, size_t, cudaStream_t stream) {
    float* partials = static_cast<float*>(workspace);
    const uintptr_t addresses = uintptr_t(x) | uintptr_t(weight) | uintptr_t(bias) | uintptr_t(y);
    return addresses % 16 == 0 ? launch<WIDTH>(x, weight, bias, y, epsilon, n, partials, stream)
                               : launch<1>(x, weight, bias, y, epsilon, n, partials, stream);
}
