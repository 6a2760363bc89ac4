// RMS normalisation in two device-wide CUB calls: the sum of squares, then the map. It has no limit on the size.
#include <cub/device/device_reduce.cuh>

#include "msbench_cub_transform.cuh"

struct Square {
    __device__ float operator()(scalar_t x) const { return static_cast<float>(x) * static_cast<float>(x); }
};

struct Normalise {
    const float* sum;
    float epsilon;
    int N;

    __device__ scalar_t operator()(scalar_t x, scalar_t weight, scalar_t bias) const {
        float scale = rsqrtf(*sum / N + epsilon);
        return static_cast<scalar_t>(static_cast<float>(weight) * (static_cast<float>(x) * scale) + static_cast<float>(bias));
    }
};

// The sum lies in the first 256 bytes of the workspace, CUB's own temporary storage behind it.
constexpr size_t kSumBytes = 256;

static cudaError_t sum_of_squares(void* storage, size_t& bytes, const scalar_t* x, float* sum, int64_t N,
                                  cudaStream_t stream) {
    return cub::DeviceReduce::TransformReduce(storage, bytes, x, sum, static_cast<int>(N), cuda::std::plus<float>{},
                                              Square{}, 0.0f, stream);
}

extern "C" size_t rms_norm_workspace(float epsilon, int64_t N) {
    size_t bytes = 0;
    sum_of_squares(nullptr, bytes, nullptr, nullptr, N, nullptr);
    return kSumBytes + bytes;
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    float* sum = static_cast<float*>(workspace);
    size_t bytes = workspace_bytes - kSumBytes;
    cudaError_t error = sum_of_squares(static_cast<char*>(workspace) + kSumBytes, bytes, x, sum, N, stream);
    if (error != cudaSuccess) return error;
    return msbench::transform(cuda::std::make_tuple(x, weight, bias), y, N,
                              Normalise{sum, epsilon, static_cast<int>(N)}, stream);
}
