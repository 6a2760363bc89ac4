// RMS normalisation of one vector: a sum of squares, and a map that needs it (msbench_vector_norm.cuh has the plans).
//
// Idea: x is read once as far as the chip holds it. Warps, blocks and clusters exchange their sums of squares once; w and b are on
// their way meanwhile.
//
// Bound: to 32768 packets of 16 bytes the launch and one or two trips to memory. 2^25 elements: four arrays are 125 us in fp32, but x
// is needed twice, and the chip holds 35 MB of it, L2 some more: modelled 150 us, 78 in bf16; measured 153 and 78
// (H200, 2026-11-23).

#include "msbench_vector_norm.cuh"

extern "C" size_t rms_norm_workspace(float, int64_t) {
    return msbench::kNormWorkspace;
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                                int64_t N, void* workspace, size_t, cudaStream_t stream) {
    return msbench::vector_norm<false>(x, weight, bias, y, epsilon, N, workspace, stream);
}
