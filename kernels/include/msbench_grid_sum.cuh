// Sums over a whole grid in one launch, in an order that is always the same, and a skeleton for sums over arrays.
//
// What blocks find goes to the last block by mail: one 64-bit word a block holds the sum and a mark that it is there, so that no
// fence, no counter and no memset is needed. The last block takes each word as soon as it is there and clears it: after a call the
// mailbox is what it was before. The others wait for nothing, so the last block may wait for them.
#pragma once

#include <algorithm>
#include <type_traits>

#include "msbench_launch.cuh"
#include "msbench_packets.cuh"
#include "msbench_reduce.cuh"

namespace msbench {

constexpr int kMostSenders = 1024;

// All zero before and after a kernel. Calls that overlap would share it: one stream at a time.
static __device__ unsigned long long mailbox[kMostSenders];

__device__ inline void send_sum(int block, float sum) {
    constexpr unsigned long long kMark = 1ull << 32;
    *static_cast<volatile unsigned long long*>(mailbox + block) = kMark | __float_as_uint(sum);
}

__device__ inline float take_sum(int block) {
    volatile unsigned long long* const box = mailbox + block;
    unsigned long long mail;
    do mail = *box;
    while (mail == 0);
    *box = 0;
    return __uint_as_float(static_cast<unsigned>(mail));
}

// Calls finish(the sum of `x` over all threads of a one-dimensional grid), in one thread. At most kMostSenders + 1 blocks of
// kThreads; every thread calls this once, and no other kernel that does runs at the same time.
template <int kThreads, typename Finish>
__device__ void grid_sum(float x, Finish finish) {
    const int senders = static_cast<int>(gridDim.x) - 1, block = static_cast<int>(blockIdx.x);
    float sum = block_sum<kThreads>(x);
    if (block < senders) {
        if (threadIdx.x == 0) send_sum(block, sum);
        return;
    }
    if (senders > 0) {
        float taken = threadIdx.x == 0 ? sum : 0.0f;
        for (int i = threadIdx.x; i < senders; i += kThreads) taken += take_sum(i);
        sum = block_sum<kThreads>(taken);
    }
    if (threadIdx.x == 0) finish(sum);
}

// ---------------------------------------------------------------- sums over arrays

// What a sum over arrays is made of; Own derives from this and has
//     float add(float sum, x...) const    sum with the term of operands x...
//     void finish(float total) const      stores the result
// and may hide what is here.
template <typename Own>
struct Terms {
    // The elements that are summed in groups: the rest goes to `single`.
    __host__ __device__ int64_t inner_begin() const { return 0; }
    __host__ __device__ int64_t inner_end(int64_t count) const { return count; }

    // The sum of four chains; chain k has the lanes k, k + 4, … of groups that begin at an element of this parity.
    __device__ float join(const float (&chain)[4], bool) const { return (chain[0] + chain[1]) + (chain[2] + chain[3]); }

    // The term of element i.
    template <typename... X>
    __device__ float single(int64_t, X... x) const {
        return static_cast<const Own*>(this)->add(0.0f, x...);
    }
};

namespace detail {

template <typename T, int kWidth, int kHeld>
struct Held {
    Group<T, kWidth> group[kHeld];
};

template <int kWidth, typename Own, typename... X>
__device__ void add_group(const Own& own, float (&chain)[4], const Group<X, kWidth>&... x) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) chain[k % 4] = own.add(chain[k % 4], x.lane[k]...);
}

template <typename Own, typename... X>
__device__ float single(const Own& own, int64_t i, const Group<X, 1>&... x) {
    return own.single(i, x.lane[0]...);
}

// Groups of kWidth begin at element `head`; the `edges` elements before and behind them are the last block's.
template <int kWidth, int kThreads, int kHeld, typename Own, typename... In>
__global__ void __launch_bounds__(kThreads) sum(Own own, int64_t groups, int head, int edges, const In*... in) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
    float chain[4] = {}, alone = 0;
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x < edges) {
        const int64_t i = threadIdx.x < head ? threadIdx.x : threadIdx.x + groups * kWidth;
        alone = single(own, i, operands(load_group<1>(in, i))...);
    }
    for (int64_t begin = first; begin < groups; begin += kHeld * stride) {
        [&](auto... held) {
#pragma unroll
            for (int i = 0; i < kHeld; ++i) {
                const int64_t at = begin + i * stride;
                if (at < groups) ((held.group[i] = load_group_once<kWidth>(in + head, at)), ...);
            }
#pragma unroll
            for (int i = 0; i < kHeld; ++i) {
                if (begin + i * stride < groups) add_group(own, chain, operands(held.group[i])...);
            }
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

template <int kValue>
using Number = std::integral_constant<int, kValue>;

// How a sum over arrays spreads its work: to kOneBlockGroups one block; then a group a thread; from kMidGroups two blocks for each
// multiprocessor, with two loads under way a thread. Until kManyGroups one block more only takes the edges and collects. The best of a
// dozen (H200, 2026-11-23), many of which come within 2 %; a memset and atomic additions instead of the mailbox are as fast.
struct SumShape {
    static constexpr int64_t kOneBlockGroups = 1024, kMidGroups = 1 << 16, kManyGroups = 1 << 20;
    static constexpr int kFewThreads = 256, kMidThreads = 512, kMidLoads = 2, kManyThreads = 1024, kManyHeld = 2;
};

// The sum over elements 0 to count - 1 of the arrays, of as many as `own` says; at least one.
template <typename Shape = SumShape, typename Own, typename... In>
cudaError_t sum(cudaStream_t stream, int64_t count, Own own, const In*... in) {
    constexpr int kWidth = 16 / sizeof(scalar_t);
    const int64_t most = std::min(2 * multiprocessors(), kMostSenders);
    int head = common_head(in...);
    if (head < 0) {
        constexpr int kThreads = Shape::kMidThreads;
        const int64_t blocks = std::min(ceil_div(count, kThreads), most);
        detail::sum_singles<kThreads><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(own, count, in...);
        return cudaGetLastError();
    }
    while (head < own.inner_begin()) head += kWidth;
    const int64_t groups = std::max<int64_t>(own.inner_end(count) - head, 0) / kWidth;
    if (groups == 0) head = 0;
    const int edges = static_cast<int>(count - groups * kWidth);
    const auto launch = [&](auto threads, auto held, int64_t blocks) {
        constexpr int kThreads = decltype(threads)::value, kHeld = decltype(held)::value;
        detail::sum<kWidth, kThreads, kHeld>
            <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(own, groups, head, edges, in...);
    };
    using One = Number<1>;
    if (groups <= 256) {
        launch(Number<256>(), One(), 1);
    } else if (groups <= 512) {
        launch(Number<512>(), One(), 1);
    } else if (groups <= Shape::kOneBlockGroups) {
        launch(Number<1024>(), One(), 1);
    } else if (groups < Shape::kMidGroups) {
        launch(Number<Shape::kFewThreads>(), One(), std::min(ceil_div(groups, Shape::kFewThreads) + 1, most));
    } else if (groups < Shape::kManyGroups) {
        constexpr int kHeld = std::max<int>(Shape::kMidLoads / sizeof...(In), 1);
        launch(Number<Shape::kMidThreads>(), Number<kHeld>(), std::min(ceil_div(groups, Shape::kMidThreads) + 1, most));
    } else {
        launch(Number<Shape::kManyThreads>(), Number<Shape::kManyHeld>(), most);
    }
    return cudaGetLastError();
}

}  // namespace msbench
