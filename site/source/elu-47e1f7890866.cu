// y = x where x >= 0, else alpha·(e^x - 1).
//
// Bound: two arrays' bytes, one launch; see msbench_packets.cuh. Some 16 instructions an element, half of what a bf16 map has time
// for at full bandwidth: one exponential, and a polynomial where it would cancel.

#include "msbench_math.cuh"
#include "msbench_packets.cuh"

namespace {

struct Elu {
    float alpha;
    __device__ float operator()(float x) const {
        const float negative = alpha * msbench::expm1_negative(x);
        return x >= 0.0f ? x : negative;
    }
};

}  // namespace

extern "C" cudaError_t elu(const scalar_t* x, scalar_t* y, float alpha, int64_t N, void*, size_t, cudaStream_t stream) {
    return msbench::map(stream, N, Elu{alpha}, y, x);
}
