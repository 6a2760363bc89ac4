// y = x where x >= 0, else alpha·x.
//
// Bound: two arrays' bytes, one launch; see msbench_packets.cuh.

#include "msbench_packets.cuh"

namespace {

struct LeakyRelu {
    float alpha;
    __device__ float operator()(float x) const { return x >= 0.0f ? x : alpha * x; }
};

}  // namespace

extern "C" cudaError_t leaky_relu(const scalar_t* x, scalar_t* y, float alpha, int64_t N, void*, size_t,
                                  cudaStream_t stream) {
    return msbench::map(stream, N, LeakyRelu{alpha}, y, x);
}
