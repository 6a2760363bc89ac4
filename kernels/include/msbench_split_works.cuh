// Tiles of a product of scaled fp16 parts (msbench_split_tiles.cuh) and slices of K, which blocks take in turn, and one without tensor cores.
#pragma once

#include <type_traits>

#include "msbench_async.cuh"
#include "msbench_plain_tile.cuh"
#include "msbench_split.cuh"
#include "msbench_wgmma.cuh"

namespace msbench {

namespace split_product {

constexpr int kTile = kLineMultiple, kConsumers = 2, kThreads = (1 + kConsumers) * kGroupThreads;
constexpr int kTileRows = 16;  // tile rows walked together
constexpr int kPlaneBytes = kTile * kPanelRowBytes;

struct Shape {
    int M, N, K, panels, slices, slice_panels;  // slice_panels, and all panels, are multiples of kChainPanels
    int64_t pitch;                              // of C
    bool pairs;                                 // of C are aligned
};

// A tile of C and a slice of K.
struct Work {
    int row, column, slice;

    __device__ __forceinline__ Work(int i, int tiles_m, int tiles_n) {
        const int tiles = tiles_m * tiles_n, tile = i % tiles, group = tile / (kTileRows * tiles_n), in_group = tile % (kTileRows * tiles_n);
        const int height = min(kTileRows, tiles_m - group * kTileRows);
        row = (group * kTileRows + in_group % height) * kTile, column = in_group / height * kTile, slice = i / tiles;
    }
};

// A thread's line of a tile and a slice of K: group 0 has the rows of A, group 1 the columns of B.
template <class Left>
struct OwnLine {
    const Left& A;
    const Lines& B;
    int group, line, end;
    bool inside;

    __device__ __forceinline__ void operator()(float (&x)[kPanelK], int k0) const {
        const int until = inside ? end : 0;
        if constexpr (std::is_same_v<Left, Lines>) {
            take_values(x, group == 0 ? A : B, line, k0, until);
        } else if (group == 0) {
            take_values(x, A, line, k0, until);
        } else {
            take_values(x, B, line, k0, until);
        }
    }
};

// Where a thread's sum e is in the tile.
struct Place {
    int row, column;

    __device__ __forceinline__ Place(int group, int own, int e)
        : row(group * kGroupRows + own / 32 * 16 + e / 2 % 2 * 8 + own % 32 / 4), column(e / 4 * 8 + own % 4 * 2 + e % 2) {}
};

__device__ __forceinline__ void store_again(float* C, const Shape& shape, const Work& w, const Place& at, float value) {
    float* to = C + (w.row + at.row) * shape.pitch + w.column + at.column;
    if (shape.slices == 1) *to = value;
    else atomicAdd(to, value);
}

__device__ __forceinline__ void meet_again() {
    sync_named(1, kConsumers * kGroupThreads);
}

// The sums of a tile whose bits are set, without tensor cores. Apart, so that the rest keeps its registers.
template <class Left>
__device__ __noinline__ void multiply_plainly(const OwnLine<Left> load, float* C, const Shape& shape, const Work w, unsigned char* stages,
                                              int own, int from, uint64_t bits) {
    float sums[kTile / 2];
    plain_tile::multiply(sums, reinterpret_cast<float*>(stages), load.group, own, from, load.end, load, meet_again);
#pragma unroll
    for (int e = 0; e < kTile / 2; ++e) {
        if (bits >> e & 1) store_again(C, shape, w, Place(load.group, own, e), sums[e]);
    }
}

}  // namespace split_product

}  // namespace msbench
