// Sums over whole arrays in one launch, in an order that is always the same: by one block, by a cluster, or by many blocks whose sums go to
// the last by mail.
//
// Short sums cost a launch, one trip to memory for numbers, and what comes behind it: on an H100 a block of 256 that adds up has 1.2 us
// more than an empty kernel, and the mail 0.4 us. Code comes from memory, too, so the kernels of short sums are short.
#pragma once

#include <algorithm>

#ifdef __NVCC__
#include "msbench_cluster_sum.cuh"
#endif
#include "msbench_flat_sum.cuh"
#include "msbench_launch.cuh"
#include "msbench_mail.cuh"
#include "msbench_sum_terms.cuh"

namespace msbench {

namespace detail {

// By one block, all loads at once.
template <int kWidth, int kThreads, int kHeld, typename Own, typename... In>
__global__ void __launch_bounds__(kThreads) sum_by_block(Own own, int groups, int head, int edges, const In*... in) {
    [&](auto... held) {
        (load_all(held, in + head, threadIdx.x, kThreads, groups), ...);
        const float alone = edge<kWidth>(own, groups, head, edges, in...);
        const float total = flat_sum<kThreads>(sum_of_all<kHeld>(own, head % 2 != 0, held...) + alone);
        if (threadIdx.x == 0) own.finish(total);
    }(Held<In, kWidth, kHeld>()...);
}

// By a cluster, all loads at once.
#ifdef __NVCC__  // the processor's executor has no clusters
template <int kWidth, int kThreads, int kHeld, typename Own, typename... In>
__global__ void __launch_bounds__(kThreads) sum_by_cluster(Own own, int groups, int head, int edges, const In*... in) {
    __shared__ ClusterSum of_cluster;
    const int blocks = static_cast<int>(gridDim.x), at = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    [&](auto... held) {
        (load_all(held, in + head, at, blocks * kThreads, groups), ...);
        of_cluster.begin();
        float alone = 0;
        if (static_cast<int>(blockIdx.x) == blocks - 1) alone = edge<kWidth>(own, groups, head, edges, in...);
        const float sum = flat_sum<kThreads>(sum_of_all<kHeld>(own, head % 2 != 0, held...) + alone);
        of_cluster.end(sum, [&](float total) { own.finish(total); });
    }(Held<In, kWidth, kHeld>()...);
}
#endif

// By all blocks but the last, which only collects, and takes the edges; all loads at once.
template <int kWidth, int kThreads, int kHeld, typename Own, typename... In>
__global__ void __launch_bounds__(kThreads) sum_by_mail(Own own, int groups, int head, int edges, const In*... in) {
    const int senders = static_cast<int>(gridDim.x) - 1, block = static_cast<int>(blockIdx.x);
    if (block == senders) {
        if (threadIdx.x >= 32) return;
        const float total = edges_and<kWidth>([&] { return take_all_sums(senders); }, own, groups, head, edges, in...);
        if (threadIdx.x == 0) own.finish(total);
        return;
    }
    [&](auto... held) {
        (load_all(held, in + head, block * kThreads + static_cast<int>(threadIdx.x), senders * kThreads, groups), ...);
        prepare_mail(block);
        const float total = flat_sum<kThreads>(sum_of_all<kHeld>(own, head % 2 != 0, held...));
        if (threadIdx.x == 0) send_sum(block, total);
    }(Held<In, kWidth, kHeld>()...);
}

// By all blocks.
template <int kWidth, int kThreads, int kHeld, typename Own, typename... In>
__global__ void __launch_bounds__(kThreads) sum_by_all(Own own, int64_t groups, int head, int edges, const In*... in) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    float chain[4] = {}, alone = 0;
    if (blockIdx.x == gridDim.x - 1) alone = edge<kWidth>(own, groups, head, edges, in...);
    for (int64_t begin = first; begin < groups; begin += kHeld * stride) {
        [&](auto... held) {
            (load(held, in + head, begin, stride, groups), ...);
            add_held<kHeld>(own, chain, begin, stride, groups, held...);
        }(Held<In, kWidth, kHeld>()...);
    }
    grid_sum<kThreads>(own.join(chain, head % 2 != 0) + alone, [&](float total) { own.finish(total); });
}

// The same for arrays without a common boundary of 16 bytes, one by one.
template <int kThreads, typename Own, typename... In>
__global__ void __launch_bounds__(kThreads) sum_singles(Own own, int64_t count, const In*... in) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    float chain[4] = {};
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; begin < count; begin += 4 * stride) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int64_t i = begin + k * stride;
            if (i < count) chain[k] += single(own, i, operands(load_group<1>(in, i))...);
        }
    }
    const float alone = (chain[0] + chain[1]) + (chain[2] + chain[3]);
    grid_sum<kThreads>(alone, [&](float total) { own.finish(total); });
}

}  // namespace detail

