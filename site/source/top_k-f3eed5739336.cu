// top_k: a bound from group maxima, one read of x, one launch.
//
// Idea: x is cut into about 512 groups. A pivot that at least k of the groups' maxima reach is a bound: k elements reach it, and
// not many more (k = 128: about 150 to 200), wherever in x they lie. These candidates are ranked by comparing all with all. A key
// is the ordered value, then ~index, so that all keys differ and the rule for ties needs no code of its own.
//
// Plans:
//   rank_all        to 1024 elements: a block finds the places of 32 elements among all; blocks do not talk.
//   rank_by_search  to 4096: the same, by looking all elements up among 32 in order.
//   in_registers    to 16384, if k <= 64: each of 16 blocks has all of x in registers and finds all candidates, and the places of a
//                   sixteenth of them; blocks do not talk.
//   one cluster     to 512 KiB: 16 blocks exchange maxima, then candidates, through distributed shared memory.
//   grid            beyond: 132 blocks, cooperative, exchange through L2.
// The last two are one kernel. A thread keeps the best of its packets, and reads the others again only if the second best reaches
// the bound, too. Neighbouring runs of 32 packets go to different blocks and neighbouring lanes to different groups, so that sorted
// inputs spread like others. Where a block finds more than the few slots that all blocks compare, it keeps its k largest (a pivot
// search in shared memory), and block 0 ranks what all have.
//
// Bound: N elements read, one launch and two barriers.
// Measured (cold, fp32 and bf16): H200, 2026-11-26, an empty kernel is 4.3 us: k = 64, 1024 elements 6.1, 4096 6.8 and 7.1, 16384 9.7 and 9.8;
// k = 128, 16384 10.2 and 10.7, 65536 10.6 and 10.7. 2026-11-23: 2^24 27 and 22 us, of which reading takes 15 and 11.
// Lost: comparing with all at 4096, 8.1 and 8.6; in_registers there, 8.1 and 8.3, and at 16384 with k = 128, 11.0 and 11.2; one block for 16,
// 0.3 us more, 1.2 with k = 128; groups of two threads, 0.3 us more.

#include "msbench.cuh"
#include "msbench_cluster.cuh"
#include "msbench_rank_by_search.cuh"
#include "msbench_select.cuh"
#include "msbench_top_entries.cuh"

namespace {

namespace cg = cooperative_groups;

using msbench::entry_key, msbench::Key, msbench::ordered_value, msbench::packet_max;
using Packet = msbench::Packet<scalar_t>;
using Source = msbench::PacketSource<scalar_t>;
using Output = msbench::TopOutput<scalar_t>;

constexpr int kThreads = msbench::kSelectThreads, kWarps = kThreads / 32, kMaxK = 128;
constexpr int kPacket = Packet::kSize, kUnroll = 4;
constexpr int64_t kFew = 4096, kInRegisters = 16384, kFewWanted = 64, kOneClusterBytes = 512 << 10;
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

__global__ void __launch_bounds__(kThreads) rank_all(Output out, int n) {
    __shared__ alignas(16) unsigned keys[kThreads];
    const unsigned t = threadIdx.x;
    keys[t] = t < n ? ~ordered_value(msbench::to_float(out.x[t])) : msbench::kMissingKey;  // the largest first
    const unsigned place = msbench::rank_among(keys, n), index = blockIdx.x * 32 + t;
    if (t < 32 && index < n) out.put(entry_key(~keys[index], index), place);
}

struct Keys {  // of rank_by_search: the largest first
    static __device__ unsigned key(scalar_t element) { return ~ordered_value(msbench::to_float(element)); }
};

struct PutPlaced {
    static constexpr bool kIndices = true;
    Output out;
    __device__ void put(unsigned key, int index, int place) const { out.put(entry_key(~key, index), place); }
};

// Every block has all of x in its registers: a thread's packets are kThreads apart, and kTogether threads are a group.
constexpr int kHeld = int(kInRegisters) / kPacket / kThreads, kTogether = 4, kThreadGroups = kThreads / kTogether, kShares = 16;
static_assert(kFewWanted <= kThreadGroups);

struct InRegisters {
    Key group[kThreadGroups], list[kHeld * kThreads * kPacket];
    int count;
};

__global__ void __launch_bounds__(kThreads, 1) in_registers(Source source, Output out) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    auto& [group, list, count] = *reinterpret_cast<InRegisters*>(raw_shared);
    const int t = threadIdx.x, lane = t % 32;
    Packet raw[kHeld];
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
        if (t + u * kThreads < source.packets) raw[u] = source.load(t + u * kThreads);
    }
    if (t == 0) count = 0;
    Key own[kHeld], most = 0;
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
        own[u] = t + u * kThreads < source.packets ? entry_key(packet_max(raw[u]), t + u * kThreads) : 0;
        most = max(most, own[u]);
    }
