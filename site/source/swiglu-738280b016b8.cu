// out = gate·value/(1 + e^(-beta·gate)).
//
// Bound: three arrays' bytes, one launch; see msbench_packets.cuh. One exponential and one reciprocal an element.

#include "msbench_math.cuh"
#include "msbench_packets.cuh"

namespace {

struct SwiGlu {
    float factor;
    __device__ float operator()(float gate, float value) const { return msbench::gated(gate, value, factor); }
};

}  // namespace

extern "C" cudaError_t swiglu(const scalar_t* gate, const scalar_t* value, scalar_t* out, float beta, int64_t N, void*, size_t,
                              cudaStream_t stream) {
    return msbench::map(stream, N, SwiGlu{-beta * msbench::kLog2e}, out, gate, value);
}
