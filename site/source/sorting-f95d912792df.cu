// sorting, bf16: there are 65536 keys and no payload, so sorting is counting.
//
// Plans:
//   rank_all        to 1024 elements: a block finds the places of 32 elements by comparing them with all; blocks do not talk.
//   rank_by_search  to 16384: the same with 32 to 128 elements in order, among which all others are looked up.
//   one_cluster     to 2^17: each of 16 blocks counts its part in shared memory; segments of 64 keys are dealt out to the blocks,
//                   which add up what occurs through distributed shared memory and mark where runs start in the blocks that write them.
//   whole_grid      beyond: the same by 132 blocks through L2 (cooperative, two grid barriers), where only segments of 64 keys that
//                   occur are moved.
// The last two write an equal part of y a block, whatever the keys: a running maximum over the marks of the runs' starts.
//
// Bound: 4 bytes an element and one launch. 2^24 keys: 15.7 us of bytes, and the additions to shared memory take about as long.

#include "msbench_cluster.cuh"
#include "msbench_count_keys.cuh"
#include "msbench_key_runs.cuh"
#include "msbench_ordered_keys.cuh"

namespace {

constexpr int kThreads = 1024;
constexpr int64_t kFew = 1024, kSearched = 16384;
constexpr int kClusterBlocks = 16, kEach = 8, kOneCluster = kClusterBlocks * kThreads * kEach;
constexpr int kPacket = 8;
static_assert(kClusterBlocks == 16 && msbench::kSegments == kThreads);

__device__ int place_of(int bits) {  // of a bf16 in ascending order
    return bits < 0x8000 ? bits + 0x8000 : 0xffff - bits;
}

// Two places back to the bf16 that they stand for.
__device__ unsigned bits_of(unsigned two) {
    return two ^ (((~two >> 15) & 0x00010001u) * 0x7fffu | 0x80008000u);
}

struct Output {
    uint16_t* y;
    int64_t n;
    int head;  // of position 0, a packet's begin

    __device__ Output(uint16_t* y, int64_t n) : y(y), n(n), head(int(reinterpret_cast<uintptr_t>(y) % 16 / 2)) {}
    __device__ int64_t first_of(int block, int blocks) const {  // where a block's part begins
        return (head + n + kPacket - 1) / kPacket * block / blocks * kPacket;
    }
    __device__ void put(int64_t position, uint4 keys) const {
        const int64_t at = position - head;
        const uint4 words = make_uint4(bits_of(keys.x), bits_of(keys.y), bits_of(keys.z), bits_of(keys.w));
        if (at >= 0 && at + kPacket <= n) {
            __stcs(reinterpret_cast<uint4*>(y + at), words);
        } else {
            for (int e = 0; e < kPacket; ++e) {
                if (at + e >= 0 && at + e < n) y[at + e] = reinterpret_cast<const uint16_t*>(&words)[e];
            }
        }
    }
};

template <int kMost>
__global__ void __launch_bounds__(kThreads) rank_all(const scalar_t* x, scalar_t* y, int n) {
    __shared__ alignas(16) unsigned keys[kMost];
    scalar_t raw[kMost / kThreads];
#pragma unroll
    for (int i = 0; i < kMost / kThreads; ++i) {
        if (i * kThreads + threadIdx.x < n) raw[i] = x[i * kThreads + threadIdx.x];
    }
#pragma unroll
    for (int i = 0; i < kMost / kThreads; ++i) {
        const int at = i * kThreads + threadIdx.x;  // as floats bf16 end in 16 zeros, so no key is that of a missing one
        keys[at] = at < n ? msbench::ordered_key(msbench::to_float(raw[i])) : msbench::kMissingKey;
    }
    const unsigned place = msbench::rank_among(keys, n), index = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.x < 32 && index < n) y[place] = msbench::from_float<scalar_t>(msbench::value_of_ordered(keys[index]));
}

__device__ unsigned key_of(uint16_t bits) {
    return place_of(bits);
}

