// C = A B in bf16 with fp32 sums (msbench_tiles.cuh): tile size and slices of K by a small model of the time.
//
// Where C has few tiles, K is cut into slices, which clusters add up (msbench_tile_slices.cuh). TMA needs rows that start on 16 bytes: other
// matrices are first copied into the workspace with padded rows.
#pragma once

#include <algorithm>
#include <type_traits>

#include "msbench_cluster.cuh"
#include "msbench_tile_slices.cuh"

namespace msbench {

// A row-major matrix of bf16 whose rows are `pitch` elements apart.
struct Matrix16 {
    const __nv_bfloat16* data;
    int64_t rows, columns, pitch;

    bool for_tma() const { return pitch % 8 == 0 && packets_allowed(data); }
};

namespace tile_product {

constexpr int kMostSlices = 8;  // portable clusters

// ---------------------------------------------------------------- rows that start on 16 bytes

// A matrix and its copy with such rows; no packets where no copy is needed.
struct Padding {
    Matrix16 from;
    __nv_bfloat16* to;
    int64_t packets;

    Padding(const Matrix16& matrix, void* copy)
        : from(matrix), to(static_cast<__nv_bfloat16*>(copy)), packets(matrix.for_tma() ? 0 : matrix.rows * ceil_div(matrix.columns, kChunk)) {}
    Matrix16 result() const { return packets ? Matrix16{to, from.rows, from.columns, ceil_div(from.columns, kChunk) * kChunk} : from; }
    __device__ void pad(int64_t i) const {
        const int64_t a_row = (from.columns + kChunk - 1) / kChunk, row = i / a_row, column = i % a_row * kChunk;
        Packet<__nv_bfloat16> packet;
#pragma unroll
        for (int k = 0; k < kChunk; ++k) packet.lane[k] = column + k < from.columns ? from.data[row * from.pitch + column + k] : __nv_bfloat16(0.0f);
        store_packet(to, i, packet);
    }
};

__global__ void __launch_bounds__(kMapThreads) pad_rows(const Padding a, const Padding b) {
    cudaGridDependencySynchronize();
    const int64_t i = int64_t(blockIdx.x) * kMapThreads + threadIdx.x;
    if (i < a.packets) a.pad(i);
    else if (i < a.packets + b.packets) b.pad(i - a.packets);
}

inline int64_t padded_bytes(int64_t rows, int64_t columns) {
    return ceil_div(rows * ceil_div(columns, kChunk) * kChunk * 2, 256) * 256;
}

// ---------------------------------------------------------------- plans

using Large = Tile<2, 256, 4>;
using Medium = Tile<2, 128, 6>;
using Small = Tile<1, 128, 8>;
using Tiny = Tile<1, 64, 8>;
using Slice = Tile<1, 64, 6>;  // Tiny, with room for two blocks on a multiprocessor

enum class Size { kLarge, kMedium, kSmall, kTiny };

struct Plan {
    Size size;
    int slices;
};

// Estimated cycles, fitted to an H200's times, of all waves of works on all multiprocessors, and of adding up slices.
template <class T>
int64_t estimate(int64_t M, int64_t N, int64_t K, int step_cycles, int store_cycles, int slices) {
    const int64_t works = ceil_div(M, T::kTileM) * ceil_div(N, T::kTileN) * slices, steps = ceil_div(ceil_div(K, kTileK), slices);
    return ceil_div(works, 132) * (steps * step_cycles + store_cycles) + (slices > 1 ? 2000 + 300 * slices : 0);
}

// In clusters, slices of the smallest tiles are fastest (measured, H200: 13.0 of 17.8 us at M = 64, 15.8 of 18.4 at 256). `layers`: slices are
// added up elsewhere.
inline Plan choose(int64_t M, int64_t N, int64_t K, bool layers) {
    Plan best{};
    int64_t least = INT64_MAX;
    for (int slices = 1; slices <= kMostSlices && (slices == 1 || slices * 4 * kTileK <= K); ++slices) {
        const auto consider = [&](Size size, int64_t cycles) {
            if (cycles < least) least = cycles, best = {size, slices};
        };
        if (slices == 1 || layers) {
            consider(Size::kLarge, estimate<Large>(M, N, K, 1120, 1500, slices));
            consider(Size::kMedium, estimate<Medium>(M, N, K, 600, 1000, slices));
            consider(Size::kSmall, estimate<Small>(M, N, K, 370, 800, slices));
        }
        consider(Size::kTiny, estimate<Tiny>(M, N, K, 250, 700, slices));
    }
    return best;
}

// Launches tiles T of what the maps describe to `Source`; slices in clusters where the product itself is asked for.
template <class T, class Source, bool kClusters, typename Out>
cudaError_t launch(const CUtensorMap& a_map, const CUtensorMap& b_map, Out* C, const Shape& shape, int argument, bool behind, cudaStream_t stream) {
    const int64_t works = ceil_div(shape.M, T::kTileM) * ceil_div(shape.N, T::kTileN) * shape.slices;
    const int64_t blocks = kClusters ? works : std::min<int64_t>(works, multiprocessors());
    Launch launch(dim3(unsigned(blocks)), dim3(T::kThreads), stream);
    launch.shared(T::kSharedBytes);
    if (behind) launch.early();
    if constexpr (kClusters) return launch_clusters(shape.slices, launch, multiply_slices<T, Source>, a_map, b_map, C, shape, argument);
    else return launch(multiply<T, Source, Out>, a_map, b_map, C, shape, argument);
}

template <class T, bool kNFastest, bool kClusters = false, typename Out>
cudaError_t launch(const Matrix16& A, const Matrix16& B, Out* C, const Shape& shape, bool behind, cudaStream_t stream) {
    const TensorMaps maps;
    CUtensorMap a_map, b_map;
    const auto describe = [&](CUtensorMap* map, const Matrix16& m, int box_rows) {
        return maps.describe<2>(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, m.data, {cuuint64_t(m.columns), cuuint64_t(m.rows)},
                                {cuuint64_t(m.pitch) * 2}, {kBox, cuuint32_t(box_rows)});
    };
    cudaError_t status = describe(&a_map, A, T::kTileM);
    if (status == cudaSuccess) status = describe(&b_map, B, kNFastest ? kTileK : T::kTileN);
    return status != cudaSuccess ? status : launch<T, Matrices<T, kNFastest>, kClusters>(a_map, b_map, C, shape, 0, behind, stream);
}

template <bool kNFastest, typename Out>
cudaError_t launch(Size size, const Matrix16& A, const Matrix16& B, Out* C, const Shape& shape, bool behind, cudaStream_t stream) {
    if constexpr (std::is_same_v<Out, __nv_bfloat16>) {
        if (shape.slices > 1) return launch<Slice, kNFastest, true>(A, B, C, shape, behind, stream);
    }
    switch (size) {
        case Size::kLarge: return launch<Large, kNFastest>(A, B, C, shape, behind, stream);
        case Size::kMedium: return launch<Medium, kNFastest>(A, B, C, shape, behind, stream);
        case Size::kSmall: return launch<Small, kNFastest>(A, B, C, shape, behind, stream);
        default: return launch<Tiny, kNFastest>(A, B, C, shape, behind, stream);
    }
}

}  // namespace tile_product

// There is always room for copies of A and B, since an address may turn out to be odd.
template <bool kNFastest>
size_t multiply_tiles_bytes(int64_t M, int64_t N, int64_t K) {
    using tile_product::padded_bytes;
    return size_t(padded_bytes(M, K) + (kNFastest ? padded_bytes(K, N) : padded_bytes(N, K)));
}

namespace tile_product {

// Copies A and B to `space` where TMA asks for it, and multiplies: the product itself, or sums in layers for each slice, to `to`.
template <bool kNFastest, typename Out>
cudaError_t multiply_padded(const Matrix16& A, const Matrix16& B, Out* to, int64_t pitch, const Plan& plan, void* space, bool behind,
                            cudaStream_t stream) {
    const int64_t K = A.columns;
    const Padding a(A, space), b(B, static_cast<char*>(space) + padded_bytes(A.rows, K));
    if (a.packets + b.packets) {
        Launch launch(dim3(unsigned(ceil_div(a.packets + b.packets, kMapThreads))), dim3(kMapThreads), stream);
        if (behind) launch.early();
        const cudaError_t status = launch(pad_rows, a, b);
        if (status != cudaSuccess) return status;
        behind = true;
    }
    const int slice_k = int(ceil_div(ceil_div(K, plan.slices), kTileK)) * kTileK;
    const Shape shape{int(A.rows), int(kNFastest ? B.columns : B.rows), int(K), slice_k, plan.slices, pitch,
                      pitch % kChunk == 0 && packets_allowed(to)};
    return launch<kNFastest>(plan.size, a.result(), b.result(), to, shape, behind, stream);
}

inline int64_t sums_pitch(int64_t N) {
    return ceil_div(N, 4) * 4;
}

}  // namespace tile_product

// C = A B, A [M, K]; B is [K, N], or with K fastest [N, K]. C's rows are `pitch` apart; where that is N rounded up to 8, what lies between may
// be overwritten. `behind`: not the launcher's first kernel.
template <bool kNFastest>
cudaError_t multiply_tiles(const Matrix16& A, const Matrix16& B, __nv_bfloat16* C, int64_t pitch, void* workspace, bool behind,
                           cudaStream_t stream) {
    using namespace tile_product;
    return multiply_padded<kNFastest>(A, B, C, pitch, choose(A.rows, kNFastest ? B.columns : B.rows, A.columns, false), workspace, behind, stream);
}

}  // namespace msbench
