// Rotary position embedding: a thread keeps to its columns, so that it computes their powers once, and walks down the rows.
//
// Columns are moved in packets of 16 bytes where addresses and D allow it, else pair by pair. A sine and a cosine for each pair
// cost about as much time as its traffic, and overlap with it.
#include <msbench.cuh>

using namespace msbench;

constexpr int kColumnThreads = 32;
constexpr int kRowThreads = 4;
constexpr int64_t kBlocks = 132 * 16;  // what fills an H100's or H200's multiprocessors

// A load and store of `Width` elements: of 16 bytes, or one pair.
template <int Width>
struct alignas(Width == 2 ? sizeof(scalar_t) : 16) Group {
    scalar_t lane[Width];
};

template <int Width>
__global__ void __launch_bounds__(kColumnThreads* kRowThreads)
    rope_kernel(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D) {
    const int64_t group = blockIdx.x * static_cast<int64_t>(kColumnThreads) + threadIdx.x;
    const int64_t groups = D / Width;
    if (group >= groups) return;
    float power[Width / 2];
    for (int i = 0; i < Width / 2; ++i) {
        const int64_t pair = group * (Width / 2) + i;
        power[i] = powf(base, -2.0f * pair / D);
    }
    const auto* from = reinterpret_cast<const Group<Width>*>(x);
    auto* to = reinterpret_cast<Group<Width>*>(y);
    for (int64_t row = blockIdx.y * kRowThreads + threadIdx.y; row < M; row += gridDim.y * kRowThreads) {
        const Group<Width> in = from[row * groups + group];
        Group<Width> out;
        for (int i = 0; i < Width / 2; ++i) {
            float sine, cosine;
            sincosf(row * power[i], &sine, &cosine);
            const float first = to_float(in.lane[2 * i]);
            const float second = to_float(in.lane[2 * i + 1]);
            out.lane[2 * i] = from_float<scalar_t>(first * cosine - second * sine);
            out.lane[2 * i + 1] = from_float<scalar_t>(first * sine + second * cosine);
        }
        to[row * groups + group] = out;
    }
}

template <int Width>
static void launch(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D, cudaStream_t stream) {
    const int64_t across = ceil_div(D / Width, kColumnThreads);
    const int64_t down = min(ceil_div(M, kRowThreads), ceil_div(kBlocks, across));
    const dim3 blocks(static_cast<unsigned>(across), static_cast<unsigned>(down));
    rope_kernel<Width><<<blocks, dim3(kColumnThreads, kRowThreads), 0, stream>>>(x, y, base, M, D);
}

extern "C" cudaError_t rope(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    constexpr int kWide = Packet<scalar_t>::kSize;
    if (packets_allowed(x, y) && D % kWide == 0) {
        launch<kWide>(x, y, base, M, D, stream);
    } else {
        launch<2>(x, y, base, M, D, stream);
    }
    return cudaGetLastError();
}
