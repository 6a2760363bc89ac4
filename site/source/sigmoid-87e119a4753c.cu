// Logistic function by cub::DeviceTransform, which chooses vector widths and bytes in flight for the GPU it runs on.
#include "msbench_cub_transform.cuh"

struct Sigmoid {
    __device__ scalar_t operator()(scalar_t x) const {
        const float value = static_cast<float>(x);
        return static_cast<scalar_t>(__fdividef(1.0f, 1.0f + __expf(-value)));
    }
};

extern "C" cudaError_t sigmoid(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    return msbench::transform(x, y, N, Sigmoid{}, stream);
}
