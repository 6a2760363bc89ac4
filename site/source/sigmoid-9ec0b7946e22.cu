// y = 1/(1 + e^-x).
//
// Bound: two arrays' bytes, one launch; see msbench_packets.cuh. One exponential and one reciprocal an element: 16 µs of the special
// function units at 2^26 elements, under a bf16 map's 63 µs of traffic.

#include "msbench_math.cuh"
#include "msbench_packets.cuh"

namespace {

struct Sigmoid {
    __device__ float operator()(float x) const {
        return msbench::reciprocal_fast(1.0f + msbench::exp2_fast(-msbench::kLog2e * x));
    }
};

}  // namespace

extern "C" cudaError_t sigmoid(const scalar_t* x, scalar_t* y, int64_t N, void*, size_t, cudaStream_t stream) {
    return msbench::map(stream, N, Sigmoid(), y, x);
}
