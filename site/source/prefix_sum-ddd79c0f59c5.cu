// Inclusive prefix sum.
//
// Idea: a warp reads a run of 16-byte packs, coalesced; a pack is scanned in registers, the packs of a warp by
// shuffles, the warps of a block through shared memory and one barrier. Up to 32768 elements are one block's work, in
// one launch. Longer arrays are scanned in a single pass with decoupled look-back (Merrill and Garland 2016): tiles are
// handed out by a ticket, so that every tile before a running one has started; a tile publishes its sum, then adds up
// what the tiles before it have published, 32 at a time, back to the first that knows its whole prefix, and publishes
// its own. State and value share one 64-bit word, so no fence is needed. Sums are fp32 before the one rounding of each
// result; their order, and so the last bits, may differ from run to run in the long path.
//
// Bound: 4 n bytes, n flops; one launch, or a memset of 8 bytes a tile and one launch.

#include "msbench.cuh"

namespace {

constexpr int WIDTH = 16 / sizeof(scalar_t);      // elements of a 16-byte access
constexpr int ONE_THREADS = 1024, ONE_HELD = 4;   // the single block, and the packs each of its threads holds
constexpr int TILE_THREADS = 256, TILE_HELD = 4;  // look-back
constexpr unsigned FULL = 0xffffffffu;

enum State : unsigned { EMPTY = 0, SUM = 1, PREFIX = 2 };  // of a tile; a zeroed workspace is EMPTY

template <int N>
struct alignas(N * sizeof(scalar_t)) Pack {
    scalar_t v[N];
};

__device__ float warp_inclusive(float v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const float before = __shfl_up_sync(FULL, v, offset);
        if (lane >= offset) v += before;
    }
    return v;
}

// A thread's packs of a tile: a warp owns HELD x 32 consecutive packs, a lane every 32nd of them.
template <int HELD>
__device__ int64_t pack_of(int64_t tile, int i) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return tile * blockDim.x * HELD + (warp * HELD + i) * 32 + lane;
}

// The thread's packs of a tile as floats; zero where the array has ended.
template <int N, int HELD>
__device__ void load_tile(const scalar_t* x, int64_t tile, int64_t n, float (&values)[HELD][N]) {
    if ((tile + 1) * blockDim.x * HELD * N <= n) {
        Pack<N> raw[HELD];
#pragma unroll
        for (int i = 0; i < HELD; ++i) raw[i] = reinterpret_cast<const Pack<N>*>(x)[pack_of<HELD>(tile, i)];
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
#pragma unroll
            for (int k = 0; k < N; ++k) values[i][k] = msbench::to_float(raw[i].v[k]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
#pragma unroll
            for (int k = 0; k < N; ++k) {
                const int64_t element = pack_of<HELD>(tile, i) * N + k;
                values[i][k] = element < n ? msbench::to_float(x[element]) : 0.0f;
            }
        }
    }
}

__device__ void store_pack(scalar_t* y, int64_t pack, const float (&values)[WIDTH]) {
    alignas(16) __nv_bfloat162 pairs[WIDTH / 2];
#pragma unroll
    for (int k = 0; k < WIDTH / 2; ++k) pairs[k] = __floats2bfloat162_rn(values[2 * k], values[2 * k + 1]);
    __stcs(reinterpret_cast<uint4*>(y) + pack, reinterpret_cast<const uint4&>(pairs));
}

__device__ void store_pack(scalar_t* y, int64_t pack, const float (&values)[1]) {
    y[pack] = msbench::from_float<scalar_t>(values[0]);
}

// Writes the thread's packs of a tile, with `before`, the sum of all that precedes the warp, added.
template <int N, int HELD>
__device__ void store_tile(scalar_t* y, int64_t tile, int64_t n, float (&values)[HELD][N], float before) {
    const bool whole = (tile + 1) * blockDim.x * HELD * N <= n;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int64_t pack = pack_of<HELD>(tile, i);
#pragma unroll
        for (int k = 0; k < N; ++k) values[i][k] += before;
        if (whole) {
            store_pack(y, pack, values[i]);
        } else {
#pragma unroll
            for (int k = 0; k < N; ++k) {
                if (pack * N + k < n) y[pack * N + k] = msbench::from_float<scalar_t>(values[i][k]);
            }
        }
    }
}

struct Scan {
    float earlier_warps, tile_sum;
};

// Scans each warp's part of the tile in place, from zero. Returns what the warps before this one add up to, and the
// tile.

template <int N, int HELD>
__device__ Scan scan_tile(float (&values)[HELD][N]) {
    __shared__ float warp_sums[32];
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float running = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int k = 1; k < N; ++k) values[i][k] += values[i][k - 1];
        const float inclusive = warp_inclusive(values[i][N - 1]);
        float before = __shfl_up_sync(FULL, inclusive, 1);  // not inclusive - own, which would turn Inf into NaN
        before = running + (lane == 0 ? 0.0f : before);
        running += __shfl_sync(FULL, inclusive, 31);
