// RMS normalisation of one vector: y = w * x / sqrt(mean(x^2) + epsilon) + b.
//
// Idea: a vector that one block can hold in registers is read once, reduced with one barrier and written, in one
// launch; what bounds it is the launch and one trip to memory, so x, w and b are all in flight before the first use. A
// longer vector takes two launches: up to 528 blocks leave a partial sum of squares each, then every block adds up all
// partial sums (2 KB, in L2) while its own x, w and b are on their way, and normalises. The second pass walks
// backwards, so that it starts with the end of x, which the first pass left in L2. No atomics: the result is the same
// on every run.
//
// Bound: 8 n bytes, plus the part of x that L2 doesn't keep between the passes; 5 n flops; 1 or 2 launches.

#include "msbench.cuh"

namespace {

constexpr int WIDTH = 16 / sizeof(scalar_t);  // elements of a 16-byte access
constexpr int MAX_THREADS = 1024,
              MAX_HELD = 2;  // the single block, and the 16-byte packs that each of its threads holds
constexpr int SUM_THREADS = 512, SUM_UNROLL = 4;  // first pass
constexpr int MAX_PARTIALS = 528;                 // four blocks for each of 132 multiprocessors
constexpr int MAP_THREADS = 256, MAP_HELD = 2;    // second pass

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
        const float value = __bfloat162float(x.v[k]);
        sum = fmaf(value, value, sum);
    }
    return sum;
}

template <int N>
__device__ Pack<N> normalised(const Pack<N>& x, const Pack<N>& w, const Pack<N>& b, float scale) {
    float out[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
        out[k] = fmaf(__bfloat162float(w.v[k]), __bfloat162float(x.v[k]) * scale, __bfloat162float(b.v[k]));
    }
    Pack<N> y;
    if constexpr (N == 1) {
        y.v[0] = __float2bfloat16_rn(out[0]);
    } else {
#pragma unroll
        for (int k = 0; k < N; k += 2) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(out[k], out[k + 1]);  // one instruction rounds two
            y.v[k] = pair.x;
            y.v[k + 1] = pair.y;
        }
    }
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

template <int N>
__global__ void __launch_bounds__(SUM_THREADS) sum_squares(const scalar_t* x, float* partials, int64_t n) {
    const int64_t packs = n / N;
    const int64_t thread = int64_t(blockIdx.x) * SUM_THREADS + threadIdx.x;
    const int64_t step = int64_t(gridDim.x) * SUM_THREADS;
    float sums[SUM_UNROLL] = {};
    for (int64_t first = thread; first < packs; first += SUM_UNROLL * step) {
        Pack<N> xs[SUM_UNROLL] = {};
#pragma unroll
        for (int i = 0; i < SUM_UNROLL; ++i) {
            if (first + i * step < packs) xs[i] = load<N>(x, first + i * step);
        }
#pragma unroll
        for (int i = 0; i < SUM_UNROLL; ++i) sums[i] += square_sum(xs[i]);
    }
    if (packs * N + thread < n) sums[0] += square_sum(load<1>(x, packs * N + thread));
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SUM_UNROLL; ++i) sum += sums[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <int N>
__global__ void __launch_bounds__(MAP_THREADS)
    normalise(const scalar_t* x, const scalar_t* w, const scalar_t* b, scalar_t* y, float epsilon, float inverse_n,
              int64_t n, const float* partials, int partial_count) {
    const int64_t packs = n / N;
    const int64_t first = int64_t(gridDim.x - 1 - blockIdx.x) * (MAP_THREADS * MAP_HELD) + threadIdx.x;
    Pack<N> xs[MAP_HELD], ws[MAP_HELD], bs[MAP_HELD];
#pragma unroll
    for (int i = 0; i < MAP_HELD; ++i) {
        const int64_t pack = first + i * MAP_THREADS;
        if (pack < packs) {
            xs[i] = load<N>(x, pack);
            ws[i] = load_once<N>(w, pack);
            bs[i] = load_once<N>(b, pack);
        }
    }
    float sum = 0.0f;
    for (int i = threadIdx.x; i < partial_count; i += MAP_THREADS) sum += partials[i];
    const float scale = rsqrtf(fmaf(block_sum(sum), inverse_n, epsilon));
#pragma unroll
    for (int i = 0; i < MAP_HELD; ++i) {
        const int64_t pack = first + i * MAP_THREADS;
        if (pack < packs) store_once(y, pack, normalised(xs[i], ws[i], bs[i], scale));
    }
    const int64_t tail = packs * N + threadIdx.x;
    if (blockIdx.x == 0 && tail < n) {
        store_once(y, tail, normalised(load<1>(x, tail), load<1>(w, tail), load<1>(b, tail), scale));
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
        const int64_t sum_tiles = (packs + SUM_THREADS * SUM_UNROLL - 1) / (SUM_THREADS * SUM_UNROLL);
        const int64_t map_tiles = (packs + MAP_THREADS * MAP_HELD - 1) / (MAP_THREADS * MAP_HELD);
        const int partial_count = int(sum_tiles < MAX_PARTIALS ? sum_tiles : MAX_PARTIALS);
        sum_squares<N><<<partial_count, SUM_THREADS, 0, stream>>>(x, partials, n);
        normalise<N><<<unsigned(map_tiles), MAP_THREADS, 0, stream>>>(x, w, b, y, epsilon, inverse_n, n, partials,
                                                                      partial_count);
    }
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t rms_norm_workspace(float, int64_t) {
    return MAX_PARTIALS * sizeof(float);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t n, void* workspace, size_t, cudaStream_t stream) {
    float* partials = static_cast<float*>(workspace);
    const uintptr_t addresses = uintptr_t(x) | uintptr_t(weight) | uintptr_t(bias) | uintptr_t(y);
    return addresses % 16 == 0 ? launch<WIDTH>(x, weight, bias, y, epsilon, n, partials, stream)
                               : launch<1>(x, weight, bias, y, epsilon, n, partials, stream);
}
