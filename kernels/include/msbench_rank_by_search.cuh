// Sorting in one launch without an exchange between blocks: a block puts a few keys in order, and all others are looked up among them.
//
// Idea: where a key belongs is how many come before it. Comparing all pairs finds that with n comparisons a key; here a block has
// kOwn keys as a search tree, each of the n goes down log2(kOwn) levels, and how many end in front of which own key gives the
// places of all kOwn. A tree in breadth-first order has levels of up to 32 keys in different banks; a level is one dependent read,
// so a thread takes several keys down at once, while the next are on their way. kOwn is the smallest for which all blocks run at
// once, since every block reads all of x.
//
// Bound: n log2(kOwn) / 32 cycles of reading shared memory, 10 us for 65536 keys; levels of more than 32 keys take longer, since
// lanes meet in banks.
// Measured (H200, 2026-11-24, cold): fp32 4096 5.3, 8192 6.9, 16384 9.6, 32768 15.8, 65536 27, 100003 45, 131072 54 us;
// bf16 4096 5.7, 8192 7.3, 16384 10.0 us. All pairs at 4096: 6.6 and 7.1 us.
#pragma once

#include "msbench_launch.cuh"
#include "msbench_ordered_keys.cuh"
#include "msbench_scan.cuh"

namespace msbench {
namespace search {

constexpr int kThreads = 1024, kFewest = 32, kMostOwn = 1024, kBlocks = 128;  // of 132 multiprocessors

__host__ __device__ constexpr int levels_of(int x) {
    return x <= 1 ? 0 : 1 + levels_of(x / 2);
}

// Where the tree has the key with this place: nodes of a level follow each other, the root is 1, and the largest key is 0.
template <int kOwn>
__device__ inline int node_of(int rank) {
    if (rank == kOwn - 1) return 0;
    const int deepest = __ffs(rank + 1) - 1;
    return (kOwn / 2 >> deepest) + (rank + 1 >> (deepest + 1));
}

// Keys of the first kOwn threads, one a thread, in order (bitonic): partners within a warp by shuffles, others through two arrays.
template <int kOwn>
__device__ inline unsigned sorted(unsigned key, unsigned* even, unsigned* odd) {
    const int t = threadIdx.x;
    unsigned *buffer = odd, *next = even;  // `even` may still be read by other threads
#pragma unroll
    for (int size = 2; size <= kOwn; size *= 2) {
#pragma unroll
        for (int d = size / 2; d > 0; d /= 2) {
            unsigned other = 0;
            if (d >= 32) {
                if (t < kOwn) buffer[t] = key;
                __syncthreads();
                if (t < kOwn) other = buffer[t ^ d];
                unsigned* const swap = buffer;
                buffer = next, next = swap;
            } else if (t < kOwn) {
                other = __shfl_xor_sync(~0u, key, d);
            }
            key = ((t & d) == 0) == ((t & size) == 0) ? min(key, other) : max(key, other);
        }
    }
    __syncthreads();
    return key;
}

// Where keys go: Put has `put(key, index, place)` and kIndices, whether it looks at the index of x, which at most kAllPairs own keys know.
template <class Keys, class Element>
struct PutSorted {
    static constexpr bool kIndices = false;
    Element* y;
    __device__ void put(unsigned key, int, int place) const { y[place] = Keys::element(key); }
};

constexpr int kAllPairs = 128;  // own keys up to which comparing all pairs puts them in order: fewer barriers than sorting

template <class Keys, int kOwn, class Element, class Put>
__global__ void __launch_bounds__(kThreads, 1) rank_by_search(const Element* x, Put to, int n) {
    constexpr int kLevels = levels_of(kOwn), kBatch = kOwn >= 64 ? 8 : 4;
    static_assert(!Put::kIndices || kOwn <= kAllPairs);
    __shared__ alignas(16) unsigned own[kOwn], tree[kOwn];
    __shared__ unsigned count[kOwn + 1], place[kOwn], origin[Put::kIndices ? kOwn : 1];
    const int t = threadIdx.x, first = blockIdx.x * kOwn;
    Element raw[kBatch] = {};
    const auto index_of = [&](int from, int i) { return from + i * kThreads + t; };
    const auto fetch = [&](int from) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (index_of(from, i) < n) raw[i] = x[index_of(from, i)];
        }
    };
    if (t < kOwn) {
        own[t] = first + t < n ? Keys::key(x[first + t]) : kMissingKey;
        count[t] = place[t] = 0;
    }
    fetch(0);
    __syncthreads();

