// A stream of slices (msbench_slice_layout.cuh) times a tile of X in shared memory, by a warp: two lanes have a row of a slice, and half of
// its row of X each.
//
// There are no predicates but the end of a slice, and no step of its own for that. Two rows of X share the banks if one is even and one
// odd, which slices see to, and two pairs of slots if they read other pieces first; where rows of a tile are twice as long, four slots do.
//
// Reckoned: shared memory gives 16 bytes to eight lanes a clock, also if four of them want the same. So two entries of 16 slots cost 4 clocks
// for themselves and 16 for their rows of X; with four lanes a slot (as it was) two entries of 8 slots cost 4 and 8.
// Measured (H100, 2026-11-26, us; spmm_tiles, 16384 and 65536 rows): bf16 181 and 636, fp32 315 and 1160; with four lanes 200 and 709, 328 and 1204.
#pragma once

#include "msbench_slice_ring.cuh"

namespace msbench {

constexpr int kRowBytes = 64;  // of a row of X in a tile, or in each of its halves
constexpr int kTileColumns = kRowBytes / sizeof(scalar_t), kPieces = kRowBytes / 16;

// By one store, which assigning a Packet is not behind a branch: four of 4 bytes took a sixth of all time.
__device__ __forceinline__ void store_piece(scalar_t* to, const float (&sum)[kPiece]) {
    const Packet<scalar_t> out = rounded(sum);
    const uint4 x = reinterpret_cast<const uint4&>(out);
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

// Which pieces of the rows of a tile of kHalves * 64 bytes a lane has: kOwn of them, kRowLanes apart. `order`: the first one, so that slots of
// a quarter of a warp read different banks; in wide slices all have the same.
template <int kHalves>
struct OwnPieces {
    static constexpr int kOwn = kHalves * kPieces / kRowLanes;
    int order;

    __device__ explicit OwnPieces(bool wide) : order(wide ? 0 : (threadIdx.x % 32 / kRowLanes >> (kHalves == 1)) % kOwn) {}
    __device__ int operator[](int i) const { return (i ^ order) * kRowLanes + threadIdx.x % kRowLanes; }
};

// What a lane has of the rows of a tile of Y.
template <int kHalves>
struct TileSums {
    static constexpr int kOwn = OwnPieces<kHalves>::kOwn;
    const Slices& a;
    scalar_t* Y;
    int64_t K, first;  // column
    int tile;
    OwnPieces<kHalves> pieces;
    float sum[kOwn][kPiece];

    __device__ TileSums(const Slices& a, scalar_t* Y, int64_t K, int tile, OwnPieces<kHalves> pieces)
        : a(a), Y(Y), K(K), first(int64_t(tile) * kHalves * kTileColumns), tile(tile), pieces(pieces) {}
    __device__ int64_t column(int i) const { return first + pieces[i] * kPiece; }
    __device__ void store(int row) const {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            if (column(i) < K) store_piece(Y + row * K + column(i), sum[i]);
        }
    }
    // The end of a wide slice: its slots have parts of one row, or of a part of a long row.
    __device__ void finish_wide(const Stream& head) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
#pragma unroll
            for (int k = 0; k < kPiece; ++k) {
#pragma unroll
                for (int distance = kRowLanes; distance < 32; distance *= 2) sum[i][k] += __shfl_xor_sync(~0u, sum[i][k], distance);
            }
        }
        if (!head.shared) {
            if (lane < kRowLanes) store(head.name);
            return;
        }
        float* const total = a.sums + head.name * K;
        if (lane < kRowLanes) {
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
#pragma unroll
                for (int k = 0; k < kPiece; ++k) {
                    if (column(i) < K) atomicAdd(total + column(i) + k, sum[i][k]);
                }
            }
        }
        __threadfence();
        __syncwarp();
        const LongRow row = a.long_rows[head.name];
        int is_last = 0;
        if (lane == 0) is_last = atomicAdd(a.arrived + head.name * int64_t(a.tiles) + tile, 1u) + 1 == unsigned(row.slices);
        __threadfence();
        if (!__shfl_sync(~0u, is_last, 0) || lane >= kRowLanes) return;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
#pragma unroll
            for (int k = 0; k < kPiece; ++k) sum[i][k] = column(i) < K ? __ldcg(total + column(i) + k) : 0.0f;
        }
        store(row.row);
    }
};

// Multiplies a stream, or a wide slice, whose end is looked at behind the loop, by a tile, whose rows are kBytes apart. `X`: this lane's pieces
// of row 0. kUnits: of a chunk of its ring.
template <bool kWideStream, int kBytes, int kUnits, int kOwn, typename Sums>
__device__ __forceinline__ void multiply_stream(const Slices& a, const Stream& head, const char* const (&X)[kOwn], char* ring, Sums& sums) {
    const int slot = threadIdx.x % 32 / kRowLanes;
    const RingedStream<kUnits> entries(a, head, ring);
    const int* const names = a.names + int64_t(head.first) * 2 * kHeight + slot;
    int name = kWideStream ? 0 : __ldcg(names);
    const auto clear = [&] {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
#pragma unroll
            for (int k = 0; k < kPiece; ++k) sums.sum[i][k] = 0;
        }
    };
    clear();
    const auto finish = [&](int pair) {
        if (name >= 0) sums.store(name);
        clear();
        name = __ldcg(names + (pair + 1) * kHeight);
    };
    entries.walk([&](int number, const char* at) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint4 pair = load_shared(at, slot * 16 + i * kPairBytes);
            uint4 x[2][kOwn];
#pragma unroll
            for (int h = 0; h < kOwn; ++h) {
                x[0][h] = load_shared(X[h], pair.x * kBytes);
                x[1][h] = load_shared(X[h], pair.z * kBytes);
            }
#pragma unroll
            for (int h = 0; h < kOwn; ++h) {
                add_piece(x[0][h], __uint_as_float(pair.y), sums.sum[h]);
                add_piece(x[1][h], __uint_as_float(pair.w), sums.sum[h]);
            }
            if (!kWideStream && int(pair.x) < 0) finish(number * 2 + i);
        }
    });
    if constexpr (kWideStream) sums.finish_wide(head);
}

}  // namespace msbench
