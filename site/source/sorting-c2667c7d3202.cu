// sorting, bf16: there are 65536 keys and no payload, so sorting is counting.
//
// Plans:
//   rank_all        to 1024 elements: a block finds the places of 32 elements by comparing them with all; blocks do not talk.
//   rank_by_search  to 8192: the same with 32 or 64 elements in order, among which all others are looked up.
//   count_all       to 65536: each of 32 blocks counts all keys in shared memory and writes its part of y; blocks do not talk.
//   one_cluster     to 2^17: each of 16 blocks counts its part in shared memory; segments of 64 keys are dealt out to the blocks,
//                   which add up what occurs through distributed shared memory and mark where runs start in the blocks that write them.
//   whole_grid      beyond: the same by 132 blocks through L2 (cooperative, two grid barriers), where only segments of 64 keys that
//                   occur are moved.
// The last three write an equal part of y a block, whatever the keys: a running maximum over the marks of the runs' starts.
//
// Bound: 4 bytes an element and one launch. 2^24 keys: 15.7 us of bytes, and the additions to shared memory take about as long.
// Measured (H200, cold): 2026-11-23: 1024 5.0, 2^24 43 us. 2026-11-24: 4096 5.7, 8192 7.3 us. H100, 2026-11-26: count_all at 16384 10.6,
// 32768 11.5, 65536 13.8 us, where few keys occur 12.9, 16.5, 24.3; one_cluster at 32768 15.9, 65536 16.1 us, of all magnitudes 21.4 and
// 22.1.
// Lost: comparing with all at 4096, 7.1; the cluster at 8192 and 16384, 13.1, and at 4096, 13.4; fetching all counters of the cluster's
// blocks, 16.6 at 65536; the grid there, 16.2 (H200). Searching at 16384, 11.6; count_all at 4096 and 8192, 10.1 and 10.6 for 7.4 and 9.0:
// clearing, scanning and marking take 6 us whatever the keys (H100).

#include "msbench_cluster.cuh"
#include "msbench_count_keys.cuh"
#include "msbench_key_runs.cuh"
#include "msbench_ordered_keys.cuh"
#include "msbench_rank_by_search.cuh"

namespace {

constexpr int kThreads = 1024;
constexpr int kFew = kThreads, kSearched = 8192, kMostCounted = 65536, kCounting = 32;  // kCounting: blocks
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

struct Keys {
    static __device__ unsigned key(uint16_t bits) { return place_of(bits); }
    static __device__ uint16_t element(unsigned key) { return uint16_t(bits_of(key)); }
};

__global__ void __launch_bounds__(kThreads) rank_all(const uint16_t* x, uint16_t* y, int n) {
    __shared__ alignas(16) unsigned keys[kFew];
    keys[threadIdx.x] = threadIdx.x < n ? Keys::key(x[threadIdx.x]) : msbench::kMissingKey;
    const unsigned place = msbench::rank_among(keys, n), index = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.x < 32 && index < n) y[place] = Keys::element(keys[index]);
}

struct AllCounted {
    alignas(16) uint16_t counters[msbench::kKeys];
    alignas(16) uint16_t marks[kMostCounted / kCounting + 2 * msbench::kRunStep];
    int2 listed[msbench::kSegments];
    int count;
};

