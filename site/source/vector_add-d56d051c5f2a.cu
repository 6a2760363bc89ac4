// Vector addition by cub::DeviceTransform, which chooses vector widths and bytes in flight for the GPU it runs on.
#include <cub/device/device_transform.cuh>

struct Add {
    __device__ scalar_t operator()(scalar_t a, scalar_t b) const {
        return static_cast<scalar_t>(static_cast<float>(a) + static_cast<float>(b));
    }
};

extern "C" cudaError_t vector_add(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t N, void* workspace,
                                  size_t workspace_bytes, cudaStream_t stream) {
    return cub::DeviceTransform::Transform(cuda::std::make_tuple(A, B), C, static_cast<int>(N), Add{}, stream);
}
