// top_k: a bound from group maxima, one read of x, one launch.
//
// Idea: x is cut into about 512 groups. A pivot that at least k of the groups' maxima reach is a bound: k elements reach it, and
// not many more (k = 128: about 150 to 200), wherever in x they lie. These candidates are ranked by comparing all with all. A key
// is the ordered value, then ~index, so that all keys differ and the rule for ties needs no code of its own.
//
// Plans:
//   rank_all      to 4096 elements: a block finds the places of 32 elements among all; blocks do not talk.
//   one cluster   to 512 KiB: 16 blocks exchange maxima, then candidates, through distributed shared memory.
//   grid          beyond: 132 blocks, cooperative, exchange through L2.
// The last two are one kernel. A thread keeps the best of its packets, and reads the others again only if the second best reaches
// the bound, too. Neighbouring runs of 32 packets go to different blocks and neighbouring lanes to different groups, so that sorted
// inputs spread like others. Where a block finds more than the few slots that all blocks compare, it keeps its k largest (a pivot
// search in shared memory), and block 0 ranks what all have.
//
// Bound: N elements read, one launch and two barriers.
// Measured (H200, 2026-11-23, cold, k = 128, fp32 and bf16): 1024 elements 5.0, 4096 7.0 us (half of what exceeds a launch is comparing),
// 16384 and 65536 9.0 and 9.5 us, 2^24 27 and 22 us, of which reading takes 15 and 11.

#include "msbench.cuh"
#include "msbench_cluster.cuh"
#include "msbench_ordered_keys.cuh"
#include "msbench_scan.cuh"
#include "msbench_select.cuh"

namespace {

namespace cg = cooperative_groups;

using Key = msbench::Key;  // ordered value, then ~index
using Packet = msbench::Packet<scalar_t>;

constexpr int kThreads = msbench::kSelectThreads, kWarps = kThreads / 32, kMaxK = 128;
constexpr int kPacket = Packet::kSize, kUnroll = 4;
constexpr int64_t kFew = 4096, kOneClusterBytes = 512 << 10;
constexpr int kMostBlocks = 132, kMostGroups = 528, kMostSlots = 2112, kRanked = 512;

template <bool kCluster>
struct Plan {
    static constexpr int kBlocks = kCluster ? 16 : kMostBlocks;
    static constexpr int kGroups = kCluster ? 32 : 4;          // of a block: lanes that are equal modulo that
    static constexpr int kSlots = kCluster ? 32 : 16;          // candidates of a block that all blocks see
    static constexpr int kCopies = kCluster ? kBlocks : 1;     // of the board: one in every block, or one in global memory
    static constexpr int kList = (kCluster ? 12 : 20) * 1024;  // candidates of a block
    static_assert(kBlocks * kGroups <= kMostGroups && kBlocks * kSlots <= kMostSlots);
    static_assert(kList >= kBlocks * kMaxK && kList >= kMaxK + kThreads * kPacket);
};

struct Board {  // what all blocks know
    Key group[kMostGroups], slot[kMostSlots];
    int found[kMostBlocks];
};

struct Workspace {
    Board board;
    Key list[kMostBlocks][kMaxK];
};

template <bool kCluster>
struct Shared {
    Board board;
    Key list[Plan<kCluster>::kList];
    int count;
};

__device__ unsigned ordered(float x) {  // NaNs equal, zeros equal
    return isnan(x) ? 0xffffffffu : msbench::ordered_key(x + 0.0f);
}

__device__ Key key_of(unsigned value, unsigned index) {
    return Key(value) << 32 | unsigned(~index);
}

// Keys hold no sign of a zero: it is looked up where it lies.
__device__ void put(Key key, unsigned place, const scalar_t* x, int k, scalar_t* values, int32_t* indices) {
    if (int(place) >= k) return;
    const unsigned index = ~unsigned(key);
    const float value = msbench::value_of_ordered(unsigned(key >> 32));
    values[place] = value == 0.0f ? x[index] : msbench::from_float<scalar_t>(value);
    indices[place] = int32_t(index);
}

template <int kMost>
__global__ void __launch_bounds__(kThreads) rank_all(const scalar_t* x, scalar_t* values, int32_t* indices, int n, int k) {
    __shared__ alignas(16) unsigned keys[kMost];
    scalar_t raw[kMost / kThreads];
#pragma unroll
    for (int i = 0; i < kMost / kThreads; ++i) {
        if (i * kThreads + threadIdx.x < n) raw[i] = x[i * kThreads + threadIdx.x];
    }
#pragma unroll
    for (int i = 0; i < kMost / kThreads; ++i) {
        const int at = i * kThreads + threadIdx.x;
        keys[at] = at < n ? ~ordered(msbench::to_float(raw[i])) : msbench::kMissingKey;  // the largest first
    }
    const unsigned place = msbench::rank_among(keys, n), index = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.x < 32 && index < n) put(key_of(~keys[index], index), place, x, k, values, indices);
}

