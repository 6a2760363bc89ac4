// Softmax attention by two cuBLASLt products around a softmax kernel: scores in fp32, weights in the element type, as flash
// attention has them. Each product runs the algorithm that was the fastest of all that the heuristics proposed on the first call
// with a shape.
// msbench: link cublasLt
#include <msbench.cuh>

#include "msbench_cublaslt.cuh"

constexpr int kThreads = 256;

// One block per row; `weights` may be `scores`.
__global__ void __launch_bounds__(kThreads) softmax_rows(const float* scores, scalar_t* weights, int64_t kv) {
    __shared__ float scratch[32];
    scores += blockIdx.x * kv;
    weights += blockIdx.x * kv;
    float maximum = -INFINITY;
    for (int64_t j = threadIdx.x; j < kv; j += kThreads) maximum = fmaxf(maximum, scores[j]);
    maximum = msbench::block_reduce(maximum, msbench::Max(), scratch);
    float sum = 0;
    for (int64_t j = threadIdx.x; j < kv; j += kThreads) sum += expf(scores[j] - maximum);
    const float scale = 1 / msbench::block_reduce(sum, msbench::Sum(), scratch);
    for (int64_t j = threadIdx.x; j < kv; j += kThreads) {
        weights[j] = msbench::from_float<scalar_t>(expf(scores[j] - maximum) * scale);
    }
}

// The same for rows that a block's registers hold: each score is read once. kv ≤ kThreads·kEach.
template <int kEach>
__global__ void __launch_bounds__(kThreads) softmax_held_rows(const float* scores, scalar_t* weights, int kv) {
    __shared__ float scratch[32];
    scores += blockIdx.x * static_cast<int64_t>(kv);
    weights += blockIdx.x * static_cast<int64_t>(kv);
    float held[kEach];
    float maximum = -INFINITY;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const int j = n * kThreads + static_cast<int>(threadIdx.x);
        held[n] = j < kv ? scores[j] : -INFINITY;
        maximum = fmaxf(maximum, held[n]);
    }
    maximum = msbench::block_reduce(maximum, msbench::Max(), scratch);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        held[n] = expf(held[n] - maximum);
        sum += n * kThreads + static_cast<int>(threadIdx.x) < kv ? held[n] : 0.0f;
    }
    const float scale = 1 / msbench::block_reduce(sum, msbench::Sum(), scratch);
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const int j = n * kThreads + static_cast<int>(threadIdx.x);
        if (j < kv) weights[j] = msbench::from_float<scalar_t>(held[n] * scale);
    }
}

static void softmax(const float* scores, scalar_t* weights, int64_t q, int64_t kv, cudaStream_t stream) {
    const int width = static_cast<int>(kv);
    if (kv <= 2 * kThreads) return softmax_held_rows<2><<<q, kThreads, 0, stream>>>(scores, weights, width);
    if (kv <= 8 * kThreads) return softmax_held_rows<8><<<q, kThreads, 0, stream>>>(scores, weights, width);
    if (kv <= 32 * kThreads) return softmax_held_rows<32><<<q, kThreads, 0, stream>>>(scores, weights, width);
    softmax_rows<<<q, kThreads, 0, stream>>>(scores, weights, kv);
}

extern "C" size_t softmax_attention_workspace(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    const size_t weights = sizeof(scalar_t) == sizeof(float) ? 0 : q * kv * sizeof(scalar_t);
    return msbench::cublaslt::kWorkspaceBytes + msbench::Staging::room(q * kv * sizeof(float)) + weights;
}

extern "C" cudaError_t softmax_attention(const scalar_t* Q, const scalar_t* K, const scalar_t* V, scalar_t* Y,
                                         int64_t q, int64_t kv, int64_t d, int64_t dv, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    char* free = static_cast<char*>(workspace) + msbench::cublaslt::kWorkspaceBytes;
    float* scores = reinterpret_cast<float*>(free);
    if (sizeof(scalar_t) != sizeof(float)) free += msbench::Staging::room(q * kv * sizeof(float));
    scalar_t* weights = reinterpret_cast<scalar_t*>(free);
    msbench::cublaslt::Product product{q, kv, d, false, true};
    product.output = CUDA_R_32F;
    const float scale = 1 / sqrtf(static_cast<float>(d));
    MSBENCH_CUDA(msbench::cublaslt::multiply(product, scale, Q, K, scores, workspace, stream));
    softmax(scores, weights, q, kv, stream);
    MSBENCH_CUDA(cudaGetLastError());
    return msbench::cublaslt::multiply({q, dv, kv}, 1, weights, V, Y, workspace, stream);
}
