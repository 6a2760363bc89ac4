// B = a·A, a map over M·N elements.
//
// Bound: two arrays' bytes, one launch; see msbench_packets.cuh.

#include "msbench_packets.cuh"

namespace {

struct Scale {
    float a;
    __device__ float operator()(float x) const { return a * x; }
};

}  // namespace

extern "C" cudaError_t matrix_scalar_mul(const scalar_t* A, scalar_t* B, float a, int64_t M, int64_t N, void*, size_t,
                                         cudaStream_t stream) {
    return msbench::map(stream, M * N, Scale{a}, B, A);
}
