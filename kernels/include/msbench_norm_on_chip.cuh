// Normalisation of one long vector by a cooperative grid that keeps as much of it as the chip holds between the two passes.
//
// Tile j of a block is the packets (j·blocks + block)·kThreads + thread. The first tiles of x stay in
// shared memory, the last kHeld in registers, with their w and b; those between are read again, backwards, so that what L2 still
// has comes first. Nothing else is kept in L2.
#pragma once

#include "msbench_groups.cuh"

#include "msbench_norm_part.cuh"

namespace msbench {

struct LongNorm {
    static constexpr int kThreads = 1024, kShared = 224 * 1024, kBlocks = 132;
    // Packets in flight a thread. bf16 2^25 on an H200 (2026-11-23): 79 us with 2, 92 with 4, since more of 8 elements spill.
    template <typename T>
    static constexpr int kUnroll = sizeof(T) == 4 ? 4 : 2;
};

template <bool kCentred, int kWidth, typename T>
__global__ void __launch_bounds__(LongNorm::kThreads, 1) norm_on_chip(NormArrays<T> a, NormPart* parts) {
    constexpr int kThreads = LongNorm::kThreads, kUnroll = LongNorm::kUnroll<T>, kHeld = kUnroll / 2, kBlocks = LongNorm::kBlocks;
    using Packet = Group<T, kWidth>;
    extern __shared__ __align__(16) unsigned char raw_shared[];
    __shared__ NormPart of_warp[kThreads / 32];
    Packet* const kept = reinterpret_cast<Packet*>(raw_shared) + threadIdx.x;
    constexpr int step = kBlocks * kThreads;
    const int n = int(a.n), packets = n / kWidth, thread = blockIdx.x * kThreads + threadIdx.x;
    const int tail = packets * kWidth + thread;
    const int tiles = (packets + step - 1) / step, in_shared = min(tiles, LongNorm::kShared / int(kThreads * sizeof(Packet)));
    const int again = max(tiles - kHeld, in_shared);  // tiles in_shared to again - 1 are read twice
    const auto has = [&](int tile) { return tile < tiles && thread + tile * step < packets; };

    // Relative to the mean of the thread's first packet, which is near the vector's unless the variance is large besides.
    float shift = 0, count = 0, sum = 0, squares = 0;
    const auto add = [&](const auto& group, int width) {
        float s = 0, z = 0;  // a chain for each packet
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const float v = to_float(group.lane[k]) - shift;
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
            x[u] = tile + u < in_shared ? load_group_once<kWidth>(a.x, at) : load_group<kWidth>(a.x, at);
        }
        if (kCentred && tile == 0 && has(0)) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) shift += to_float(x[0].lane[k]) / kWidth;
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (tile + u >= again || !has(tile + u)) continue;
            add(x[u], kWidth);
            if (tile + u < in_shared) kept[(tile + u) * kThreads] = x[u];
        }
    }
    Packet x[kHeld], w[kHeld], b[kHeld];
    const auto load_weights = [&](int i, int tile) {
        w[i] = load_group_once<kWidth>(a.weight, thread + tile * step);
        b[i] = load_group_once<kWidth>(a.bias, thread + tile * step);
    };
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (has(again + i)) {
            x[i] = load_group_once<kWidth>(a.x, thread + (again + i) * step);
            load_weights(i, again + i);
        }
    }
    Group<T, 1> x_tail, w_tail, b_tail;
    if (tail < n) {
        x_tail = load_group<1>(a.x, tail), w_tail = load_group<1>(a.weight, tail), b_tail = load_group<1>(a.bias, tail);
        add(x_tail, 1);
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (has(again + i)) add(x[i], kWidth);
    }

    NormPart mine[1] = {{count, 0, squares}};
    if (kCentred && count > 0) mine[0].mean = shift + sum / count, mine[0].squares = squares - sum * (sum / count);
    const NormPart warp = join<kCentred>(mine);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = warp;
    __syncthreads();
    const NormPart block = join_shared<kCentred, kThreads / 32>(of_warp);
    if (threadIdx.x == 0) parts[blockIdx.x] = block;
    cooperative_groups::this_grid().sync();
    const NormPart all = join_shared<kCentred, kBlocks>(parts);
    const float scale = rsqrtf(fmaf(all.squares, a.inverse, a.epsilon));

    const auto write = [&](int i, int tile) {
        store_group_once(a.y, thread + tile * step, normalised<kWidth>(x[i], w[i], b[i], all, scale));
    };
    if (tail < n) store_group(a.y, tail, normalised<1>(x_tail, w_tail, b_tail, all, scale));
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (has(again + i)) write(i, again + i);
    }
    for (int tile = again - 1; tile >= 0; tile -= kHeld) {  // backwards; the last ones are those in shared memory
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (tile < i || !has(tile - i)) continue;
            x[i] = tile - i < in_shared ? kept[(tile - i) * kThreads] : load_group_once<kWidth>(a.x, thread + (tile - i) * step);
            load_weights(i, tile - i);
        }
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (tile >= i && has(tile - i)) write(i, tile - i);
        }
    }
}

}  // namespace msbench