#pragma unroll
        for (int k = 0; k < N; ++k) values[i][k] += before;
    }
    if (lane == 0) warp_sums[warp] = running;
    __syncthreads();
    const float sums = warp_inclusive(lane < warps ? warp_sums[lane] : 0.0f);
    const float earlier = __shfl_sync(FULL, sums, warp == 0 ? 0 : warp - 1);
    return {warp == 0 ? 0.0f : earlier, __shfl_sync(FULL, sums, 31)};
}

template <int N, int HELD>
__global__ void __launch_bounds__(ONE_THREADS) one_block(const scalar_t* x, scalar_t* y, int64_t n) {
    float values[HELD][N];
    load_tile(x, 0, n, values);
    const Scan scan = scan_tile(values);
    store_tile(y, 0, n, values, scan.earlier_warps);
}

__device__ void publish(volatile unsigned long long* slot, State state, float value) {
    *slot = static_cast<unsigned long long>(state) << 32 | __float_as_uint(value);
}

// The sum of all tiles before `tile`, by the 32 lanes of one warp.
__device__ float look_back(const volatile unsigned long long* slots, int64_t tile) {
    const int lane = threadIdx.x % 32;
    float exclusive = 0.0f;
    for (int64_t nearest = tile - 1;; nearest -= 32) {
        unsigned long long word = static_cast<unsigned long long>(PREFIX)
                                  << 32;  // before the first tile: a prefix of zero
        if (nearest >= lane) {
            do word = slots[nearest - lane];
            while (word >> 32 == EMPTY);
        }
        const unsigned known = __ballot_sync(FULL, word >> 32 == PREFIX);
        const int last = known ? __ffs(known) - 1 : 31;  // the nearest tile that knows its prefix ends the walk
        exclusive += msbench::warp_reduce(lane <= last ? __uint_as_float(unsigned(word)) : 0.0f, msbench::Sum());
        if (known) return exclusive;
    }
}

template <int N>
__global__ void __launch_bounds__(TILE_THREADS)
    scan_tiles(const scalar_t* x, scalar_t* y, int64_t n, unsigned* ticket, volatile unsigned long long* slots) {
    __shared__ unsigned taken;
    __shared__ float prefix;
    if (threadIdx.x == 0) taken = atomicAdd(ticket, 1u);
    __syncthreads();
    const int64_t tile = taken;

    float values[TILE_HELD][N];
    load_tile(x, tile, n, values);
    const Scan scan = scan_tile(values);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) publish(&slots[tile], tile == 0 ? PREFIX : SUM, scan.tile_sum);
        const float before = look_back(slots, tile);
        if (threadIdx.x == 0) {
            if (tile > 0) publish(&slots[tile], PREFIX, before + scan.tile_sum);
            prefix = before;
        }
    }
    __syncthreads();
    store_tile(y, tile, n, values, prefix + scan.earlier_warps);
}

int64_t tile_count(int64_t n, int width) {
    const int64_t tile = int64_t(TILE_THREADS) * TILE_HELD * width;
    return (n + tile - 1) / tile;
}

template <int N>
cudaError_t launch(const scalar_t* x, scalar_t* y, int64_t n, void* workspace, cudaStream_t stream) {
    const int64_t packs = (n + N - 1) / N;
    if (packs <= ONE_THREADS) {
        one_block<N, 1><<<1, unsigned((packs + 31) / 32 * 32), 0, stream>>>(x, y, n);
    } else if (packs <= ONE_THREADS * ONE_HELD) {
        one_block<N, ONE_HELD><<<1, ONE_THREADS, 0, stream>>>(x, y, n);
    } else {
        const int64_t tiles = tile_count(n, N);
        unsigned long long* words = static_cast<unsigned long long*>(workspace);  // the ticket, then a word a tile
        const cudaError_t error = cudaMemsetAsync(words, 0, (tiles + 1) * sizeof *words, stream);
        if (error != cudaSuccess) return error;
        scan_tiles<N>
            <<<unsigned(tiles), TILE_THREADS, 0, stream>>>(x, y, n, reinterpret_cast<unsigned*>(words), words + 1);
    }
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t prefix_sum_workspace(int64_t n) {
    return (tile_count(n, 1) + 1) * sizeof(unsigned long long);
}

extern "C" cudaError_t prefix_sum(const scalar_t* x, scalar_t* y, int64_t n, void* workspace, size_t,
                                  cudaStream_t stream) {
    const bool aligned = (uintptr_t(x) | uintptr_t(y)) % 16 == 0;
    return aligned ? launch<WIDTH>(x, y, n, workspace, stream) : launch<1>(x, y, n, workspace, stream);
}
