// Inclusive prefix sum, fp32 sums in both precisions.
//
// Idea: a warp reads a run of 16-byte packets, a lane every 32nd; sums of packets are scanned across the warp by shuffles, warps
// through shared memory, blocks through what they publish. Packets stay in registers as they were read, and are summed again when
// they are written.
//
// Plans:
//   one_block    to 1024 packets.
//   one_cluster  to 8192 packets: 16 blocks exchange their sums through distributed shared memory.
//   by_mail      to 262144 packets: each of up to 128 blocks sends its sum to all blocks behind it (msbench_mail_ahead.cuh), so that what is
//                waited for is one trip through L2, however many blocks there are.
//   wave_scan    beyond: blocks that stay publish sums of tiles some tiles before they need those of others, so that there is no
//                chain of prefixes, no launch that clears states, and loads are under way at all times: 154 us for 2^26 in fp32, 83 in bf16.
// x and y may miss a 16-byte boundary by the same number of elements; where they miss it by different ones, all goes by elements, and
//   look_back    takes what by_mail leaves (Merrill and Garland 2016): a tile publishes its sum, then adds up what the tiles before it have
//                published, 32 at a time, back to one that knows its whole prefix, and publishes its own. State and value share a
//                64-bit word, so no fence is needed. The order of these sums, and so the last bits, may differ from run to run.
//
// Bound: each element read once and written once, 125 us for 2^26 in fp32, 63 in bf16.
// Measured (H200, 2026-11-26, cold, an empty kernel is 4.25): 2^18 7.6 us in fp32 and 7.0 in bf16, where looking back behind a memset took 9.2 and
// 8.5; 1000003 9.3 and 7.9, by waves 10.8 and 9.9; 2^16 in fp32 7.2, by a cluster 7.3, which wins below.
// Lost (H200, November 2026): waves of one tile a multiprocessor, in which all blocks wait for all sums: 342 us for 2^26 in fp32, since
// each wave costs what its slowest block does; looking back at all sizes, 182 us, and 124 in bf16, where a loop over a packet's elements
// put every packet on the stack (without it, with tickets and a block fewer a multiprocessor, 110); looking back at 128 tiles at a
// time, 205 us, where 32 take 181; a cluster with four packets a thread, 9.6 us at 2^18 where look-back took 7.8.

#include "msbench_cluster.cuh"
#include "msbench_mail_ahead.cuh"
#include "msbench_packets.cuh"
#include "msbench_scan.cuh"
#include "msbench_wave_scan.cuh"

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int kThreads = 1024, kClusterBlocks = 16, kMailThreads = 512;
constexpr int64_t kClusterPackets = 8192;
constexpr int kTileThreads = sizeof(scalar_t) == 4 ? 512 : 256, kHeld = 8, kTile = kTileThreads * kHeld;  // look-back; elements of a thread, a tile

struct Arrays {
    const scalar_t* x;
    scalar_t* y;
    int64_t n;
    int head;  // elements that the first packet lacks
};

// A block's tile in registers. Warps have neighbouring runs of 32·kCount packets, lanes every 32nd of them.
template <int kWidth, int kCount>
struct Tile {
    using Packet = msbench::Group<scalar_t, kWidth>;
    using Word = msbench::detail::Word<Packet>;
    Word raw[kCount];      // packets as words: as elements the compiler takes a register for each bf16
    float before[kCount];  // the sum of the warp's elements ahead of a packet

    __device__ Packet packet(int i) const { return reinterpret_cast<const Packet&>(raw[i]); }

    // Where the thread's packet i begins in its block's tile, and which of the tile's elements there are.
    struct Place {
        int64_t begin;
        int own, low, high;

        __device__ Place(const Arrays& a, int64_t tile) {
            const int size = blockDim.x * kCount * kWidth;
            begin = tile * size - a.head;
            own = (threadIdx.x / 32 * kCount * 32 + threadIdx.x % 32) * kWidth;
            low = int(max(int64_t(0), -begin)), high = int(min(int64_t(size), a.n - begin));
        }
        __device__ bool whole() const { return low == 0 && high == int(blockDim.x * kCount * kWidth); }
        __device__ bool has(int i, int k) const {
            const int at = own + i * 32 * kWidth + k;
            return at >= low && at < high;
        }
    };

