// SwiGLU by cub::DeviceTransform, which chooses vector widths and bytes in flight for the GPU it runs on.
#include "msbench_cub_transform.cuh"

struct SwiGlu {
    float beta;

    __device__ scalar_t operator()(scalar_t gate, scalar_t value) const {
        const float x = static_cast<float>(gate);
        return static_cast<scalar_t>(__fdividef(x, 1.0f + __expf(-beta * x)) * static_cast<float>(value));
    }
};

extern "C" cudaError_t swiglu(const scalar_t* gate, const scalar_t* value, scalar_t* out, float beta, int64_t N,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return msbench::transform(cuda::std::make_tuple(gate, value), out, N, SwiGlu{beta}, stream);
}
