// RMS normalisation: a vector of up to 1024 packets stays in the registers of one block, in one launch. A longer one takes two kernels:
// up to 528 blocks add up squares, then each block adds up what they found and normalises one packet a thread.

#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int kMaxPartials = 528;
constexpr int kUnroll = 4;
constexpr int kShortThreads = 1024;

template <int kWidth>
struct alignas(kWidth * sizeof(scalar_t)) Pack {
    scalar_t lane[kWidth];
};

__device__ float block_total(float own) {
    __shared__ float partial[kThreads];
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    return partial[0];
}

template <int kWidth>
__global__ void sum_of_squares(const scalar_t* x, float* partials, int64_t N) {
    const int64_t packs = N / kWidth, thread = int64_t(blockIdx.x) * kThreads + threadIdx.x,
                  step = int64_t(gridDim.x) * kThreads;
    float own = 0;
    for (int64_t first = thread; first < packs; first += kUnroll * step) {
        Pack<kWidth> pack[kUnroll] = {};
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            if (first + i * step < packs) pack[i] = reinterpret_cast<const Pack<kWidth>*>(x)[first + i * step];
        }
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
                const float value = msbench::to_float(pack[i].lane[k]);
                own += value * value;
            }
        }
    }
    if (packs * kWidth + thread < N) {
        const float value = msbench::to_float(x[packs * kWidth + thread]);
        own += value * value;
    }
    float sum = block_total(own);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__device__ scalar_t normalised(scalar_t x, scalar_t weight, scalar_t bias, float root) {
    return msbench::from_float<scalar_t>(msbench::to_float(weight) * msbench::to_float(x) / root +
                                         msbench::to_float(bias));
}

template <int kWidth>
__global__ void normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                          const float* partials, int count, float epsilon, int64_t N) {
    float own = 0;
    for (int i = threadIdx.x; i < count; i += kThreads) own += partials[i];
    const float root = sqrtf(block_total(own) / N + epsilon);
    const int64_t packs = N / kWidth, i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    using P = Pack<kWidth>;
    if (i < packs) {
        const P px = reinterpret_cast<const P*>(x)[i], pw = reinterpret_cast<const P*>(weight)[i],
                pb = reinterpret_cast<const P*>(bias)[i];
        P out;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) out.lane[k] = normalised(px.lane[k], pw.lane[k], pb.lane[k], root);
        if constexpr (kWidth == 1) {
            y[i] = out.lane[0];
        } else {
            __stcg(reinterpret_cast<uint4*>(y) + i, reinterpret_cast<const uint4&>(out));
        }
    }
    const int64_t tail = packs * kWidth + threadIdx.x;
    if (blockIdx.x == 0 && tail < N) y[tail] = normalised(x[tail], weight[tail], bias[tail], root);
}

// One packet a thread, and the fewer than kWidth elements after the last packet.
template <int kWidth>
__global__ void __launch_bounds__(kShortThreads)
    normalise_short(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                    int N) {
    __shared__ float scratch[32];
    using P = Pack<kWidth>;
    const int packs = N / kWidth, tail = packs * kWidth + threadIdx.x;
    P px = {}, pw, pb;
    if (threadIdx.x < packs) {
        px = reinterpret_cast<const P*>(x)[threadIdx.x];
        pw = reinterpret_cast<const P*>(weight)[threadIdx.x];
        pb = reinterpret_cast<const P*>(bias)[threadIdx.x];
    }
    float own = tail < N ? msbench::to_float(x[tail]) * msbench::to_float(x[tail]) : 0.0f;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) own += msbench::to_float(px.lane[k]) * msbench::to_float(px.lane[k]);
    const float root = sqrtf(msbench::block_reduce(own, msbench::Sum(), scratch) / N + epsilon);
    if (threadIdx.x < packs) {
        P out;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) out.lane[k] = normalised(px.lane[k], pw.lane[k], pb.lane[k], root);
        reinterpret_cast<P*>(y)[threadIdx.x] = out;
    }
    if (tail < N) y[tail] = normalised(x[tail], weight[tail], bias[tail], root);
}

template <int kWidth>
void launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon, int64_t N,
            float* partials, cudaStream_t stream) {
    if (N / kWidth <= kShortThreads) {
        const int threads = N / kWidth > 32 ? int(msbench::ceil_div(N / kWidth, 32)) * 32 : 32;
        normalise_short<kWidth><<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, int(N));
        return;
    }
    const int64_t blocks = N / kWidth / kThreads + 1;
    const int count = blocks < kMaxPartials ? int(blocks) : kMaxPartials;
    sum_of_squares<kWidth><<<count, kThreads, 0, stream>>>(x, partials, N);
    normalise<kWidth><<<unsigned(blocks), kThreads, 0, stream>>>(x, weight, bias, y, partials, count, epsilon, N);
}

}  // namespace

extern "C" size_t rms_norm_workspace(float, int64_t) {
    return kMaxPartials * sizeof(float);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    float* partials = static_cast<float*>(workspace);
    if (msbench::packets_allowed(x, weight, bias, y)) {
        launch<16 / sizeof(scalar_t)>(x, weight, bias, y, epsilon, N, partials, stream);
    } else {
        launch<1>(x, weight, bias, y, epsilon, N, partials, stream);
    }
    return cudaGetLastError();
}
