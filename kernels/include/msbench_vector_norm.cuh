// Normalisation of one vector, of layer_norm and rms_norm: y = w·(x - m) / √(v + ε) + b, where m = 0 in rms_norm.
//
// Plans:
//   one block    to 1024 packets of 16 bytes: the vector stays in registers.
//   one cluster  to 8192 packets; four clusters to 32768.
//   on chip      beyond, cooperative: 224 KiB of x stay in each multiprocessor's shared memory, a little in registers.
// Where the arrays are not aligned to 16 bytes, all this goes by elements.
#pragma once

#include <cstddef>
#include <type_traits>

#include "msbench_cluster.cuh"
#include "msbench_norm_on_chip.cuh"

namespace msbench {

template <int kCount>
using Count = std::integral_constant<int, kCount>;

// Whole packets, one a thread of one block: as few instructions as can be, since a short kernel waits for them, too.
template <bool kCentred, int kWidth, int kWarps, typename T>
__global__ void __launch_bounds__(32 * kWarps) norm_of_packets(NormArrays<T> a, int packets) {
    const int warp = threadIdx.x / 32;
    const bool has = threadIdx.x < packets;
    Group<T, kWidth> x, w, b;
    if (has) {
        x = load_group<kWidth>(a.x, threadIdx.x);
        w = load_group<kWidth>(a.weight, threadIdx.x);
        b = load_group<kWidth>(a.bias, threadIdx.x);
    }
    const auto count = [&](int i) { return float(kWidth * max(0, min(32, packets - i * 32))); };  // elements of a warp
    float mean = 0, squares = 0;
    if constexpr (kCentred) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) mean += has ? to_float(x.lane[k]) : 0.0f;
        mean = norm_sum(mean) / fmaxf(count(warp), 1.0f);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
        const float v = has ? to_float(x.lane[k]) - mean : 0.0f;
        squares = fmaf(v, v, squares);
    }
    squares = norm_sum(squares);
    if constexpr (kWarps > 1) {
        __shared__ alignas(16) float2 parts[kWarps];
        if (threadIdx.x % 32 == 0) parts[warp] = make_float2(mean, squares);
        __syncthreads();
        mean = squares = 0;
        if constexpr (kCentred) {
#pragma unroll
            for (int i = 0; i < kWarps; ++i) mean = fmaf(count(i) * a.inverse, parts[i].x, mean);
        }
#pragma unroll
        for (int i = 0; i < kWarps; ++i) {
            const float apart = kCentred ? parts[i].x - mean : 0.0f;
            squares += kCentred ? fmaf(count(i) * apart, apart, parts[i].y) : parts[i].y;
        }
    }
    const float scale = rsqrtf(fmaf(squares, a.inverse, a.epsilon));
    if (has) store_group(a.y, threadIdx.x, normalised<kWidth>(x, w, b, {0, mean, 0}, scale));
}

