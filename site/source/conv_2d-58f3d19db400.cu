// Cross-correlation by cuDNN, of one image with one channel.
// msbench: link cudnn
#include "msbench_cudnn_convolution.cuh"

extern "C" size_t conv_2d_workspace(int64_t H, int64_t W, int64_t KH, int64_t KW) {
    using msbench::Staging;
    return Staging::room(H * W * sizeof(scalar_t)) + Staging::room(KH * KW * sizeof(scalar_t)) +
           Staging::room((H - KH + 1) * (W - KW + 1) * sizeof(scalar_t));
}

extern "C" cudaError_t conv_2d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t H, int64_t W, int64_t KH,
                               int64_t KW, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    msbench::Staging staging(workspace, stream);
    const scalar_t* image = staging.input(x, H * W * sizeof(scalar_t));
    const scalar_t* filter = staging.input(w, KH * KW * sizeof(scalar_t));
    scalar_t* result = staging.output(y, (H - KH + 1) * (W - KW + 1) * sizeof(scalar_t));
    MSBENCH_CUDA(msbench::convolve({{{H, W}, {KH, KW}, {0, 0}}}, image, filter, result, stream));
    return staging.finish();
}