// The places of keys warp, warp + 32, … of a list among all keys of another.
__device__ void rank(const Key* list, int count, const Key* all, int total, const scalar_t* x, int k, scalar_t* values,
                     int32_t* indices) {
    const int lane = threadIdx.x % 32;
    for (int c = threadIdx.x / 32; c < count; c += kWarps) {
        const Key key = list[c];
        unsigned before = 0;
#pragma unroll 8
        for (int i = lane; i < total; i += 32) before += all[i] > key;
        before = __reduce_add_sync(~0u, before);
        if (lane == 0) put(key, before, x, k, values, indices);
    }
}

struct Source {  // x as packets at multiples of 16 bytes; the first and the last may be partial
    const scalar_t* x;
    int64_t n;
    int head;  // elements that the first packet lacks
    unsigned packets;

    __device__ Packet load(unsigned packet) const {
        const int64_t first = int64_t(packet) * kPacket - head;
        if (first >= 0 && first + kPacket <= n) {
            const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(x + first));
            return reinterpret_cast<const Packet&>(raw);
        }
        Packet some;
        for (int e = 0; e < kPacket; ++e) {
            some.lane[e] = first + e >= 0 && first + e < n ? x[first + e] : msbench::from_float<scalar_t>(-INFINITY);
        }
        return some;
    }
};

__device__ unsigned packet_max(const Packet& packet) {
#if MSBENCH_BF16
    const auto pair = reinterpret_cast<const __nv_bfloat162*>(packet.lane);
    const __nv_bfloat162 most = __hmax2_nan(__hmax2_nan(pair[0], pair[1]), __hmax2_nan(pair[2], pair[3]));
    return ordered(__bfloat162float(__hmax_nan(most.x, most.y)));
#else
    return max(max(ordered(packet.lane[0]), ordered(packet.lane[1])), max(ordered(packet.lane[2]), ordered(packet.lane[3])));
#endif
}

// Appends the elements of a packet that reach both bounds: of (value, packet) and of (value, index). Called by whole warps.
__device__ void append_packet(const Source& source, const Packet& raw, bool wanted, unsigned packet, Key least, Key least_entry,
                              Key* list, int* count, int room) {
#pragma unroll
    for (int e = 0; e < kPacket; ++e) {
        const int64_t index = int64_t(packet) * kPacket - source.head + e;
        const unsigned value = wanted ? ordered(msbench::to_float(raw.lane[e])) : 0;
        const Key entry = key_of(value, unsigned(index));
        const bool there = wanted && index >= 0 && index < source.n;
        msbench::append(there && key_of(value, packet) >= least && entry >= least_entry, entry, list, count, room);
    }
}

template <bool kCluster>
__device__ Board& board_of(int copy, Board& own, Workspace* work) {
    if constexpr (kCluster) return *cg::this_cluster().map_shared_rank(&own, copy);
    else return work->board;
}

template <bool kCluster>
__device__ void all_blocks_meet() {
    if constexpr (kCluster) cg::this_cluster().sync();
    else cg::this_grid().sync();
}