// How a sum over arrays spreads its work.
//   to kOneBlockGroups of all arrays   one block
//   to kClusterGroups of an array      a cluster of 8 or 16
//   to kManyGroups of an array         256 blocks at most, of 256 threads with 2 groups of each array up to 1024 with 4: all loads at once
//   beyond                             two blocks of 1024, 2 groups of each array at a time
// Of some eighty shapes (H200, 2026-11-26), many of which come within 1 %. Lost: a sum of zeros while the numbers are on their way, so that its
// code is at hand (0.04 us), a first block that collects instead of the last (nothing), words that the device sees instead of the system
// (nothing); bulk copies and bulk prefetches (H100: 0.2 to 1 us), contiguous shares (0.1 us).
struct SumShape {
    static constexpr int64_t kOneBlockGroups = 4096, kClusterGroups = 16384, kManyGroups = 1 << 20;
};

// The sum over elements 0 to count - 1 of the arrays, of as many as `own` says; at least one.
template <typename Shape = SumShape, typename Own, typename... In>
cudaError_t sum(cudaStream_t stream, int64_t count, Own own, const In*... in) {
    constexpr int kWidth = 16 / sizeof(scalar_t);
    const int64_t most = std::min(2 * multiprocessors(), kMostSenders);
    int head = common_head(in...);
    if (head < 0) {
        constexpr int kThreads = 512;
        const int64_t blocks = std::min(ceil_div(count, kThreads), most);
        detail::sum_singles<kThreads><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(own, count, in...);
        return cudaGetLastError();
    }
    while (head < own.inner_begin()) head += kWidth;
    const int64_t groups = std::max<int64_t>(own.inner_end(count) - head, 0) / kWidth;
    if (groups == 0) head = 0;
    const int edges = static_cast<int>(count - groups * kWidth);
    constexpr int64_t kArrays = sizeof...(In);
    if (groups <= Shape::kOneBlockGroups / kArrays) {
        const auto block = [&](auto kernel, int threads) {
            kernel<<<1, threads, 0, stream>>>(own, static_cast<int>(groups), head, edges, in...);
        };
        if (groups <= 256) block(detail::sum_by_block<kWidth, 256, 1, Own, In...>, 256);
        else if (groups <= 512) block(detail::sum_by_block<kWidth, 512, 1, Own, In...>, 512);
        else if (groups <= 1024) block(detail::sum_by_block<kWidth, 1024, 1, Own, In...>, 1024);
        else if (groups <= 2048) block(detail::sum_by_block<kWidth, 1024, 2, Own, In...>, 1024);
        else block(detail::sum_by_block<kWidth, 1024, 4, Own, In...>, 1024);
        return cudaGetLastError();
    }
#ifdef __NVCC__
    if (groups <= Shape::kClusterGroups) {
        constexpr int kThreads = 512, kHeld = 2;
        const int blocks = groups <= 8 * kThreads * kHeld ? 8 : 16;
        static_assert(Shape::kClusterGroups <= 16 * kThreads * kHeld);
        return launch_clusters(blocks, Launch(blocks, kThreads, stream), detail::sum_by_cluster<kWidth, kThreads, kHeld, Own, In...>, own,
                               static_cast<int>(groups), head, edges, in...);
    }
#endif
    if (groups > Shape::kManyGroups) {
        detail::sum_by_all<kWidth, 1024, 2, Own, In...><<<static_cast<unsigned>(most), 1024, 0, stream>>>(own, groups, head, edges, in...);
        return cudaGetLastError();
    }
    constexpr int64_t kBlocks = 256;  // that send
    const auto mail = [&](auto kernel, int threads, int held) {
        const auto blocks = static_cast<unsigned>(ceil_div(groups, threads * held) + 1);
        kernel<<<blocks, threads, 0, stream>>>(own, static_cast<int>(groups), head, edges, in...);
    };
    if (groups <= kBlocks * 512) mail(detail::sum_by_mail<kWidth, 256, 2, Own, In...>, 256, 2);
    else if (groups <= kBlocks * 1024) mail(detail::sum_by_mail<kWidth, 512, 2, Own, In...>, 512, 2);
    else if (groups <= kBlocks * 2048) mail(detail::sum_by_mail<kWidth, 512, 4, Own, In...>, 512, 4);
    else mail(detail::sum_by_mail<kWidth, 1024, 4, Own, In...>, 1024, 4);
    return cudaGetLastError();
}

}  // namespace msbench
