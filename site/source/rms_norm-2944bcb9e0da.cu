// RMS normalisation. Up to 4096 packets are one block's work: one launch, x, w and b in registers, one barrier.
// Bound there: the launch and one trip to memory. A longer vector takes two kernels: a few blocks add up squares, then
// one thread per output adds up what they found.

namespace {

constexpr int kBlocks = 64;
constexpr int kThreads = 512;
constexpr int kOneBlockThreads = 1024, kOneBlockHeld = 4;

template <int kWidth>
struct alignas(kWidth * sizeof(scalar_t)) Pack {
    scalar_t lane[kWidth];
};

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

template <int kWidth, int kHeld>
__global__ void __launch_bounds__(kOneBlockThreads)
    one_block(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
              float inverse_n, int n) {
    const int packs = n / kWidth, tail = packs * kWidth + int(threadIdx.x);
    Pack<kWidth> px[kHeld] = {}, pw[kHeld], pb[kHeld];
    Pack<1> tx = {}, tw, tb;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int at = i * blockDim.x + threadIdx.x;
        if (at < packs) {
            px[i] = reinterpret_cast<const Pack<kWidth>*>(x)[at];
            pw[i] = reinterpret_cast<const Pack<kWidth>*>(weight)[at];
            pb[i] = reinterpret_cast<const Pack<kWidth>*>(bias)[at];
        }
    }
    if (tail < n) {
        tx.lane[0] = x[tail];
        tw.lane[0] = weight[tail];
        tb.lane[0] = bias[tail];
    }
    float sum = squares(tx);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum += squares(px[i]);
    const float scale = rsqrtf(fmaf(block_sum(sum), inverse_n, epsilon));
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int at = i * blockDim.x + threadIdx.x;
        if (at < packs) reinterpret_cast<Pack<kWidth>*>(y)[at] = normalised(px[i], pw[i], pb[i], scale);
    }
    if (tail < n) y[tail] = normalised(tx, tw, tb, scale).lane[0];
}

// Whether one block was enough, and has been launched.
template <int kWidth>
bool launch_one_block(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                      int64_t n, cudaStream_t stream) {
    const int64_t packs = n / kWidth;
    const float inverse_n = float(1.0 / double(n));
    if (packs > kOneBlockThreads * kOneBlockHeld) return false;
    if (packs <= kOneBlockThreads) {
        const int threads = packs > 32 ? int((packs + 31) / 32 * 32) : 32;
        one_block<kWidth, 1><<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, inverse_n, int(n));
    } else {
        one_block<kWidth, kOneBlockHeld>
            <<<1, kOneBlockThreads, 0, stream>>>(x, weight, bias, y, epsilon, inverse_n, int(n));
    }
    return true;
}

__global__ void sums_of_squares(const scalar_t* x, float* sums, int64_t N) {
    __shared__ float partial[kThreads];
    float own = 0;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < N; i += kBlocks * kThreads) {
        float value = static_cast<float>(x[i]);
        own += value * value;
    }
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

__global__ void normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                          const float* sums, float epsilon, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    float sum = 0;
    for (int block = 0; block < kBlocks; ++block) sum += sums[block];
    float root = sqrtf(sum / N + epsilon);
    float value = static_cast<float>(weight[i]) * static_cast<float>(x[i]) / root + static_cast<float>(bias[i]);
    y[i] = static_cast<scalar_t>(value);
}

}  // namespace

extern "C" size_t rms_norm_workspace(float, int64_t) {
    return kBlocks * sizeof(float);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    const uintptr_t addresses = uintptr_t(x) | uintptr_t(weight) | uintptr_t(bias) | uintptr_t(y);
    const bool launched = addresses % 16 == 0
                              ? launch_one_block<16 / sizeof(scalar_t)>(x, weight, bias, y, epsilon, N, stream)
                              : launch_one_block<1>(x, weight, bias, y, epsilon, N, stream);
    if (!launched) {
        float* sums = static_cast<float*>(workspace);
        const int threads = 256;
        sums_of_squares<<<kBlocks, kThreads, 0, stream>>>(x, sums, N);
        normalise<<<unsigned((N + threads - 1) / threads), threads, 0, stream>>>(x, weight, bias, y, sums, epsilon, N);
    }
    return cudaGetLastError();
}
