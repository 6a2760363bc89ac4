// Matrix times a scalar by cub::DeviceTransform, which chooses vector widths and bytes in flight for the GPU at hand.
#include "msbench_cub_transform.cuh"

struct Scale {
    float a;

    __device__ scalar_t operator()(scalar_t x) const { return static_cast<scalar_t>(a * static_cast<float>(x)); }
};

extern "C" cudaError_t matrix_scalar_mul(const scalar_t* A, scalar_t* B, float a, int64_t M, int64_t N, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    return msbench::transform(A, B, M * N, Scale{a}, stream);
}