// Every block counts all keys, and writes its part of y.
__global__ void __launch_bounds__(kThreads, 1) count_all(const uint16_t* x, uint16_t* y, int n) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    AllCounted& shared = *reinterpret_cast<AllCounted*>(raw_shared);
    constexpr int kBatch = 4, kRow = kThreads * kPacket;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, skip = int(reinterpret_cast<uintptr_t>(x) % 16 / 2);
    uint4 raw[kBatch];
    const auto fetch = [&](int from) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int at = from + i * kRow + t * kPacket - skip;
            if (at >= 0 && at + kPacket <= n) raw[i] = __ldg(reinterpret_cast<const uint4*>(x + at));
        }
    };
    fetch(0);
    const Output out(y, n);
    const msbench::KeyWindow own = {out.first_of(blockIdx.x, gridDim.x), out.first_of(blockIdx.x + 1, gridDim.x), shared.marks};
    own.clear();
    msbench::clear_shared(shared.counters, sizeof shared.counters);
    if (t == 0) shared.count = 0;
    __syncthreads();
    unsigned* const counters = reinterpret_cast<unsigned*>(shared.counters);
    const auto add = [&](unsigned place, unsigned count) { atomicAdd(&counters[place >> 1], place & 1 ? count << 16 : count); };
    for (int from = 0; from < n + skip; from += kBatch * kRow) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int at = from + i * kRow + t * kPacket - skip;
            if (at >= 0 && at + kPacket <= n) {
                const unsigned first = raw[i].x, twice = __byte_perm(first, 0, 0x1010);
                if (((raw[i].x ^ twice) | (raw[i].y ^ twice) | (raw[i].z ^ twice) | (raw[i].w ^ twice)) == 0) {
                    add(place_of(first & 0xffff), kPacket);
                    continue;
                }
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    const unsigned two = reinterpret_cast<const unsigned*>(&raw[i])[w];
                    add(place_of(two & 0xffff), 1);
                    add(place_of(two >> 16), 1);
                }
            } else {
                for (int e = 0; e < kPacket; ++e) {
                    if (at + e >= 0 && at + e < n) add(place_of(x[at + e]), 1);
                }
            }
        }
        fetch(from + kBatch * kRow);
    }
    __syncthreads();
    unsigned sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // in an order without bank conflicts
        const uint4 four = reinterpret_cast<const uint4*>(shared.counters)[t * 8 + (i + lane) % 8];
        sum += (four.x & 0xffff) + (four.x >> 16) + (four.y & 0xffff) + (four.y >> 16);
        sum += (four.z & 0xffff) + (four.z >> 16) + (four.w & 0xffff) + (four.w >> 16);
    }
    const auto scan = msbench::block_scan(sum);
    if (int(scan.total) != n) {  // a counter has overflowed: all keys are alike
        if (t == 0) own.mark(out.head, n, place_of(x[0]));
    } else {
        const int64_t start = int64_t(scan.before) + out.head;
        const bool here = sum > 0 && start < own.high && start + sum > own.low;
        msbench::append(here, make_int2(t, int(scan.before)), shared.listed, &shared.count, msbench::kSegments);
        __syncthreads();
        for (int next = warp; next < shared.count; next += msbench::kCountWarps) {
            const int2 segment = shared.listed[next];
            const unsigned two = counters[segment.x * 32 + lane], low = two & 0xffff, high = two >> 16;
            const int64_t at = int64_t(segment.y) + out.head + msbench::warp_inclusive(low + high) - low - high;
            const unsigned key = segment.x * msbench::kSegmentKeys + 2 * lane;
            if (low > 0) own.mark(at, low, key);
            if (high > 0) own.mark(at + low, high, key + 1);
        }
    }
    __syncthreads();
    msbench::for_each_run_packet(own, [&](int64_t position, uint4 keys) { out.put(position, keys); });
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
    const auto from = reinterpret_cast<const uint16_t*>(x);
    const auto to = reinterpret_cast<uint16_t*>(y);
    if (N <= kFew) return msbench::Launch(unsigned(msbench::ceil_div(N, 32)), kThreads, stream)(rank_all, from, to, int(N));
    if (N <= kSearched) return msbench::sort_by_search<Keys, kSearched>(from, to, int(N), stream);
    if (N <= kMostCounted) {
        return msbench::Launch(kCounting, kThreads, stream).shared(sizeof(AllCounted))(count_all, from, to, int(N));
    }
    if (N <= kOneCluster) {
        msbench::Launch launch(kClusterBlocks, kThreads, stream);
        return msbench::launch_clusters(kClusterBlocks, launch.shared(sizeof(ClusterShared)), one_cluster, from, to, int(N));
    }
    msbench::Launch launch(msbench::kCountBlocks, kThreads, stream);
    return launch.shared(sizeof(msbench::CountedRuns)).cooperative()(whole_grid, from, to, N, static_cast<msbench::KeyCounts*>(workspace));
}
