// RMS normalisation. What fits the registers of one block (1024 packets of 16 bytes) or of one cluster of up to 16
// blocks (32768 packets) is read once, reduced with one barrier and written: one launch, one trip to memory. Bound there:
// the launch, DRAM latency, and what 16 multiprocessors can move.
//
// A longer vector takes two kernels. Up to 528 blocks leave a sum of squares each; then every block adds up all of them
// while its own x, w and b are on their way, and normalises. The second kernel walks backwards, so that it starts with
// the end of x, which the first one left in L2. Bound: 16 n bytes, plus the part of x that L2 didn't keep.

#include <cooperative_groups.h>

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int kOneBlockThreads = 1024;
constexpr int kClusterThreads = 512, kClusterWarps = kClusterThreads / 32, kClusterHeld = 4, kClusterBlocks = 16;
constexpr int kSumThreads = 512, kSumHeld = 4, kMaxPartials = 528;  // four blocks on each of 132 multiprocessors
constexpr int kMapThreads = 256, kMapHeld = 2;

template <int kWidth>
struct alignas(kWidth * sizeof(scalar_t)) Pack {
    scalar_t lane[kWidth];
};

template <int kWidth>
__device__ Pack<kWidth> load(const scalar_t* from, int64_t at) {
    return reinterpret_cast<const Pack<kWidth>*>(from)[at];
}

// What nobody reads again should leave L2 first.
template <int kWidth>
__device__ Pack<kWidth> load_once(const scalar_t* from, int64_t at) {
    if constexpr (kWidth == 1) {
        return {{__ldcs(from + at)}};
    } else {
        const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(from) + at);
        return reinterpret_cast<const Pack<kWidth>&>(raw);
    }
}

template <int kWidth>
__device__ void store(scalar_t* to, int64_t at, const Pack<kWidth>& values) {
    reinterpret_cast<Pack<kWidth>*>(to)[at] = values;
}

template <int kWidth>
__device__ void store_once(scalar_t* to, int64_t at, const Pack<kWidth>& values) {
    if constexpr (kWidth == 1) {
        __stcs(to + at, values.lane[0]);
    } else {
        __stcs(reinterpret_cast<uint4*>(to) + at, reinterpret_cast<const uint4&>(values));
    }
}

template <int kWidth>
__device__ float squares(const Pack<kWidth>& x) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum = fmaf(x.lane[k], x.lane[k], sum);
    return sum;
}

template <int kWidth>
__device__ Pack<kWidth> normalised(const Pack<kWidth>& x, const Pack<kWidth>& w, const Pack<kWidth>& b, float scale) {
    Pack<kWidth> y;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) y.lane[k] = fmaf(w.lane[k], x.lane[k] * scale, b.lane[k]);
    return y;
}

__device__ float warp_sum(float v) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) v += __shfl_xor_sync(0xffffffffu, v, distance);
    return v;
}

// The sum over a block of whole warps, in every thread; once a kernel.
__device__ float block_sum(float v) {
    __shared__ float of_warp[32];
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    v = warp_sum(v);
    if (warps == 1) return v;
    if (lane == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_sum(lane < warps ? of_warp[lane] : 0.0f);
}

template <int kWidth>
__global__ void __launch_bounds__(kOneBlockThreads)
    one_block(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
              float inverse_n, int n) {
    const int packs = n / kWidth, at = threadIdx.x, tail = packs * kWidth + at;
    Pack<kWidth> px = {}, pw, pb;
    Pack<1> tx = {}, tw, tb;
    if (at < packs) {
        px = load<kWidth>(x, at);
        pw = load<kWidth>(weight, at);
        pb = load<kWidth>(bias, at);
    }
    if (tail < n) {
        tx = load<1>(x, tail);
        tw = load<1>(weight, tail);
        tb = load<1>(bias, tail);
    }
    const float scale = rsqrtf(fmaf(block_sum(squares(px) + squares(tx)), inverse_n, epsilon));
    if (at < packs) store(y, at, normalised(px, pw, pb, scale));
    if (tail < n) store(y, tail, normalised(tx, tw, tb, scale));
}

// The grid is one cluster.
template <int kWidth, int kHeld>
__global__ void __launch_bounds__(kClusterThreads)
    one_cluster(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                float inverse_n, int n) {
    __shared__ float of_warp[kClusterBlocks * kClusterWarps];
    const auto cluster = cooperative_groups::this_cluster();
    cluster.barrier_arrive();

    const int packs = n / kWidth, step = gridDim.x * kClusterThreads;
    const int thread = blockIdx.x * kClusterThreads + threadIdx.x, tail = packs * kWidth + thread;
    Pack<kWidth> px[kHeld] = {}, pw[kHeld], pb[kHeld];
    Pack<1> tx = {}, tw, tb;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int at = thread + i * step;
        if (at < packs) {
            px[i] = load<kWidth>(x, at);
            pw[i] = load<kWidth>(weight, at);
            pb[i] = load<kWidth>(bias, at);
        }
    }
    if (tail < n) {
        tx = load<1>(x, tail);
        tw = load<1>(weight, tail);
        tb = load<1>(bias, tail);
    }
    float sum = squares(tx);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum += squares(px[i]);
    sum = warp_sum(sum);

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = gridDim.x;
    cluster.barrier_wait();  // all blocks run, so their shared memory may be written
    if (lane < blocks) *cluster.map_shared_rank(of_warp + blockIdx.x * kClusterWarps + warp, lane) = sum;
    cluster.sync();
    sum = 0;
    for (int i = lane; i < blocks * kClusterWarps; i += 32) sum += of_warp[i];
    const float scale = rsqrtf(fmaf(warp_sum(sum), inverse_n, epsilon));

#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int at = thread + i * step;
        if (at < packs) store(y, at, normalised(px[i], pw[i], pb[i], scale));
    }
    if (tail < n) store(y, tail, normalised(tx, tw, tb, scale));
}