    __device__ void load(const Arrays& a, int64_t tile) {
        const Place place(a, tile);
        const scalar_t* const x = a.x + place.begin + place.own;
        if (place.whole()) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) raw[i] = reinterpret_cast<const Word*>(x)[i * 32];
        } else {
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                Packet some;
#pragma unroll
                for (int k = 0; k < kWidth; ++k) {
                    some.lane[k] = place.has(i, k) ? x[i * 32 * kWidth + k] : msbench::from_float<scalar_t>(0.0f);
                }
                raw[i] = reinterpret_cast<const Word&>(some);
            }
        }
    }

    // Fills `before`; returns the sums of the warps ahead of this one and of the whole tile. One barrier; `of_warp`: 32 floats.
    __device__ msbench::BlockScan<float> scan(float* of_warp) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
        float running = 0;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sum += msbench::to_float(packet(i).lane[k]);
            sum = msbench::warp_inclusive(sum);
            before[i] = running + msbench::warp_before(sum);
            running += __shfl_sync(~0u, sum, 31);
        }
        if (lane == 0) of_warp[warp] = running;
        __syncthreads();
        const float sums = msbench::warp_inclusive(lane < warps ? of_warp[lane] : 0.0f);
        const float earlier = __shfl_sync(~0u, sums, (warp + 31) % 32);
        return {warp == 0 ? 0.0f : earlier, __shfl_sync(~0u, sums, 31)};
    }

    __device__ void store(const Arrays& a, int64_t tile, float base) const {
        const Place place(a, tile);
        scalar_t* const y = a.y + place.begin + place.own;
        const bool whole = place.whole();
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            msbench::Group<float, kWidth> sums;
            float sum = base + before[i];
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sums.lane[k] = sum += msbench::to_float(packet(i).lane[k]);
            const Packet result = msbench::rounded<scalar_t>(sums);
            if (whole) {
                msbench::store_group_once(y, i * 32, result);
            } else {
#pragma unroll
                for (int k = 0; k < kWidth; ++k) {
                    if (place.has(i, k)) y[i * 32 * kWidth + k] = result.lane[k];
                }
            }
        }
    }
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads) one_block(Arrays a) {
    __shared__ float of_warp[32];
    Tile<kWidth, 1> tile;
    tile.load(a, 0);
    tile.store(a, 0, tile.scan(of_warp).before);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) one_cluster(Arrays a) {
    __shared__ float of_warp[32], of_block[kClusterBlocks];
    const auto cluster = cooperative_groups::this_cluster();
    cluster.barrier_arrive();
    Tile<kWidth, 1> tile;
    tile.load(a, blockIdx.x);
    const auto own = tile.scan(of_warp);
    cluster.barrier_wait();  // all blocks run
    if (threadIdx.x < kClusterBlocks) *cluster.map_shared_rank(&of_block[blockIdx.x], threadIdx.x) = own.total;
    cluster.sync();
    float base = 0;
#pragma unroll
    for (int b = 0; b < kClusterBlocks; ++b) base += b < blockIdx.x ? of_block[b] : 0.0f;
    tile.store(a, blockIdx.x, base + own.before);
}

template <int kWidth, int kCount>
__global__ void __launch_bounds__(kMailThreads) by_mail(Arrays a) {
    __shared__ float of_warp[32];
    Tile<kWidth, kCount> tile;
    tile.load(a, blockIdx.x);
    msbench::expect_sums();
    const auto own = tile.scan(of_warp);
    const float before = msbench::sum_of_blocks_before(own.total);
    tile.store(a, blockIdx.x, before + own.before);
}

enum State : unsigned { kEmpty = 0, kSum = 1, kPrefix = 2 };  // of a tile; zeros are kEmpty

__device__ void publish(volatile unsigned long long* tile, State state, float value) {
    *tile = static_cast<unsigned long long>(state) << 32 | __float_as_uint(value);
}

