// sorting, fp32: keys without a payload need no stable ranking, so the most significant digits come first, and ranks from atomics
// in shared memory.
//
// Plans:
//   rank_all       to 1024 elements: a block finds the places of 32 elements by comparing them with all; blocks do not talk.
//   rank_by_search to 2^17: the same with 32 to 1024 elements in order, among which all others are looked up.
//   whole_grid     beyond, cooperative:
//     1. A histogram of upper halves, as for bf16, deals keys out to buckets of about 8192 keys, or of one upper half.
//     2. x is scattered into the buckets, through shared memory, so that it is written in runs.
//     3. A bucket of one upper half is sorted by counting lower halves: 8 bits a counter; where equal keys overflow them, 16 bits
//        in two passes; 32 in four. One of more than 2^19 keys is all blocks' work. In others a key's place is nearly
//        start(bin) + lower half / 2^16 · count(bin): keys are put there, and the few that meet are ranked by comparison.
//   Above 2^24: parts of 2^24 elements, then merges.
//
// Bound: 2^24 keys: 4 reads and 2 writes of 64 MiB are 94 us; the additions to shared memory take longer.

#include <cooperative_groups.h>

#include <algorithm>
#include <utility>

#include "msbench_bucket_sort.cuh"
#include "msbench_key_buckets.cuh"
#include "msbench_launch.cuh"

namespace {

using msbench::bits_of_ordered;

constexpr int kThreads = 1024, kBlocks = msbench::kCountBlocks;
constexpr int64_t kFew = 1024, kSearched = 131072;
constexpr int64_t kLargest = int64_t(msbench::kIntervals) * msbench::kHeavy;

// ---------------------------------------------------------------- small

__device__ unsigned key_of(unsigned bits) {  // never that of a missing key
    return min(msbench::ordered_bits(bits), 0xfffffffeu);
}

template <int kMost>
__global__ void __launch_bounds__(kThreads) rank_all(const unsigned* x, unsigned* y, int n) {
    __shared__ alignas(16) unsigned keys[kMost];
    unsigned raw[kMost / kThreads];
#pragma unroll
    for (int i = 0; i < kMost / kThreads; ++i) {
        if (i * kThreads + threadIdx.x < n) raw[i] = x[i * kThreads + threadIdx.x];
    }
#pragma unroll
    for (int i = 0; i < kMost / kThreads; ++i) {
        const int at = i * kThreads + threadIdx.x;
        keys[at] = at < n ? key_of(raw[i]) : msbench::kMissingKey;
    }
    const unsigned place = msbench::rank_among(keys, n), index = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.x < 32 && index < n) y[place] = bits_of_ordered(keys[index]);
}

template <class Key>
__device__ Key from_key(unsigned key) {
    return bits_of_ordered(key);
}

__host__ __device__ constexpr int levels_of(int x) {
    return x <= 1 ? 0 : 1 + levels_of(x / 2);
}

// Where the tree has the key with this place: nodes of a level follow each other, the root is 1, and the largest key is 0.
template <int kOwn>
__device__ int node_of(int rank) {
    if (rank == kOwn - 1) return 0;
    const int deepest = __ffs(rank + 1) - 1;
    return (kOwn / 2 >> deepest) + (rank + 1 >> (deepest + 1));
}

