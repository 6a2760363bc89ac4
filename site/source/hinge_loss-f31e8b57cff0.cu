// Hinge loss by cub::DeviceTransform, which chooses vector widths and bytes in flight for the GPU it runs on.
#include <cub/device/device_transform.cuh>

struct HingeLoss {
    __device__ scalar_t operator()(scalar_t prediction, int32_t target) const {
        const float value = static_cast<float>(prediction);
        const float margin = 1.0f - (target == 0 ? -value : value);
        return static_cast<scalar_t>(margin < 0 ? 0 : margin);
    }
};

extern "C" cudaError_t hinge_loss(const scalar_t* predictions, const int32_t* targets, scalar_t* losses, int64_t N,
                                  void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return cub::DeviceTransform::Transform(cuda::std::make_tuple(predictions, targets), losses, static_cast<int>(N),
                                           HingeLoss{}, stream);
}
