// Layer normalisation of one vector: mean, variance, and a map that needs both (msbench_vector_norm.cuh has the plans).
//
// Idea: x is read once as far as the chip holds it. A warp takes the mean of its elements, then squared distances from that mean, both
// in registers; warps, blocks and clusters exchange such parts once and join them, so that an offset of 1024 costs no digits.
//
// Bound: to 32768 packets of 16 bytes the launch and one or two trips to memory. 2^25 elements: four arrays are 125 us in fp32, but x
// is needed twice, and the chip holds 35 MB of it, L2 some more: modelled 150 us, 78 in bf16; measured 153 and 79
// (H200, 2026-11-23).

#include "msbench_vector_norm.cuh"

extern "C" size_t layer_norm_workspace(float, int64_t) {
    return msbench::kNormWorkspace;
}

extern "C" cudaError_t layer_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                                  int64_t N, void* workspace, size_t, cudaStream_t stream) {
    return msbench::vector_norm<true>(x, weight, bias, y, epsilon, N, workspace, stream);
}