#pragma unroll
    for (int d = 32 / kTogether; d < 32; d *= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
    if (lane < 32 / kTogether) group[t / 32 * (32 / kTogether) + lane] = most;
    __syncthreads();
    const Key least = msbench::pivot_bound(group, kThreadGroups, out.k);

    unsigned hits = 0;
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
        if (own[u] == 0 || own[u] < least) continue;
        hits |= msbench::elements_above(source, raw[u], t + u * kThreads, least) << (u * kPacket);
    }
    msbench::append_hits(source, raw, t, kThreads, hits, list, &count);
    __syncthreads();
    if (count > kRanked) msbench::shrink(list, &count, out.k, kRanked);
    out.rank<kShares>(list, count, list, count, blockIdx.x);
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
    select(Source source, Output out, int steps, Workspace* work) {
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
    Packet best_raw[1];
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
                best = most, best_packet = packet, best_raw[0] = raw[u];
            } else if (most > second) {
                second = most, second_packet = packet;
            }
        }
    }
    const Key own = best ? entry_key(best, best_packet) : 0;

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
    const Key least = msbench::pivot_bound(board.group, kAllGroups, out.k);

    const bool hit = own != 0 && own >= least, more = hit && second != 0 && entry_key(second, second_packet) >= least;
    const unsigned found_here = hit ? msbench::elements_above(source, best_raw[0], best_packet, least) : 0;
    msbench::append_hits(source, best_raw, best_packet, 0, found_here, list, &count);
    for (unsigned hits = __ballot_sync(~0u, more); hits; hits &= hits - 1) {  // a warp reads what one of its lanes has read
        const int who = __ffs(hits) - 1;
        const unsigned known = __shfl_sync(~0u, best_packet, who);
        for (int step = lane; step - lane < steps; step += 32) {
            const unsigned packet = start - lane + who + step * kStride;
            const bool wanted = step < steps && packet < source.packets && packet != known;
            Packet raw;
            if (wanted) raw = source.load(packet);
            msbench::append_packet(source, raw, wanted, packet, least, 0, list, &count, P::kList);
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
            msbench::append_packet(source, raw, wanted, packet, least, least_entry, list, &count, P::kList);
            __syncthreads();
            if (count > P::kList - kThreads * kPacket) least_entry = max(least_entry, msbench::shrink(list, &count, out.k, kMaxK));
        }
    }
    msbench::shrink(list, &count, out.k, kMaxK);
    const int found = count;
    if (found > P::kSlots && threadIdx.x < found) work->list[block][threadIdx.x] = list[threadIdx.x];
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
        out.rank(list, found, board.slot, kAllSlots);
    } else if (block == 0) {
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        for (int other = warp; other < P::kBlocks; other += kWarps) {
            const int there = seen.found[other];
            const Key* const keys = there > P::kSlots ? work->list[other] : seen.slot + other * P::kSlots;
            for (int i = lane; i < kMaxK; i += 32) msbench::append(i < there, i < there ? keys[i] : 0, list, &count, P::kList);
        }
        msbench::shrink(list, &count, out.k, kRanked);
        out.rank(list, count, list, count);
    }
}

}  // namespace

extern "C" size_t top_k_workspace(int64_t N, int64_t) {
    return N > kFew ? sizeof(Workspace) : 0;
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k, void* workspace, size_t,
                             cudaStream_t stream) {
    const Output out = {x, values, indices, int(k)};
    if (N <= kThreads) return msbench::Launch(unsigned(msbench::ceil_div(N, 32)), kThreads, stream)(rank_all, out, int(N));
    if (N <= kFew) {
        constexpr int kOwn = msbench::search::kFewest;
        const auto kernel = msbench::search::rank_by_search<Keys, kOwn, scalar_t, PutPlaced>;
        return msbench::Launch(unsigned(msbench::ceil_div(N, kOwn)), kThreads, stream)(kernel, x, PutPlaced{out}, int(N));
    }
    Workspace* const work = static_cast<Workspace*>(workspace);
    const Source source(x, N);
    if (k <= kFewWanted && source.packets <= kHeld * kThreads) {
        return msbench::Launch(kShares, kThreads, stream).shared(sizeof(InRegisters))(in_registers, source, out);
    }
    const bool cluster = N * int64_t(sizeof(scalar_t)) <= kOneClusterBytes;
    const int blocks = cluster ? Plan<true>::kBlocks : Plan<false>::kBlocks;
    const int steps = int(msbench::ceil_div(source.packets, blocks * kThreads));
    msbench::Launch launch(blocks, kThreads, stream);
    launch.shared(cluster ? sizeof(Shared<true>) : sizeof(Shared<false>));
    if (cluster) return msbench::launch_clusters(blocks, launch, select<true>, source, out, steps, work);
    return launch.cooperative()(select<false>, source, out, steps, work);
}
