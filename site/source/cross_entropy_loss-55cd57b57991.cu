// Cross entropy by cub::DeviceReduce::TransformReduce, in fp32 in both precisions.
#include "msbench_cub_sum.cuh"

struct Term {
    __device__ float operator()(int64_t, float x, float y) const { return -y * logf(fmaxf(x, 1e-8f)); }
};

extern "C" size_t cross_entropy_loss_workspace(int64_t C) {
    const scalar_t* none = nullptr;
    return msbench::sum_workspace(static_cast<float*>(nullptr), C, Term{}, cuda::std::identity{}, none, none);
}

extern "C" cudaError_t cross_entropy_loss(const scalar_t* X, const scalar_t* Y, float* out, int64_t C,
                                          void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return msbench::sum(workspace, workspace_bytes, out, C, Term{}, cuda::std::identity{}, stream, X, Y);
}
