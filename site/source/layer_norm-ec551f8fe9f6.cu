// Layer normalisation of one vector: mean, variance, and a map that needs both (msbench_vector_norm.cuh has the plans).
//
// Idea: x is read once as far as the chip holds it. A warp takes the mean of its elements, then squared distances from that mean, both
// in registers; warps, blocks and clusters exchange such parts once and join them, so that an offset of 1024 costs no digits.
//
// From 8193 to 33792 packets of 16 bytes one packet a thread of a cooperative grid: all multiprocessors load, each byte once, and one grid
// barrier joins the blocks' parts. Clusters of 16 blocks would read all of x four times and wait for whole processing clusters.
//
// Bound: to 33792 packets the launch and one or two trips to memory. 2^25 elements: four arrays are 125 us in fp32, but x is needed
// twice, and the chip holds 35 MB of it, L2 some more: 150 us, 78 in bf16.

#include "msbench_vector_norm.cuh"

namespace {

using msbench::Group;
using msbench::NormPart;

constexpr int kWidth = 16 / sizeof(scalar_t), kMostBlocks = 132;

template <int kThreads>
__global__ void __launch_bounds__(kThreads) norm_on_grid(msbench::NormArrays<scalar_t> a, NormPart* parts) {
    constexpr int kWarps = kThreads / 32, kEach = (kMostBlocks + 31) / 32;
    __shared__ NormPart of_warp[kWarps];
    const int lane = threadIdx.x % 32, at = blockIdx.x * kThreads + threadIdx.x;
    const int n = int(a.n), packets = n / kWidth, tail = packets * kWidth + at;
    const bool has = at < packets, has_tail = tail < n;
    Group<scalar_t, kWidth> x, w, b;
    Group<scalar_t, 1> x_tail, w_tail, b_tail;
    if (has) {
        x = msbench::load_group<kWidth>(a.x, at);
        w = msbench::load_group<kWidth>(a.weight, at), b = msbench::load_group<kWidth>(a.bias, at);
    }
    if (has_tail) {
        x_tail = msbench::load_group<1>(a.x, tail);
        w_tail = msbench::load_group<1>(a.weight, tail), b_tail = msbench::load_group<1>(a.bias, tail);
    }
    const auto sum_over = [&](auto term) {
        float sum = has_tail ? term(msbench::to_float(x_tail.lane[0])) : 0.0f;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum += has ? term(msbench::to_float(x.lane[k])) : 0.0f;
        return msbench::norm_sum(sum);
    };
    NormPart mine = {0, 0, 0};
    mine.count = kWidth * __popc(__ballot_sync(~0u, has)) + __popc(__ballot_sync(~0u, has_tail));
    mine.mean = sum_over([](float v) { return v; }) / fmaxf(mine.count, 1.0f);
    mine.squares = sum_over([&](float v) { return (v - mine.mean) * (v - mine.mean); });
    if (lane == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    const NormPart block = msbench::join_shared<true, kWarps>(of_warp);
    if (threadIdx.x == 0) parts[blockIdx.x] = block;
    cooperative_groups::this_grid().sync();

    NormPart own[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) own[i] = i * 32 + lane < gridDim.x ? parts[i * 32 + lane] : NormPart{0, 0, 0};
    const NormPart all = msbench::join<true>(own);
    const float scale = rsqrtf(fmaf(all.squares, a.inverse, a.epsilon));
    if (has) msbench::store_group(a.y, at, msbench::normalised<kWidth>(x, w, b, all, scale));
    if (has_tail) msbench::store_group(a.y, tail, msbench::normalised<1>(x_tail, w_tail, b_tail, all, scale));
}

template <int kThreads>
cudaError_t launch_on_grid(const msbench::NormArrays<scalar_t>& a, void* workspace, cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(msbench::ceil_div(a.n / kWidth, kThreads));
    return msbench::Launch(blocks, kThreads, stream).cooperative()(norm_on_grid<kThreads>, a, static_cast<NormPart*>(workspace));
}

}  // namespace

extern "C" size_t layer_norm_workspace(float, int64_t) {
    return msbench::kNormWorkspace;
}

extern "C" cudaError_t layer_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                                  int64_t N, void* workspace, size_t, cudaStream_t stream) {
    const int64_t packets = N / kWidth;
    if (packets <= 8192 || packets > kMostBlocks * 256 || !msbench::packets_allowed(x, weight, bias, y)) {
        return msbench::vector_norm<true>(x, weight, bias, y, epsilon, N, workspace, stream);
    }
    const msbench::NormArrays<scalar_t> a = {x, weight, bias, y, epsilon, float(1.0 / double(N)), N};
    return packets <= kMostBlocks * 128 ? launch_on_grid<128>(a, workspace, stream) : launch_on_grid<256>(a, workspace, stream);
}