// Keys of the first kOwn threads, one a thread, in order (bitonic): partners within a warp by shuffles, others through two arrays.
template <int kOwn>
__device__ unsigned sorted(unsigned key, unsigned* even, unsigned* odd) {
    const int t = threadIdx.x;
    unsigned *buffer = odd, *next = even;  // `even` is read until here by all
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

// A block's kOwn keys are put in order, as a search tree in breadth-first order: levels of up to 32 keys are in different banks.
// All other keys go down the tree, and how many end in front of which own key gives the own keys' places.
template <int kOwn, class Key>
__global__ void __launch_bounds__(kThreads, 1) rank_by_search(const Key* x, Key* y, int n) {
    constexpr int kLevels = levels_of(kOwn), kBatch = kOwn >= 64 ? 8 : 4;
    __shared__ alignas(16) unsigned own[kOwn], tree[kOwn];
    __shared__ unsigned count[kOwn + 1], place[kOwn];
    const int t = threadIdx.x, first = blockIdx.x * kOwn;
    Key raw[kBatch] = {};
    const auto index_of = [&](int from, int i) { return from + i * kThreads + t; };
    const auto fetch = [&](int from) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (index_of(from, i) < n) raw[i] = x[index_of(from, i)];
        }
    };
    if (t < kOwn) {
        own[t] = first + t < n ? key_of(x[first + t]) : msbench::kMissingKey;
        count[t] = place[t] = 0;
    }
    fetch(0);
    __syncthreads();

    unsigned key = own[t % kOwn];
    int rank = t;
    if constexpr (kOwn <= 128) {  // all pairs, shared by 1024 / kOwn threads a key
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
    if (t < kOwn) tree[node_of<kOwn>(rank)] = key;
    __syncthreads();

    const char* const nodes = reinterpret_cast<const char*>(tree);
    const unsigned last = tree[0];
    for (int from = 0; from < n; from += kBatch * kThreads) {
        unsigned limit[kBatch], at[kBatch];  // byte offsets
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            limit[i] = key_of(raw[i]) + (index_of(from, i) < first ? 0 : 1);  // of equal keys the one with the lower index comes first
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
        through = msbench::warp_inclusive(mine);
    } else {
        through = msbench::block_scan(mine).before + mine;
    }
    if (t < kOwn && first + t < n) y[t + through] = from_key<Key>(tree[node_of<kOwn>(t)]);
}

// ---------------------------------------------------------------- whole_grid

struct Place {  // of 16 bits in ascending order: upper halves of floats, or lower halves of keys
    bool upper;
    __device__ int operator()(int bits) const { return !upper ? bits : bits < 0x8000 ? bits + 0x8000 : 0xffff - bits; }
};

__global__ void __launch_bounds__(kThreads, 1)
    whole_grid(const unsigned* x, unsigned* y, int n, int shift, msbench::KeyBuckets* work, unsigned* scattered) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    __shared__ int upcoming;
    unsigned* const histogram = reinterpret_cast<unsigned*>(raw_shared);
    msbench::BucketTable& table = *reinterpret_cast<msbench::BucketTable*>(raw_shared);
    const auto grid = cooperative_groups::this_grid();
    if (blockIdx.x == 0 && threadIdx.x == 0) work->tasks = work->giants = work->next = 0;
    msbench::count_part(x, n, [](unsigned bits) { return bits >> 16; }, histogram, &work->counts);
    msbench::publish_counts(histogram, &work->counts);
    grid.sync();
    msbench::add_up_counts(&work->counts, Place{true});
    grid.sync();
    msbench::make_buckets(table, work, shift);
    grid.sync();
    msbench::scatter_keys(x, n, table, work, scattered);
    grid.sync();

    for (int i = 0; i < work->giants; ++i) {
        const uint4 task = work->giant[i];
        msbench::count_part(scattered + task.x, task.y, [](unsigned key) { return key & 0xffff; }, histogram, &work->counts);
        msbench::publish_counts(histogram, &work->counts);
        grid.sync();
        msbench::add_up_counts(&work->counts, Place{false});
        grid.sync();
        const msbench::HeavyOutput out(y + task.x, task.y, task.z);
        msbench::write_counted(out, &work->counts, *reinterpret_cast<msbench::CountedRuns*>(raw_shared));
    }
    const int tasks = work->tasks;
    for (int i = blockIdx.x; i < tasks;) {
        const uint4 task = work->task[i];
        int next = 0;
        if (threadIdx.x == 0) next = kBlocks + atomicAdd(&work->next, 1);
        const unsigned* const from = scattered + task.x;
        if (!task.w) {
            msbench::sort_light(from, y + task.x, int(task.y), task.x, work->bin, *reinterpret_cast<msbench::LightShared*>(raw_shared));
        } else {
            const msbench::HeavyOutput out(y + task.x, task.y, task.z);
            msbench::HeavyShared& shared = *reinterpret_cast<msbench::HeavyShared*>(raw_shared);
            const bool done = task.y < 65536 && (msbench::sort_heavy<8>(from, out, shared) || msbench::sort_heavy<16>(from, out, shared));
            if (!done) msbench::sort_heavy<32>(from, out, shared);
        }
        if (threadIdx.x == 0) upcoming = next;
        __syncthreads();
        i = upcoming;
        __syncthreads();
    }
}

