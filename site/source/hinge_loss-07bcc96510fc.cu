// Hinge loss. Choosing 1 - p or 1 + p by the target is the product with ±1.
// One launch. Small sizes: one 16-byte packet for each thread, so that all of it is one wave. Large sizes: two times two 16-byte packets for each
// thread, all loads before the first use, inputs past L1, streaming stores. Odd addresses are peeled where they agree modulo 16.
// Expected: the launch bound for small N, the copy rate (about 260 us) for the large one.

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int64_t kOneWave = 132 * 2048;  // packets that all threads of the device hold at one each
constexpr int kBigThreads = 256;
constexpr int kBigPackets = 2;  // for each thread

// A NaN is not below 0 and stays.
__device__ __forceinline__ float value(float prediction, int32_t target) {
    const float margin = target == 0 ? 1.0f + prediction : 1.0f - prediction;
    return margin < 0 ? 0.0f : margin;
}

__device__ __forceinline__ uint32_t bits_value(uint32_t prediction, uint32_t target) {
    return __float_as_uint(value(__uint_as_float(prediction), static_cast<int32_t>(target)));
}

__device__ __forceinline__ uint4 packet_value(uint4 p, uint4 t) {
    return make_uint4(bits_value(p.x, t.x), bits_value(p.y, t.y), bits_value(p.z, t.z), bits_value(p.w, t.w));
}

__device__ __forceinline__ uint4 load_stream(const void* array, uint32_t index) {
    uint4 r;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "l"(static_cast<const uint4*>(array) + index));
    return r;
}

// Blocks of whole packets, kU for each thread, and one block more for the elements before and after them, if there are any.
// Without a packet that every address allows, all blocks take elements.
template <int kU, bool kStream>
__global__ void __launch_bounds__(kBigThreads) packets_kernel(const scalar_t* __restrict__ predictions, const int32_t* __restrict__ targets, scalar_t* __restrict__ losses, uint32_t head, uint32_t packets, uint32_t packet_blocks,
                                                              int64_t N) {
    if (blockIdx.x < packet_blocks) {
        const uint32_t first = blockIdx.x * (blockDim.x * kU) + threadIdx.x;
        uint4 p[kU];
        uint4 t[kU];
        if (kU == 1 || first - threadIdx.x + blockDim.x * kU <= packets) {
            if (kU == 1 && first >= packets) return;
#pragma unroll
            for (int u = 0; u < kU; ++u) {
                p[u] = load_stream(predictions + head, first + u * blockDim.x);
                t[u] = load_stream(targets + head, first + u * blockDim.x);
            }
#pragma unroll
            for (int u = 0; u < kU; ++u) {
                const uint4 result = packet_value(p[u], t[u]);
                uint4* to = reinterpret_cast<uint4*>(losses + head) + (first + u * blockDim.x);
                if (kStream) {
                    __stcs(to, result);
                } else {
                    *to = result;
                }
            }
        } else {
#pragma unroll
            for (int u = 0; u < kU; ++u) {
                if (first + u * blockDim.x < packets) {
                    p[u] = load_stream(predictions + head, first + u * blockDim.x);
                    t[u] = load_stream(targets + head, first + u * blockDim.x);
                    const uint4 result = packet_value(p[u], t[u]);
                    reinterpret_cast<uint4*>(losses + head)[first + u * blockDim.x] = result;
                }
            }
        }
        return;
    }
    const int64_t inner = static_cast<int64_t>(packets) * kPacket;
    const int64_t rest = N - inner;
    const int64_t threads = static_cast<int64_t>(gridDim.x - packet_blocks) * blockDim.x;
    for (int64_t r = static_cast<int64_t>(blockIdx.x - packet_blocks) * blockDim.x + threadIdx.x; r < rest; r += threads) {
        const int64_t i = r < head ? r : r + inner;
        losses[i] = value(predictions[i], targets[i]);
    }
}

}  // namespace

extern "C" size_t hinge_loss_workspace(int64_t N) {
    return 0;
}

extern "C" cudaError_t hinge_loss(const scalar_t* predictions, const int32_t* targets, scalar_t* losses, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    int64_t head = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(predictions) % 16) % 16 / sizeof(scalar_t));
    int64_t packets = 0;
    if (head < N && reinterpret_cast<uintptr_t>(targets + head) % 16 == 0 &&
        reinterpret_cast<uintptr_t>(losses + head) % 16 == 0) {
        packets = (N - head) / kPacket;
    }
    if (packets == 0) head = 0;
    const int64_t rest = N - packets * kPacket;

    const bool big = packets > kOneWave;
    const int threads = packets > 132 * 128 ? kBigThreads : 128;
    const int64_t each = static_cast<int64_t>(threads) * (big ? kBigPackets : 1);
    const int64_t packet_blocks = (packets + each - 1) / each;
    int64_t rest_blocks = (rest + threads - 1) / threads;
    if (rest_blocks > 132 * 64) rest_blocks = 132 * 64;
    const unsigned blocks = static_cast<unsigned>(packet_blocks + rest_blocks);
    if (big) {
        packets_kernel<kBigPackets, true><<<blocks, threads, 0, stream>>>(predictions, targets, losses, static_cast<uint32_t>(head), static_cast<uint32_t>(packets),
                                                                          static_cast<uint32_t>(packet_blocks), N);
    } else {
        packets_kernel<1, false><<<blocks, threads, 0, stream>>>(predictions, targets, losses, static_cast<uint32_t>(head), static_cast<uint32_t>(packets),
                                                                 static_cast<uint32_t>(packet_blocks), N);
    }
    return cudaGetLastError();
}
