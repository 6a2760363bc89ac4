// y = scale·x where x >= 0, else scale·alpha·(e^x - 1).
//
// Bound: two arrays' bytes, one launch; see msbench_packets.cuh. Some 17 instructions an element, of 30 that a bf16 map has time for
// at full bandwidth.

#include "msbench_math.cuh"
#include "msbench_packets.cuh"

namespace {

struct Selu {
    float scale, scale_alpha;
    __device__ float operator()(float x) const {
        const float negative = scale_alpha * msbench::expm1_negative(x);
        return x >= 0.0f ? scale * x : negative;
    }
};

}  // namespace

extern "C" cudaError_t selu(const scalar_t* x, scalar_t* y, float alpha, float scale, int64_t N, void*, size_t,
                            cudaStream_t stream) {
    return msbench::map(stream, N, Selu{scale, scale * alpha}, y, x);
}
