// Merging of two attention states: 16 bytes of each array a thread where addresses and D allow it, else one element.
//
// Each thread computes the weights of its packet anew and finds its token and head by 32-bit divisions, which cost little beside
// the traffic.
#include <msbench.cuh>

using namespace msbench;

constexpr int kThreads = 256;

__device__ inline float finite(scalar_t l) {
    const float value = to_float(l);
    return isinf(value) ? -3.402823466e+38f : value;
}

// `Width` elements that lie next to each other.
template <int Width>
struct alignas(Width == 1 ? sizeof(scalar_t) : 16) Group {
    scalar_t lane[Width];
};

template <int Width>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb, scalar_t* V, scalar_t* lse,
                 uint32_t T, uint32_t H, uint32_t groups, uint32_t count) {
    const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
    if (index >= count) return;
    const uint32_t row = index / groups;  // of [T, H]
    const uint32_t token = row / H, head = row % H;
    const uint32_t at = head * T + token;
    const auto first = reinterpret_cast<const Group<Width>*>(Va)[index];
    const auto second = reinterpret_cast<const Group<Width>*>(Vb)[index];
    const float a = finite(la[at]), b = finite(lb[at]);
    const float most = fmaxf(a, b);
    const float weight_a = expf(a - most), weight_b = expf(b - most);
    const float sum = weight_a + weight_b, share_a = weight_a / sum, share_b = weight_b / sum;
    Group<Width> out;
    for (int i = 0; i < Width; ++i) {
        out.lane[i] = from_float<scalar_t>(share_a * to_float(first.lane[i]) + share_b * to_float(second.lane[i]));
    }
    reinterpret_cast<Group<Width>*>(V)[index] = out;
    if (index % groups == 0) lse[at] = from_float<scalar_t>(most + logf(sum));
}

template <int Width>
static void launch(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb, scalar_t* V,
                   scalar_t* lse, int64_t T, int64_t H, int64_t D, cudaStream_t stream) {
    const int64_t groups = D / Width, count = T * H * groups;  // at most 2^31
    merge_kernel<Width><<<ceil_div(count, kThreads), kThreads, 0, stream>>>(
        Va, Vb, la, lb, V, lse, static_cast<uint32_t>(T), static_cast<uint32_t>(H), static_cast<uint32_t>(groups),
        static_cast<uint32_t>(count));
}

extern "C" cudaError_t merge_attn_states(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb,
                                         scalar_t* V, scalar_t* lse, int64_t T, int64_t H, int64_t D, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    constexpr int kWide = Packet<scalar_t>::kSize;
    if (packets_allowed(Va, Vb, V) && D % kWide == 0) {
        launch<kWide>(Va, Vb, la, lb, V, lse, T, H, D, stream);
    } else {
        launch<1>(Va, Vb, la, lb, V, lse, T, H, D, stream);
    }
    return cudaGetLastError();
}