template <class Key>
__device__ Key from_key(unsigned key) {
    return Key(bits_of(key));
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
    {  // all pairs, shared by 1024 / kOwn threads a key
        static_assert(kOwn <= 128);
        constexpr int kEach = kOwn * kOwn / kThreads;
        const int with = t / kOwn * kEach;
        unsigned before = 0;
#pragma unroll
        for (int j = 0; j < kEach; ++j) before += own[with + j] < key || (own[with + j] == key && with + j < t % kOwn);
        if (before) atomicAdd(&place[t % kOwn], before);
        __syncthreads();
        if (t < kOwn) rank = int(place[t]);
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

struct ClusterShared {
    alignas(16) uint16_t histogram[msbench::kKeys];
    alignas(16) uint16_t marks[kThreads * kEach + 2 * msbench::kRunStep];  // parts differ by a packet
    unsigned marked[msbench::kSegments / 32][kClusterBlocks];
    unsigned of_segment[msbench::kSegments];
};

__global__ void __launch_bounds__(kThreads) one_cluster(const uint16_t* x, uint16_t* y, int n) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    ClusterShared& shared = *reinterpret_cast<ClusterShared*>(raw_shared);
    const auto cluster = cooperative_groups::this_cluster();
    cluster.barrier_arrive();
    const int block = blockIdx.x, id = block * kThreads + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned key[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) key[i] = id + i * kClusterBlocks * kThreads < n ? x[id + i * kClusterBlocks * kThreads] : ~0u;

    const Output out(y, n);
    const auto window_of = [&](int b, ClusterShared& s) {
        return msbench::KeyWindow{out.first_of(b, kClusterBlocks), out.first_of(b + 1, kClusterBlocks), s.marks};
    };
    const msbench::KeyWindow own = window_of(block, shared);
    own.clear();
    msbench::clear_shared(shared.histogram, sizeof shared.histogram);
    __syncthreads();
    unsigned* const counters = reinterpret_cast<unsigned*>(shared.histogram);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const unsigned place = place_of(key[i]), one = place & 1 ? 0x10000u : 1u;
        if (__all_sync(~0u, key[i] == __shfl_sync(~0u, key[i], 0))) {
            if (threadIdx.x % 32 == 0 && key[i] != ~0u) atomicAdd(&counters[place >> 1], 32 * one);
        } else if (key[i] != ~0u) {
            atomicAdd(&counters[place >> 1], one);
        }
    }
    __syncthreads();
    unsigned mask = 0;  // of the warp's 32 segments, those in which this block has counted something
#pragma unroll 8
    for (int i = 0; i < 32; ++i) {
        mask |= __any_sync(~0u, counters[(warp * 32 + i) * 32 + lane] != 0) ? 1u << i : 0;
    }
    cluster.barrier_wait();  // all blocks run
    if (lane < kClusterBlocks) *cluster.map_shared_rank(&shared.marked[warp][block], lane) = mask;
    cluster.sync();

    const int segment = threadIdx.x / 16 * kClusterBlocks + block, first = segment * msbench::kSegmentKeys + 4 * (threadIdx.x % 16);
    unsigned count[4] = {};
#pragma unroll
    for (int i = 0; i < kClusterBlocks; ++i) {
        if (shared.marked[segment / 32][i] >> segment % 32 & 1) {
            const uint2 part = *reinterpret_cast<const uint2*>(cluster.map_shared_rank(shared.histogram, i) + first);
            count[0] += part.x & 0xffff, count[1] += part.x >> 16, count[2] += part.y & 0xffff, count[3] += part.y >> 16;
        }
    }
    const unsigned mine = count[0] + count[1] + count[2] + count[3];
    unsigned through = mine;
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2) {
        const unsigned before = __shfl_up_sync(~0u, through, distance, 16);
        if (threadIdx.x % 16 >= distance) through += before;
    }
    const unsigned total = __shfl_sync(~0u, through, 15, 16);
    *cluster.map_shared_rank(&shared.of_segment[segment], threadIdx.x % 16) = total;
    cluster.sync();

    const unsigned ahead = msbench::block_scan(shared.of_segment[threadIdx.x]).before;
    __syncthreads();
    shared.of_segment[threadIdx.x] = ahead;
    __syncthreads();
    unsigned start = shared.of_segment[segment] + through - mine;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int64_t from = int64_t(start) + out.head, to = from + count[i];
        if (count[i] > 0) {
            const int64_t packets = out.first_of(1, 1) / kPacket;
            int b = int(from / kPacket * kClusterBlocks / packets);  // the block, or the one before it
            for (; b < kClusterBlocks && out.first_of(b, kClusterBlocks) < to; ++b) {
                window_of(b, *cluster.map_shared_rank(&shared, b)).mark(from, count[i], first + i);
            }
        }
        start += count[i];
    }
    cluster.sync();
    msbench::for_each_run_packet(own, [&](int64_t position, uint4 keys) { out.put(position, keys); });
}

__global__ void __launch_bounds__(kThreads) whole_grid(const uint16_t* x, uint16_t* y, int64_t n, msbench::KeyCounts* work) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    unsigned* const histogram = reinterpret_cast<unsigned*>(raw_shared);
    const auto grid = cooperative_groups::this_grid();
    msbench::count_part(x, n, [](uint16_t element) { return unsigned(element); }, histogram, work);
    msbench::publish_counts(histogram, work);
    grid.sync();
    msbench::add_up_counts(work, place_of);
    grid.sync();
    msbench::write_counted(Output(y, n), work, *reinterpret_cast<msbench::CountedRuns*>(raw_shared));
}

}  // namespace

extern "C" size_t sorting_workspace(int64_t N) {
    return N > kOneCluster ? sizeof(msbench::KeyCounts) : 0;
}

extern "C" cudaError_t sorting(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    if (N <= kFew) {
        rank_all<kFew><<<unsigned(msbench::ceil_div(N, 32)), kThreads, 0, stream>>>(x, y, int(N));
        return cudaGetLastError();
    }
    const auto from = reinterpret_cast<const uint16_t*>(x);
    const auto to = reinterpret_cast<uint16_t*>(y);
    const auto search = [&](auto kernel, int own) {
        return msbench::Launch(unsigned(msbench::ceil_div(N, own)), kThreads, stream)(kernel, from, to, int(N));
    };
    if (N <= 4096) return search(rank_by_search<32, uint16_t>, 32);
    if (N <= 8192) return search(rank_by_search<64, uint16_t>, 64);
    if (N <= kSearched) return search(rank_by_search<128, uint16_t>, 128);
    if (N <= kOneCluster) {
        msbench::Launch launch(kClusterBlocks, kThreads, stream);
        return msbench::launch_clusters(kClusterBlocks, launch.shared(sizeof(ClusterShared)), one_cluster, from, to, int(N));
    }
    msbench::Launch launch(msbench::kCountBlocks, kThreads, stream);
    return launch.shared(sizeof(msbench::CountedRuns)).cooperative()(whole_grid, from, to, N, static_cast<msbench::KeyCounts*>(workspace));
}
