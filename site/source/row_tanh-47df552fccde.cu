// Hyperbolic tangent by cub::DeviceTransform, which chooses vector widths and bytes in flight for the GPU it runs on.
#include <cub/device/device_transform.cuh>

struct Tanh {
    __device__ scalar_t operator()(scalar_t x) const {
        const float value = static_cast<float>(x);
        return static_cast<scalar_t>(tanhf(value));
    }
};

extern "C" cudaError_t row_tanh(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    return cub::DeviceTransform::Transform(x, y, static_cast<int>(N), Tanh{}, stream);
}