// The sum of all tiles before `tile`, by the 32 lanes of one warp: those of 32 tiles at a time, back to one that knows.
__device__ float sum_before(const volatile unsigned long long* tiles, int tile) {
    const int lane = threadIdx.x % 32;
    float sum = 0;
    for (int nearest = tile - 1;; nearest -= 32) {
        unsigned long long word = static_cast<unsigned long long>(kPrefix) << 32;  // ahead of the first: 0
        if (nearest >= lane) {
            do word = tiles[nearest - lane];
            while (word >> 32 == kEmpty);
        }
        const unsigned known = __ballot_sync(~0u, word >> 32 == kPrefix);
        const int last = known ? __ffs(known) - 1 : 31;
        sum += msbench::warp_reduce(lane <= last ? __uint_as_float(unsigned(word)) : 0.0f, msbench::Sum());
        if (known) return sum;
    }
}

__global__ void __launch_bounds__(kTileThreads) look_back(Arrays a, volatile unsigned long long* tiles) {
    __shared__ float of_warp[32], ahead;
    const int own = blockIdx.x;  // blocks start in the order of their index
    Tile<1, kHeld> tile;
    tile.load(a, own);
    const auto scan = tile.scan(of_warp);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) publish(&tiles[own], own == 0 ? kPrefix : kSum, scan.total);
        const float before = sum_before(tiles, own);
        if (threadIdx.x == 0) {
            publish(&tiles[own], kPrefix, before + scan.total);
            ahead = before;
        }
    }
    __syncthreads();
    tile.store(a, own, ahead + scan.before);
}

template <int kWidth>
cudaError_t launch(const Arrays& a, void* workspace, cudaStream_t stream) {
    using msbench::Launch;
    const int64_t packets = msbench::ceil_div(a.head + a.n, kWidth);
    if (packets <= kThreads) return Launch(1, unsigned(msbench::ceil_div(packets, 32) * 32), stream)(one_block<kWidth>, a);
    if (packets <= kClusterPackets) {
        const unsigned threads = unsigned(msbench::ceil_div(packets, kClusterBlocks * 32) * 32);
        return msbench::launch_clusters(kClusterBlocks, Launch(kClusterBlocks, threads, stream), one_cluster<kWidth>, a);
    }
    const auto mail = [&](auto kernel, int held) {
        return Launch(unsigned(msbench::ceil_div(packets, kMailThreads * held)), kMailThreads, stream)(kernel, a);
    };
    constexpr int64_t kInLine = msbench::kMostInLine * kMailThreads;
    if constexpr (kWidth > 1) {
        if (packets <= 2 * kInLine) return mail(by_mail<kWidth, 2>, 2);
    }
    if (packets <= 4 * kInLine) return mail(by_mail<kWidth, 4>, 4);
    if constexpr (kWidth > 1) {
        return msbench::wave_scan(a.x, a.y, a.n, a.head, workspace, stream);
    } else {
        const int64_t tiles = msbench::ceil_div(packets, kTile);
        const cudaError_t error = cudaMemsetAsync(workspace, 0, tiles * sizeof(unsigned long long), stream);
        if (error != cudaSuccess) return error;
        return Launch(unsigned(tiles), kTileThreads, stream)(look_back, a, static_cast<volatile unsigned long long*>(workspace));
    }
}

}  // namespace

extern "C" size_t prefix_sum_workspace(int64_t N) {
    const size_t look_back_bytes = msbench::ceil_div(N, kTile) * sizeof(unsigned long long);
    return std::max(look_back_bytes, msbench::wave_scan_bytes<scalar_t>(N));
}

extern "C" cudaError_t prefix_sum(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    const int head = int(reinterpret_cast<uintptr_t>(x) % 16 / sizeof(scalar_t));
    const bool together = (reinterpret_cast<uintptr_t>(x) - reinterpret_cast<uintptr_t>(y)) % 16 == 0;
    return together ? launch<kPacket>({x, y, N, head}, workspace, stream) : launch<1>({x, y, N, 0}, workspace, stream);
}
