// Sums over whole arrays in one launch, in an order that is always the same: by one block, or by many whose sums go to the last by mail.
//
// Short sums cost a launch, one trip to memory for numbers, and what comes behind it: on an H100 a block of 256 that adds up has 1.2 us
// more than an empty kernel, and the mail 0.4 us. Code comes from memory, too, so the kernels of short sums are short.
#pragma once

#include <algorithm>

#include "msbench_flat_sum.cuh"
#include "msbench_launch.cuh"
#include "msbench_mail.cuh"
#include "msbench_sum_terms.cuh"

namespace msbench {

namespace detail {

// By one block, all loads at once.
template <int kWidth, int kThreads, int kHeld, typename Own, typename... In>
__global__ void __launch_bounds__(kThreads) sum_by_block(Own own, int groups, int head, int edges, const In*... in) {
    const float sum = [&](auto... held) {
        (load(held, in + head, threadIdx.x, kThreads, groups), ...);
        const float alone = edge<kWidth>(own, groups, head, edges, in...);
        float chain[4] = {};
        add_held<kHeld>(own, chain, threadIdx.x, kThreads, groups, held...);
        return own.join(chain, head % 2 != 0) + alone;
    }(Held<In, kWidth, kHeld>()...);
    const float total = flat_sum<kThreads>(sum);
    if (threadIdx.x == 0) own.finish(total);
}

// By all blocks but the last, which only collects, and takes the edges.
template <int kWidth, int kThreads, int kHeld, typename Own, typename... In>
__global__ void __launch_bounds__(kThreads) sum_by_mail(Own own, int64_t groups, int head, int edges, const In*... in) {
    const int senders = static_cast<int>(gridDim.x) - 1, block = static_cast<int>(blockIdx.x);
    if (block == senders) {
        if (threadIdx.x >= 32) return;
        const float alone = edge<kWidth>(own, groups, head, edges, in...);
        const float total = take_all_sums(senders) + warp_reduce(alone, Sum());
        if (threadIdx.x == 0) own.finish(total);
        return;
    }
    const int64_t stride = static_cast<int64_t>(senders) * kThreads, first = static_cast<int64_t>(block) * kThreads + threadIdx.x;
    const float sum = [&](auto... held) {
        float chain[4] = {};
        for (int64_t begin = first; begin < groups; begin += kHeld * stride) {
            (load(held, in + head, begin, stride, groups), ...);
            add_held<kHeld>(own, chain, begin, stride, groups, held...);
        }
        return own.join(chain, head % 2 != 0);
    }(Held<In, kWidth, kHeld>()...);
    const float total = flat_sum<kThreads>(sum);
    if (threadIdx.x == 0) send_sum(block, total);
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
//   below kManyGroups of an array      two blocks a multiprocessor at most, of 256 threads with 1, 2 or 4 groups of each array, or of 512
//                                      with 4: all loads at once
//   beyond                             two blocks of 1024, 2 groups of each array at a time
// Of some sixty shapes (H100, 2026-11-25), many of which come within 1 %. Lost: clusters (within 0.1 us of these, from 2^11 to 2^13 groups),
// bulk copies and bulk prefetches (0.2 to 1 us), contiguous shares (0.1 us), asking for the mailbox before the numbers (0.3 us).
struct SumShape {
    static constexpr int64_t kOneBlockGroups = 4096, kManyGroups = 1 << 20;
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
    const auto launch = [&](auto kernel, int threads, int64_t blocks) {
        kernel<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(own, groups, head, edges, in...);
    };
    const auto mail = [&](auto kernel, int threads, int held) {
        launch(kernel, threads, std::min(ceil_div(groups, threads * held) + 1, most));
    };
    const int64_t each = ceil_div(groups, most - 1);
    if (groups >= Shape::kManyGroups) launch(detail::sum_by_all<kWidth, 1024, 2, Own, In...>, 1024, most);
    else if (each <= 256) mail(detail::sum_by_mail<kWidth, 256, 1, Own, In...>, 256, 1);
    else if (each <= 512) mail(detail::sum_by_mail<kWidth, 256, 2, Own, In...>, 256, 2);
    else if (each <= 1024) mail(detail::sum_by_mail<kWidth, 256, 4, Own, In...>, 256, 4);
    else mail(detail::sum_by_mail<kWidth, 512, 4, Own, In...>, 512, 4);
    return cudaGetLastError();
}

}  // namespace msbench
