// loss = max(0, 1 - y·p), y = 1 or -1 by the target, which keeps NaN.
//
// Bound: three arrays' bytes, one launch; see msbench_packets.cuh. In bf16 a thread's eight targets are two of its 16-byte loads.

#include "msbench_packets.cuh"

namespace {

struct Hinge {
    __device__ float operator()(float prediction, int32_t target) const {
        const float margin = 1.0f - (target == 0 ? -prediction : prediction);
        return margin < 0.0f ? 0.0f : margin;
    }
};

}  // namespace

extern "C" cudaError_t hinge_loss(const scalar_t* predictions, const int32_t* targets, scalar_t* losses, int64_t N, void*,
                                  size_t, cudaStream_t stream) {
    return msbench::map(stream, N, Hinge(), losses, predictions, targets);
}