    unsigned key = own[t % kOwn];
    int rank = t;
    if constexpr (kOwn <= kAllPairs) {
        constexpr int kEach = kOwn * kOwn / kThreads;
        const int with = t / kOwn * kEach;
        unsigned before = 0;
#pragma unroll
        for (int j = 0; j < kEach; ++j) before += own[with + j] < key || (own[with + j] == key && with + j < t % kOwn);
        if (before) atomicAdd(&place[t % kOwn], before);
        __syncthreads();
        if (t < kOwn) rank = int(place[t]);
    } else {
        key = sorted<kOwn>(key, own, tree);
    }
    if (t < kOwn) {
        tree[node_of<kOwn>(rank)] = key;
        if constexpr (Put::kIndices) origin[rank] = first + t;
    }
    __syncthreads();

    const char* const nodes = reinterpret_cast<const char*>(tree);
    const unsigned last = tree[0];
    for (int from = 0; from < n; from += kBatch * kThreads) {
        unsigned limit[kBatch], at[kBatch];  // byte offsets
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            limit[i] = Keys::key(raw[i]) + (index_of(from, i) < first ? 0 : 1);  // of equal keys the one with the lower index comes first
            at[i] = 4;
        }
        const int upcoming = from + kBatch * kThreads;
        if (upcoming < n) fetch(upcoming);
#pragma unroll
        for (int level = 0; level < kLevels; ++level) {
#pragma unroll
            for (int i = 0; i < kBatch; ++i) at[i] = 2 * at[i] + (*reinterpret_cast<const unsigned*>(nodes + at[i]) < limit[i] ? 4 : 0);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int index = index_of(from, i);
            if (index < n && unsigned(index - first) >= kOwn && last >= limit[i]) atomicAdd(&count[at[i] / 4 - kOwn], 1);
        }
    }
    __syncthreads();
    const unsigned mine = t < kOwn ? count[t] : 0;
    unsigned through;
    if constexpr (kOwn == 32) {
        if (t >= 32) return;
        through = warp_inclusive(mine);
    } else {
        through = block_scan(mine).before + mine;
    }
    if (t < kOwn && first + t < n) to.put(tree[node_of<kOwn>(t)], Put::kIndices ? int(origin[t]) : 0, int(t + through));
}

}  // namespace search

// Writes x to y in the order of its keys: 0 < n <= kMost, which is all that kernels are built for. Keys has two functions of the
// device: key(element), less than kMissingKey, and element(key) back from it.
template <class Keys, int kMost, int kOwn = search::kFewest, class Element>
cudaError_t sort_by_search(const Element* x, Element* y, int n, cudaStream_t stream) {
    static_assert(kMost <= search::kBlocks * search::kMostOwn);
    if constexpr (kOwn * search::kBlocks < kMost) {
        if (n > kOwn * search::kBlocks) return sort_by_search<Keys, kMost, 2 * kOwn>(x, y, n, stream);
    }
    using Put = search::PutSorted<Keys, Element>;
    const auto kernel = search::rank_by_search<Keys, kOwn, Element, Put>;
    return Launch(unsigned(ceil_div(n, kOwn)), search::kThreads, stream)(kernel, x, Put{y}, n);
}

}  // namespace msbench
