// Layer normalisation in two device-wide CUB calls: mean and variance in one reduction, then the map. It has no limit on the size.
//
// Partial results are counts, means and sums of squared distances, joined after Chan, Golub and LeVeque (1983): x is read once
// for both statistics, and no digits cancel as they do in E[x²] - E[x]².
#include <cub/device/device_reduce.cuh>

#include "msbench_cub_transform.cuh"

struct Moments {
    float count, mean, squares;
};

struct OfOne {
    __device__ Moments operator()(scalar_t x) const { return {1, static_cast<float>(x), 0}; }
};

struct Join {
    __device__ Moments operator()(const Moments& a, const Moments& b) const {
        if (a.count == 0) return b;
        if (b.count == 0) return a;
        const float count = a.count + b.count, share = b.count / count, step = b.mean - a.mean;
        return {count, a.mean + step * share, a.squares + b.squares + step * step * a.count * share};
    }
};

struct Normalise {
    const Moments* moments;
    float epsilon;
    int N;

    __device__ scalar_t operator()(scalar_t x, scalar_t weight, scalar_t bias) const {
        const float scale = rsqrtf(moments->squares / N + epsilon);
        const float value = (static_cast<float>(x) - moments->mean) * scale;
        return static_cast<scalar_t>(static_cast<float>(weight) * value + static_cast<float>(bias));
    }
};

// The moments lie in the first 256 bytes of the workspace, CUB's own temporary storage behind them.
constexpr size_t kMomentsBytes = 256;

static cudaError_t moments_of(void* storage, size_t& bytes, const scalar_t* x, Moments* moments, int64_t N,
                              cudaStream_t stream) {
    return cub::DeviceReduce::TransformReduce(storage, bytes, x, moments, static_cast<int>(N), Join{}, OfOne{},
                                              Moments{0, 0, 0}, stream);
}

extern "C" size_t layer_norm_workspace(float epsilon, int64_t N) {
    size_t bytes = 0;
    moments_of(nullptr, bytes, nullptr, nullptr, N, nullptr);
    return kMomentsBytes + bytes;
}

extern "C" cudaError_t layer_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                  float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    Moments* moments = static_cast<Moments*>(workspace);
    size_t bytes = workspace_bytes - kMomentsBytes;
    cudaError_t error = moments_of(static_cast<char*>(workspace) + kMomentsBytes, bytes, x, moments, N, stream);
    if (error != cudaSuccess) return error;
    return msbench::transform(cuda::std::make_tuple(x, weight, bias), y, N,
                              Normalise{moments, epsilon, static_cast<int>(N)}, stream);
}
