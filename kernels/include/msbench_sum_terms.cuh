// What sums over arrays are made of: terms, and how a thread loads groups of neighbours and adds up their terms.
#pragma once

#include "msbench_packets.cuh"

namespace msbench {

// What a sum over arrays is made of; Own derives from this and has
//     float add(float sum, x...) const    sum with the term of operands x..., which is zero where they all are
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

template <typename T, int kWidth, int kHeld>
__device__ void load(Held<T, kWidth, kHeld>& held, const T* array, int64_t begin, int64_t stride, int64_t groups) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (begin + i * stride < groups) held.group[i] = load_group<kWidth>(array, begin + i * stride);
    }
}

template <int kHeld, typename Own, typename... Held>
__device__ void add_held(const Own& own, float (&chain)[4], int64_t begin, int64_t stride, int64_t groups, const Held&... held) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        if (begin + i * stride < groups) add_group(own, chain, operands(held.group[i])...);
    }
}

// The same for all that a thread has, at once: groups that are missing are zeros, so that nothing branches.
template <typename T, int kWidth, int kHeld>
__device__ void load_all(Held<T, kWidth, kHeld>& held, const T* array, int begin, int stride, int groups) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        held.group[i] = {};
        if (begin + i * stride < groups) held.group[i] = load_group<kWidth>(array, begin + i * stride);
    }
}

template <int kHeld, typename Own, typename... Held>
__device__ float sum_of_all(const Own& own, bool odd, const Held&... held) {
    float chain[4] = {};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) add_group(own, chain, operands(held.group[i])...);
    return own.join(chain, odd);
}

// Groups of kWidth begin at element `head`; the first `edges` threads have the elements before and behind them.
template <int kWidth, typename Own, typename... In>
__device__ float edge(const Own& own, int64_t groups, int head, int edges, const In*... in) {
    if (static_cast<int>(threadIdx.x) >= edges) return 0;
    const int64_t i = threadIdx.x < head ? threadIdx.x : threadIdx.x + groups * kWidth;
    return single(own, i, operands(load_group<1>(in, i))...);
}

// The sum over a warp's edges, which are on their way during `meanwhile()`, and what that gives. At most 32 edges.
template <int kWidth, typename Own, typename Meanwhile, typename... In>
__device__ float edges_and(Meanwhile meanwhile, const Own& own, int groups, int head, int edges, const In*... in) {
    const bool has = static_cast<int>(threadIdx.x) < edges;
    const int i = static_cast<int>(threadIdx.x) < head ? threadIdx.x : threadIdx.x + groups * kWidth;
    return [&](auto... x) {
        const float sum = meanwhile();
        return sum + warp_reduce(has ? single(own, i, operands(x)...) : 0.0f, Sum());
    }((has ? load_group<1>(in, i) : Group<In, 1>{})...);
}

}  // namespace detail
}  // namespace msbench