// A vector in the registers of a block, or of a cluster. With kHeld packets of x a thread the grid is kHeld clusters, since one
// has little of L2's bandwidth: each finds the mean and the squares, and cluster i normalises packet i of every thread.
template <bool kCentred, int kWidth, int kBlocks, int kWarps, int kHeld, typename T>
__global__ void __launch_bounds__(32 * kWarps) norm_in_registers(NormArrays<T> a) {
    constexpr int kParts = kBlocks * kWarps, kStep = kParts * 32;
    __shared__ NormPart parts[kParts];
    if constexpr (kBlocks > 1) cooperative_groups::this_cluster().barrier_arrive();
    const int which = blockIdx.x / kBlocks, rank = blockIdx.x % kBlocks, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int thread = rank * 32 * kWarps + threadIdx.x, own = thread + which * kStep;
    const int n = int(a.n), packets = n / kWidth, tail = packets * kWidth + thread;
    Group<T, kWidth> x[kHeld], w, b;
    Group<T, 1> x_tail, w_tail, b_tail;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (thread + i * kStep < packets) x[i] = load_group<kWidth>(a.x, thread + i * kStep);
    }
    if (own < packets) w = load_group<kWidth>(a.weight, own), b = load_group<kWidth>(a.bias, own);
    if (tail < n) {
        x_tail = load_group<1>(a.x, tail), w_tail = load_group<1>(a.weight, tail), b_tail = load_group<1>(a.bias, tail);
    }

    const auto sum_over = [&](auto term) {
        float sum = tail < n ? term(to_float(x_tail.lane[0])) : 0.0f;
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (thread + i * kStep >= packets) continue;
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sum += term(to_float(x[i].lane[k]));
        }
        return norm_sum(sum);
    };
    NormPart mine = {0, 0, 0};
    if constexpr (kCentred) {
        mine.count = __popc(__ballot_sync(~0u, tail < n));
#pragma unroll
        for (int i = 0; i < kHeld; ++i) mine.count += kWidth * __popc(__ballot_sync(~0u, thread + i * kStep < packets));
        mine.mean = sum_over([](float v) { return v; }) / fmaxf(mine.count, 1.0f);
    }
    mine.squares = sum_over([&](float v) { return (v - mine.mean) * (v - mine.mean); });
    if constexpr (kBlocks > 1) {
        const auto cluster = cooperative_groups::this_cluster();
        cluster.barrier_wait();  // all blocks run, so their shared memory may be written
        if (lane < kBlocks) *cluster.map_shared_rank(parts + rank * kWarps + warp, lane) = mine;
        cluster.sync();
    } else if constexpr (kWarps > 1) {
        if (lane == 0) parts[warp] = mine;
        __syncthreads();
    }
    const NormPart all = kParts > 1 ? join_shared<kCentred, kParts>(parts) : mine;
    const float scale = rsqrtf(fmaf(all.squares, a.inverse, a.epsilon));
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (i == which && own < packets) store_group(a.y, own, normalised<kWidth>(x[i], w, b, all, scale));
    }
    if (which == 0 && tail < n) store_group(a.y, tail, normalised<1>(x_tail, w_tail, b_tail, all, scale));
}

constexpr size_t kNormWorkspace = LongNorm::kBlocks * sizeof(NormPart);

template <bool kCentred, int kWidth, typename T>
cudaError_t launch_norm(const NormArrays<T>& a, void* workspace, cudaStream_t stream) {
    const int64_t packets = a.n / kWidth;
    const auto one_block = [&](auto warps) {
        constexpr int kWarps = decltype(warps)::value;
        return Launch(1, 32 * kWarps, stream)(norm_in_registers<kCentred, kWidth, 1, kWarps, 1, T>, a);
    };
    const auto clusters = [&](auto blocks, auto held) {
        constexpr int kBlocks = decltype(blocks)::value, kHeld = decltype(held)::value;
        const Launch launch(kBlocks * kHeld, 512, stream);
        return launch_clusters(kBlocks, launch, norm_in_registers<kCentred, kWidth, kBlocks, 16, kHeld, T>, a);
    };
    const auto whole = [&](auto warps) {
        constexpr int kWarps = decltype(warps)::value;
        return Launch(1, 32 * kWarps, stream)(norm_of_packets<kCentred, kWidth, kWarps, T>, a, int(packets));
    };
    if (packets * kWidth == a.n && packets <= 256) {
        return packets <= 32 ? whole(Count<1>()) : packets <= 64 ? whole(Count<2>()) : packets <= 128 ? whole(Count<4>()) : whole(Count<8>());
    }
    if (packets <= 256) return one_block(Count<8>());
    if (packets <= 1024) return one_block(Count<32>());
    if (packets <= 4 * 512) return clusters(Count<4>(), Count<1>());
    if (packets <= 16 * 512) return clusters(Count<16>(), Count<1>());
    if (packets <= 16 * 512 * 4) return clusters(Count<16>(), Count<4>());
    Launch launch(LongNorm::kBlocks, LongNorm::kThreads, stream);
    return launch.shared(LongNorm::kShared).cooperative()(norm_on_chip<kCentred, kWidth, T>, a, static_cast<NormPart*>(workspace));
}

template <bool kCentred, typename T>
cudaError_t vector_norm(const T* x, const T* weight, const T* bias, T* y, float epsilon, int64_t n, void* workspace,
                        cudaStream_t stream) {
    const NormArrays<T> a = {x, weight, bias, y, epsilon, float(1.0 / double(n)), n};
    return packets_allowed(x, weight, bias, y) ? launch_norm<kCentred, 16 / int(sizeof(T))>(a, workspace, stream)
                                               : launch_norm<kCentred, 1>(a, workspace, stream);
}

}  // namespace msbench
