// A stream of slices (msbench_slice_layout.cuh) times a tile of X in shared memory, by a warp: four lanes have a row of a slice, 16 bytes of X each.
//
// There are no predicates but the end of a slice, and no step of its own for that. Two rows of X share the banks if one is even and one
// odd, which slices see to; where rows of a tile are twice as long, slots of both kinds read different halves instead.
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

// What a lane has of the rows of a tile of Y, or of half of it: one piece.
struct TileSums {
    const Slices& a;
    scalar_t* Y;
    int64_t K, column;
    int tile;  // of 64 bytes
    float sum[kPiece];

    __device__ TileSums(const Slices& a, scalar_t* Y, int64_t K, int tile)
        : a(a), Y(Y), K(K), column(int64_t(tile) * kTileColumns + threadIdx.x % kPieces * kPiece), tile(tile) {}
    __device__ void clear() {
#pragma unroll
        for (int k = 0; k < kPiece; ++k) sum[k] = 0;
    }
    __device__ void store(int row) const {
        if (column < K) store_piece(Y + row * K + column, sum);
    }
    // The end of a wide slice: its slots have parts of one row, or of a part of a long row.
    __device__ void finish_wide(const Stream& head) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < kPiece; ++k) {
#pragma unroll
            for (int distance = kPieces; distance < 32; distance *= 2) sum[k] += __shfl_xor_sync(~0u, sum[k], distance);
        }
        if (!head.shared) {
            if (lane < kPieces) store(head.name);
            return;
        }
        if (tile >= a.tiles) return;  // half of a tile, beyond all columns
        float* total = a.sums + head.name * K + column;
        if (lane < kPieces && column < K) {
#pragma unroll
            for (int k = 0; k < kPiece; ++k) atomicAdd(total + k, sum[k]);
        }
        __threadfence();
        __syncwarp();
        const LongRow row = a.long_rows[head.name];
        int is_last = 0;
        if (lane == 0) is_last = atomicAdd(a.arrived + head.name * int64_t(a.tiles) + tile, 1u) + 1 == unsigned(row.slices);
        __threadfence();
        if (!__shfl_sync(~0u, is_last, 0) || lane >= kPieces || column >= K) return;
#pragma unroll
        for (int k = 0; k < kPiece; ++k) sum[k] = __ldcg(total + k);
        store(row.row);
    }
};

// Multiplies a stream, or a wide slice, whose end is looked at behind the loop, by kHalves of a tile with sums of their own. `X`: this lane's piece
// of row 0 in each.
template <bool kWideStream, int kHalves, typename Sums>
__device__ __forceinline__ void multiply_stream(const Slices& a, const Stream& head, const char* const (&X)[kHalves], char* ring,
                                                Sums (&sums)[kHalves]) {
    const int slot = threadIdx.x % 32 / kPieces;
    const RingedStream entries(a, head, ring);
    const int* const names = a.names + int64_t(head.first) * 2 * kHeight + slot;
    int name = kWideStream ? 0 : __ldcg(names);
    for (Sums& own : sums) own.clear();
    const auto finish = [&](int pair) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
            if (name >= 0) sums[h].store(name);
            sums[h].clear();
        }
        name = __ldcg(names + (pair + 1) * kHeight);
    };
    entries.walk([&](int number, const char* at) {
        const uint4 pair[2] = {load_shared(at, slot * 16), load_shared(at, slot * 16 + kPairBytes)};
        uint4 x[2][2][kHalves];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int h = 0; h < kHalves; ++h) {
                x[i][0][h] = load_shared(X[h], pair[i].x * (kHalves * kRowBytes));
                x[i][1][h] = load_shared(X[h], pair[i].z * (kHalves * kRowBytes));
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int h = 0; h < kHalves; ++h) {
                add_piece(x[i][0][h], __uint_as_float(pair[i].y), sums[h].sum);
                add_piece(x[i][1][h], __uint_as_float(pair[i].w), sums[h].sum);
            }
            if (!kWideStream && int(pair[i].x) < 0) finish(number * 2 + i);
        }
    });
    if constexpr (kWideStream) {
        for (Sums& own : sums) own.finish_wide(head);
    }
}

}  // namespace msbench