// Merges neighbouring sorted runs: each element looks up how many of the other run's precede it.
__global__ void __launch_bounds__(256) merge_runs(const unsigned* from, unsigned* to, int64_t length, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int64_t run = i / length, first = run / 2 * 2 * length, other = run % 2 ? first : first + length;
    const unsigned key = msbench::ordered_bits(from[i]), limit = key + (run % 2 && key != ~0u);  // equal ones of the first run precede
    int64_t low = min(other, n), high = min(other + length, n);
    const int64_t begin = low;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (msbench::ordered_bits(from[middle]) < limit || (run % 2 && key == ~0u)) low = middle + 1;
        else high = middle;
    }
    to[first + (i - run * length) + (low - begin)] = from[i];
}

cudaError_t sort_part(const unsigned* x, unsigned* y, int n, msbench::KeyBuckets* work, unsigned* scattered, cudaStream_t stream) {
    int shift = 9;
    while (shift < 13 && n >> shift > 512) ++shift;
    const size_t bytes = std::max({sizeof(msbench::BucketTable), sizeof(msbench::HeavyShared), sizeof(msbench::LightShared), sizeof(msbench::CountedRuns)});
    return msbench::Launch(kBlocks, kThreads, stream).shared(bytes).cooperative()(whole_grid, x, y, n, shift, work, scattered);
}

constexpr size_t kWorkspace = (sizeof(msbench::KeyBuckets) + 255) / 256 * 256;

}  // namespace

// The counters and tables, the keys in their buckets, and, if there are more than kLargest, another array to merge from.
extern "C" size_t sorting_workspace(int64_t N) {
    return N <= kSearched ? 0 : kWorkspace + (N > kLargest ? kLargest + N : N) * sizeof(unsigned);
}

extern "C" cudaError_t sorting(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    const auto from = reinterpret_cast<const unsigned*>(x);
    auto to = reinterpret_cast<unsigned*>(y);
    if (N <= kFew) return msbench::Launch(unsigned(msbench::ceil_div(N, 32)), kThreads, stream)(rank_all<kFew>, from, to, int(N));
    const auto search = [&](auto kernel, int own) {
        return msbench::Launch(unsigned(msbench::ceil_div(N, own)), kThreads, stream)(kernel, from, to, int(N));
    };
    if (N <= 4096) return search(rank_by_search<32, unsigned>, 32);
    if (N <= 8192) return search(rank_by_search<64, unsigned>, 64);
    if (N <= 16384) return search(rank_by_search<128, unsigned>, 128);
    if (N <= 32768) return search(rank_by_search<256, unsigned>, 256);
    if (N <= 65536) return search(rank_by_search<512, unsigned>, 512);
    if (N <= kSearched) return search(rank_by_search<1024, unsigned>, 1024);
    auto work = static_cast<msbench::KeyBuckets*>(workspace);
    unsigned* const scattered = reinterpret_cast<unsigned*>(static_cast<char*>(workspace) + kWorkspace);
    if (N <= kLargest) return sort_part(from, to, int(N), work, scattered, stream);

    int merges = 0;
    while ((kLargest << merges) < N) ++merges;
    unsigned* other = scattered + kLargest;
    if (merges % 2) std::swap(to, other);  // two arrays take turns so that the last merge writes y
    for (int64_t first = 0; first < N; first += kLargest) {
        const int part = int(std::min(kLargest, N - first));
        const cudaError_t error = sort_part(from + first, to + first, part, work, scattered, stream);
        if (error != cudaSuccess) return error;
    }
    for (int merge = 0; merge < merges; ++merge) {
        merge_runs<<<unsigned(msbench::ceil_div(N, 256)), 256, 0, stream>>>(to, other, kLargest << merge, N);
        std::swap(to, other);
    }
    return cudaGetLastError();
}