template <bool kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    select(Source source, scalar_t* values, int32_t* indices, int k, int steps, Workspace* work) {
    using P = Plan<kCluster>;
    extern __shared__ __align__(16) unsigned char raw_shared[];
    Shared<kCluster>& shared = *reinterpret_cast<Shared<kCluster>*>(raw_shared);
    auto& [board, list, count] = shared;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, block = blockIdx.x;
    if constexpr (kCluster) cg::this_cluster().barrier_arrive();
    if (threadIdx.x == 0) count = 0;

    constexpr unsigned kStride = P::kBlocks * kThreads;
    const unsigned start = (warp * P::kBlocks + block) * 32 + lane;
    unsigned best = 0, best_packet = 0, second = 0, second_packet = 0;  // the two packets with the largest elements
    Packet best_raw;
    for (int step = 0; step < steps; step += kUnroll) {
        Packet raw[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (start + (step + u) * kStride < source.packets) raw[u] = source.load(start + (step + u) * kStride);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const unsigned packet = start + (step + u) * kStride;
            const unsigned most = packet < source.packets ? packet_max(raw[u]) : 0;
            if (most > best) {
                second = best, second_packet = best_packet;
                best = most, best_packet = packet, best_raw = raw[u];
            } else if (most > second) {
                second = most, second_packet = packet;
            }
        }
    }
    const Key own = best ? key_of(best, best_packet) : 0;

    Key most = own;
#pragma unroll
    for (int d = P::kGroups; d < 32; d *= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
    if (lane < P::kGroups) list[lane * (kWarps + 1) + warp] = most;
    __syncthreads();
    if constexpr (kCluster) cg::this_cluster().barrier_wait();  // all blocks run
    if (warp < P::kGroups) {
        most = msbench::warp_max(list[warp * (kWarps + 1) + lane]);
        if (lane < P::kCopies) board_of<kCluster>(lane, board, work).group[block * P::kGroups + warp] = most;
    }
    all_blocks_meet<kCluster>();
    constexpr int kAllGroups = P::kBlocks * P::kGroups, kAllSlots = P::kBlocks * P::kSlots;
    if constexpr (!kCluster) {
        if (threadIdx.x < kAllGroups) board.group[threadIdx.x] = work->board.group[threadIdx.x];
        __syncthreads();
    }
    const Key least = msbench::pivot_bound(board.group, kAllGroups, k);

    const bool hit = own != 0 && own >= least, more = hit && second != 0 && key_of(second, second_packet) >= least;
    if (__any_sync(~0u, hit)) append_packet(source, best_raw, hit, best_packet, least, 0, list, &count, P::kList);
    for (unsigned hits = __ballot_sync(~0u, more); hits; hits &= hits - 1) {  // a warp reads what one of its lanes has read
        const int who = __ffs(hits) - 1;
        const unsigned known = __shfl_sync(~0u, best_packet, who);
        for (int step = lane; step - lane < steps; step += 32) {
            const unsigned packet = start - lane + who + step * kStride;
            const bool wanted = step < steps && packet < source.packets && packet != known;
            Packet raw;
            if (wanted) raw = source.load(packet);
            append_packet(source, raw, wanted, packet, least, 0, list, &count, P::kList);
        }
    }
    __syncthreads();
    if (count > P::kList) {  // all packets in turn, and the largest k so far are kept
        Key least_entry = 0;
        __syncthreads();
        if (threadIdx.x == 0) count = 0;
        for (int step = 0; step < steps; ++step) {
            const unsigned packet = start + step * kStride;
            const bool wanted = hit && packet < source.packets;
            Packet raw;
            if (wanted) raw = source.load(packet);
            __syncthreads();
            append_packet(source, raw, wanted, packet, least, least_entry, list, &count, P::kList);
            __syncthreads();
            if (count > P::kList - kThreads * kPacket) least_entry = max(least_entry, msbench::shrink(list, &count, k, kMaxK));
        }
    }
    msbench::shrink(list, &count, k, kMaxK);
    const int found = count;
    if (threadIdx.x < found) work->list[block][threadIdx.x] = list[threadIdx.x];
    if (warp < P::kCopies && lane < P::kSlots) {
        board_of<kCluster>(warp, board, work).slot[block * P::kSlots + lane] = lane < found ? list[lane] : 0;
    }
    if (threadIdx.x < P::kCopies) board_of<kCluster>(threadIdx.x, board, work).found[block] = found;
    all_blocks_meet<kCluster>();

    const Board& seen = kCluster ? board : work->board;
    const bool few = !__syncthreads_or(threadIdx.x < P::kBlocks && seen.found[threadIdx.x] > P::kSlots);
    if (few) {  // every block finds the places of its own
        if (found == 0) return;
        if constexpr (!kCluster) {
            for (int i = threadIdx.x; i < kAllSlots; i += kThreads) board.slot[i] = work->board.slot[i];
            __syncthreads();
        }
        rank(list, found, board.slot, kAllSlots, source.x, k, values, indices);
    } else if (block == 0) {
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        for (int other = warp; other < P::kBlocks; other += kWarps) {
            for (int i = lane; i < kMaxK; i += 32) msbench::append(i < seen.found[other], work->list[other][i], list, &count, P::kList);
        }
        msbench::shrink(list, &count, k, kRanked);
        rank(list, count, list, count, source.x, k, values, indices);
    }
}

}  // namespace

extern "C" size_t top_k_workspace(int64_t N, int64_t) {
    return N > kFew ? sizeof(Workspace) : 0;
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k, void* workspace, size_t,
                             cudaStream_t stream) {
    if (N <= kFew) {
        const auto kernel = N <= kThreads ? rank_all<kThreads> : rank_all<kFew>;
        kernel<<<unsigned(msbench::ceil_div(N, 32)), kThreads, 0, stream>>>(x, values, indices, int(N), int(k));
        return cudaGetLastError();
    }
    Workspace* const work = static_cast<Workspace*>(workspace);
    const int head = int(reinterpret_cast<uintptr_t>(x) % 16 / sizeof(scalar_t));
    const Source source = {x, N, head, unsigned(msbench::ceil_div(head + N, kPacket))};
    const bool cluster = N * int64_t(sizeof(scalar_t)) <= kOneClusterBytes;
    const int blocks = cluster ? Plan<true>::kBlocks : Plan<false>::kBlocks;
    const int steps = int(msbench::ceil_div(source.packets, blocks * kThreads));
    msbench::Launch launch(blocks, kThreads, stream);
    launch.shared(cluster ? sizeof(Shared<true>) : sizeof(Shared<false>));
    if (cluster) return msbench::launch_clusters(blocks, launch, select<true>, source, values, indices, int(k), steps, work);
    return launch.cooperative()(select<false>, source, values, indices, int(k), steps, work);
}
