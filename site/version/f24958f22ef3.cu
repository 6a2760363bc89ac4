// RMS normalisation: a vector of up to 1024 packets stays in the registers of one block. A longer one takes one cooperative launch, whose blocks
// add up squares, meet at a grid-wide barrier, and normalise.

#include <cooperative_groups.h>

#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;
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
__device__ void sum_of_squares(const scalar_t* x, float* partials, int64_t N) {
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
__device__ void normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                          const float* partials, int count, float epsilon, int64_t N) {
    float own = 0;
    for (int i = threadIdx.x; i < count; i += kThreads) own += partials[i];
    const float root = sqrtf(block_total(own) / N + epsilon);
    const int64_t packs = N / kWidth, step = int64_t(gridDim.x) * kThreads;
    using P = Pack<kWidth>;
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += step) {
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

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    normalise_vectors(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float* partials,
                      float epsilon, int64_t N) {
    sum_of_squares<16 / sizeof(scalar_t)>(x, partials, N);
    cooperative_groups::this_grid().sync();
    normalise<16 / sizeof(scalar_t)>(x, weight, bias, y, partials, gridDim.x, epsilon, N);
}

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    normalise_scalars(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float* partials,
                      float epsilon, int64_t N) {
    sum_of_squares<1>(x, partials, N);
    cooperative_groups::this_grid().sync();
    normalise<1>(x, weight, bias, y, partials, gridDim.x, epsilon, N);
}

}  // namespace

extern "C" size_t rms_norm_workspace(float, int64_t N) {
    return (N / kThreads + 1) * sizeof(float);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    int device = 0, multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    const bool vectors = msbench::packets_allowed(x, weight, bias, y);
    constexpr int kVector = 16 / sizeof(scalar_t);
    const int64_t packs = N / (vectors ? kVector : 1);
    if (packs <= kShortThreads) {
        const int threads = packs > 32 ? int(msbench::ceil_div(packs, 32)) * 32 : 32;
        if (vectors) {
            normalise_short<kVector><<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, int(N));
        } else {
            normalise_short<1><<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, int(N));
        }
        return cudaGetLastError();
    }
    const int64_t wanted = packs / kThreads + 1;
    const int64_t resident = int64_t(multiprocessors) * kBlocksPerMultiprocessor;
    const unsigned blocks = unsigned(wanted < resident ? wanted : resident);
    float* partials = static_cast<float*>(workspace);
    void* arguments[] = {&x, &weight, &bias, &y, &partials, &epsilon, &N};
    return vectors ? cudaLaunchCooperativeKernel(normalise_vectors, dim3(blocks), dim3(kThreads), arguments, 0, stream)
                   : cudaLaunchCooperativeKernel(normalise_scalars, dim3(blocks), dim3(kThreads), arguments, 0, stream);
}