template <int kWidth>
__global__ void __launch_bounds__(kSumThreads) sum_squares(const scalar_t* x, float* partials, int64_t n) {
    const int64_t packs = n / kWidth;
    const int64_t thread = int64_t(blockIdx.x) * kSumThreads + threadIdx.x;
    const int64_t step = int64_t(gridDim.x) * kSumThreads;
    float sums[kSumHeld] = {};
    for (int64_t first = thread; first < packs; first += kSumHeld * step) {
        Pack<kWidth> px[kSumHeld] = {};
#pragma unroll
        for (int i = 0; i < kSumHeld; ++i) {
            if (first + i * step < packs) px[i] = load<kWidth>(x, first + i * step);
        }
#pragma unroll
        for (int i = 0; i < kSumHeld; ++i) sums[i] += squares(px[i]);
    }
    const int64_t tail = packs * kWidth + thread;
    if (tail < n) sums[0] += squares(load<1>(x, tail));
    const float sum = block_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

template <int kWidth>
__global__ void __launch_bounds__(kMapThreads)
    normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
              float inverse_n, int64_t n, const float* partials, int count) {
    const int64_t packs = n / kWidth;
    const int64_t first = int64_t(gridDim.x - 1 - blockIdx.x) * (kMapThreads * kMapHeld) + threadIdx.x;
    Pack<kWidth> px[kMapHeld], pw[kMapHeld], pb[kMapHeld];
#pragma unroll
    for (int i = 0; i < kMapHeld; ++i) {
        const int64_t at = first + i * kMapThreads;
        if (at < packs) {
            px[i] = load<kWidth>(x, at);
            pw[i] = load_once<kWidth>(weight, at);
            pb[i] = load_once<kWidth>(bias, at);
        }
    }
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += kMapThreads) sum += partials[i];
    const float scale = rsqrtf(fmaf(block_sum(sum), inverse_n, epsilon));
#pragma unroll
    for (int i = 0; i < kMapHeld; ++i) {
        const int64_t at = first + i * kMapThreads;
        if (at < packs) store_once<kWidth>(y, at, normalised(px[i], pw[i], pb[i], scale));
    }
    const int64_t tail = packs * kWidth + threadIdx.x;
    if (blockIdx.x == 0 && tail < n)
        store_once<1>(y, tail, normalised(load<1>(x, tail), load<1>(weight, tail), load<1>(bias, tail), scale));
}

template <int kWidth, int kHeld>
cudaError_t launch_cluster(int blocks, const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                           float epsilon, float inverse_n, int n, cudaStream_t stream) {
    const auto kernel = one_cluster<kWidth, kHeld>;
    if (blocks > 8) {
        const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (allowed != cudaSuccess) return allowed;
    }
    cudaLaunchAttribute shape = {};
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim.x = unsigned(blocks);
    shape.val.clusterDim.y = shape.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(blocks));
    config.blockDim = dim3(kClusterThreads);
    config.stream = stream;
    config.attrs = &shape;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, x, weight, bias, y, epsilon, inverse_n, n);
}

template <int kWidth>
cudaError_t launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                   int64_t n, float* partials, cudaStream_t stream) {
    const int64_t packs = n / kWidth;
    const float inverse_n = float(1.0 / double(n));
    if (packs <= kOneBlockThreads) {
        const int threads = packs > 32 ? int((packs + 31) / 32 * 32) : 32;
        one_block<kWidth><<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, inverse_n, int(n));
    } else if (packs <= kClusterBlocks * kClusterThreads * kClusterHeld) {
        int blocks = 4;
        while (blocks < kClusterBlocks && blocks * kClusterThreads < packs) blocks *= 2;
        return blocks * kClusterThreads >= packs
                   ? launch_cluster<kWidth, 1>(blocks, x, weight, bias, y, epsilon, inverse_n, int(n), stream)
                   : launch_cluster<kWidth, kClusterHeld>(blocks, x, weight, bias, y, epsilon, inverse_n, int(n), stream);
    } else {
        const int64_t tiles = (packs + kSumThreads - 1) / kSumThreads;
        const int count = tiles < kMaxPartials ? int(tiles) : kMaxPartials;
        const unsigned blocks = unsigned((packs + kMapThreads * kMapHeld - 1) / (kMapThreads * kMapHeld));
        sum_squares<kWidth><<<count, kSumThreads, 0, stream>>>(x, partials, n);
        normalise<kWidth>
            <<<blocks, kMapThreads, 0, stream>>>(x, weight, bias, y, epsilon, inverse_n, n, partials, count);
    }
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t rms_norm_workspace(float, int64_t) {
    return kMaxPartials * sizeof(float);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    float* partials = static_cast<float*>(workspace);
    const uintptr_t addresses = uintptr_t(x) | uintptr_t(weight) | uintptr_t(bias) | uintptr_t(y);
    return addresses % 16 == 0 ? launch<kPacket>(x, weight, bias, y, epsilon, N, partials, stream)
                               : launch<1>(x, weight, bias, y, epsilon, N, partials, stream);
}
