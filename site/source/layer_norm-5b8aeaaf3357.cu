// Layer normalisation of one vector: mean, variance, and a map that needs both (msbench_vector_norm.cuh has the plans).
//
// Idea: x is read once as far as the chip holds it. A warp takes the mean of its elements, then squared distances from that mean, both
// in registers; warps, blocks and clusters exchange such parts once and join them, so that an offset of 1024 costs no digits.
//
// Bound: to 32768 packets of 16 bytes the launch and one or two trips to memory. 2^25 elements: four arrays are 125 us in fp32, but x
// is needed twice, and the chip holds 35 MB of it, L2 some more: 150 us, 78 in bf16. Long vectors go as in msbench_norm_on_chip.cuh, and
// L2 fetches the first weights and biases of the second pass while the grid joins its parts.

#include "msbench_vector_norm.cuh"

namespace {

using msbench::Group;
using msbench::NormPart;

constexpr int kWidth = 16 / sizeof(scalar_t);
constexpr int kAhead = 3;  // tiles of weights and biases, 4.3 MB each: what DRAM brings in 3 us

__device__ __forceinline__ void prefetch_tile(const scalar_t* from, int bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Tile j of a block is the packets (j·blocks + block)·kThreads + thread. The first tiles of x stay in shared memory, the last kHeld in
// registers, with their w and b; those between are read again, backwards, so that what L2 still has comes first.
__global__ void __launch_bounds__(msbench::LongNorm::kThreads, 1) norm_ahead(msbench::NormArrays<scalar_t> a, NormPart* parts) {
    constexpr int kThreads = msbench::LongNorm::kThreads, kBlocks = msbench::LongNorm::kBlocks;
    constexpr int kUnroll = msbench::LongNorm::kUnroll<scalar_t>, kHeld = kUnroll / 2;
    using Packet = Group<scalar_t, kWidth>;
    extern __shared__ __align__(16) unsigned char raw_shared[];
    __shared__ NormPart of_warp[kThreads / 32];
    Packet* const kept = reinterpret_cast<Packet*>(raw_shared) + threadIdx.x;
    constexpr int step = kBlocks * kThreads;
    const int n = int(a.n), packets = n / kWidth, thread = blockIdx.x * kThreads + threadIdx.x;
    const int tail = packets * kWidth + thread;
    const int tiles = (packets + step - 1) / step, in_shared = min(tiles, msbench::LongNorm::kShared / int(kThreads * sizeof(Packet)));
    const int again = max(tiles - kHeld, in_shared);  // tiles in_shared to again - 1 are read twice
    const auto has = [&](int tile) { return tile < tiles && thread + tile * step < packets; };

    // Relative to the mean of the thread's first packet, which is near the vector's unless the variance is large besides.
    float shift = 0, count = 0, sum = 0, squares = 0;
    const auto add = [&](const auto& group, int width) {
        float s = 0, z = 0;  // a chain for each packet
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const float v = msbench::to_float(group.lane[k]) - shift;
            s += v, z = fmaf(v, v, z);
        }
        sum += s, squares += z, count += width;
    };
    for (int tile = 0; tile < again; tile += kUnroll) {
        Packet x[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int at = thread + (tile + u) * step;
            if (tile + u >= again || !has(tile + u)) continue;
            x[u] = tile + u < in_shared ? msbench::load_group_once<kWidth>(a.x, at) : msbench::load_group<kWidth>(a.x, at);
        }
        if (tile == 0 && has(0)) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) shift += msbench::to_float(x[0].lane[k]) / kWidth;
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (tile + u >= again || !has(tile + u)) continue;
            add(x[u], kWidth);
            if (tile + u < in_shared) kept[(tile + u) * kThreads] = x[u];
        }
    }
    // DRAM would be idle from here to the second pass: it brings the first weights of that.
    if (threadIdx.x == 0) {
        for (int tile = again - 1; tile >= max(again - kAhead, 0); --tile) {
            const int64_t at = int64_t(tile) * step + blockIdx.x * kThreads;
            if (at + kThreads > packets) continue;
            prefetch_tile(a.weight + at * kWidth, kThreads * sizeof(Packet));
            prefetch_tile(a.bias + at * kWidth, kThreads * sizeof(Packet));
        }
    }
    Packet x[kHeld], w[kHeld], b[kHeld];
    const auto load_weights = [&](int i, int tile) {
        w[i] = msbench::load_group_once<kWidth>(a.weight, thread + tile * step);
        b[i] = msbench::load_group_once<kWidth>(a.bias, thread + tile * step);
    };
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (has(again + i)) {
            x[i] = msbench::load_group_once<kWidth>(a.x, thread + (again + i) * step);
            load_weights(i, again + i);
        }
    }
    Group<scalar_t, 1> x_tail, w_tail, b_tail;
    if (tail < n) {
        x_tail = msbench::load_group<1>(a.x, tail);
        w_tail = msbench::load_group<1>(a.weight, tail), b_tail = msbench::load_group<1>(a.bias, tail);
        add(x_tail, 1);
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (has(again + i)) add(x[i], kWidth);
    }

    NormPart mine[1] = {{count, 0, squares}};
    if (count > 0) mine[0].mean = shift + sum / count, mine[0].squares = squares - sum * (sum / count);
    const NormPart warp = msbench::join<true>(mine);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = warp;
    __syncthreads();
    const NormPart block = msbench::join_shared<true, kThreads / 32>(of_warp);
    if (threadIdx.x == 0) parts[blockIdx.x] = block;
    cooperative_groups::this_grid().sync();
    const NormPart all = msbench::join_shared<true, kBlocks>(parts);
    const float scale = rsqrtf(fmaf(all.squares, a.inverse, a.epsilon));

    const auto write = [&](int i, int tile) {
        msbench::store_group_once(a.y, thread + tile * step, msbench::normalised<kWidth>(x[i], w[i], b[i], all, scale));
    };
    if (tail < n) msbench::store_group(a.y, tail, msbench::normalised<1>(x_tail, w_tail, b_tail, all, scale));
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (has(again + i)) write(i, again + i);
    }
    for (int tile = again - 1; tile >= 0; tile -= kHeld) {  // backwards; the last ones are those in shared memory
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (tile < i || !has(tile - i)) continue;
            x[i] = tile - i < in_shared ? kept[(tile - i) * kThreads]
                                        : msbench::load_group_once<kWidth>(a.x, thread + (tile - i) * step);
            load_weights(i, tile - i);
        }
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (tile >= i && has(tile - i)) write(i, tile - i);
        }
    }
}

}  // namespace

extern "C" size_t layer_norm_workspace(float, int64_t) {
    return msbench::kNormWorkspace;
}

extern "C" cudaError_t layer_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                                  int64_t N, void* workspace, size_t, cudaStream_t stream) {
    if (N / kWidth <= 32768 || !msbench::packets_allowed(x, weight, bias, y)) {
        return msbench::vector_norm<true>(x, weight, bias, y, epsilon, N, workspace, stream);
    }
    const msbench::NormArrays<scalar_t> a = {x, weight, bias, y, epsilon, float(1.0 / double(N)), N};
    msbench::Launch launch(msbench::LongNorm::kBlocks, msbench::LongNorm::kThreads, stream);
    return launch.shared(msbench::LongNorm::kShared).cooperative()(norm_ahead, a, static_cast<NormPart*>(workspace));
}
