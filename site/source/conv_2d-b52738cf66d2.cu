// conv_2d in bf16 on tensor cores: filter rows as banded matrices (msbench_bands.cuh; large filters on large images: msbench_wide_bands.cuh).
//
// Idea: a block has a tile of 128 columns in shared memory, by TMA, and each of its warps walks down 16 output rows on its own: 4
// MMAs for each ldmatrix.x4. Blocks stay for several tiles, so that the filter is staged once, and the next tile comes while
// outputs leave. Nothing is tested while staging: outputs that are not finite are computed again by the definition.
// Small images: teams of warps share the rows of the filter, and their sums meet in shared memory.
//
// Bound (8192, 16 x 16): 51.5 Tflop of MMAs, with a third wasted on the bands, 84 us at mma.sync's 612 Tflop/s; bytes 63 us.
// Measured (H200, 2026-11-23), us cold: 136 there; 4096 with 8 x 8, 16 x 16, 32 x 32: 26.6, 39.7, 71.8 (mma.sync 94.6); 1024: 7.1, 32 x 32 13.1; 256: 5.4, 5.9,
// 6.4. Lost: a tile a block (142; 8 x 8 at 4096 32.9); wgmma for 16 x 16 (146); 8 rows a warp (167); 6 warps a block (164).
#include "msbench_async.cuh"
#include "msbench_bands.cuh"
#include "msbench_image_tile.cuh"
#include "msbench_launch.cuh"
#include "msbench_wide_bands.cuh"

namespace {

using namespace msbench;

// How the image comes into shared memory: as a box by TMA, or in packets, which takes less time to start, where rows are aligned to them.
enum class Load { kElements, kPackets, kBox };

// Of the image, or of what teams exchange.
template <class P>
__host__ __device__ int tile_bytes(int KH) {
    const int image = P::image_bytes(P::image_rows(KH)), sums = P::kTeams > 1 ? P::kThreads * P::kRows * 16 : 0;
    return ((image > sums ? image : sums) + 127) / 128 * 128;
}

struct Tiles {
    int across, count;
};

template <class P, Load kLoad>
__global__ void __launch_bounds__(P::kThreads, P::kBlocks)
    convolve(const __grid_constant__ CUtensorMap map, const scalar_t* __restrict__ x, const scalar_t* __restrict__ w, scalar_t* y,
             const ImageShape s, const Tiles tiles) {
    extern __shared__ __align__(128) uint4 shared[];
    __shared__ Barrier arrived;
    const int rows = P::image_rows(s.KH);
    char* const tile = reinterpret_cast<char*>(shared);
    unsigned short* const filter = reinterpret_cast<unsigned short*>(tile + tile_bytes<P>(s.KH));
    // Blocks that take one tile each are numbered in two dimensions.
    constexpr bool kStays = kLoad == Load::kBox;
    const auto row_of = [&](int n) { return (kStays ? n / tiles.across : int(blockIdx.y)) * P::kTileRows; };
    const auto column_of = [&](int n) { return (kStays ? n % tiles.across : int(blockIdx.x)) * P::kColumns; };

    const typename P::template Filter<scalar_t> taps(w, s.KH, s.KW);
    // The first tile of the image, with zeros beyond its edges.
    const auto start_box = [&](int n) {
        arrived.expect(P::image_bytes(rows));
        copy_box(tile, &map, arrived, column_of(n), row_of(n));
    };
    if constexpr (kLoad == Load::kBox) {
        if (threadIdx.x == 0) {
            arrived.init(1);
            fence_barriers();
            start_box(blockIdx.x);
        }
    } else {
        constexpr int kWidth = kLoad == Load::kPackets ? 8 : 2, kGroups = P::kPitch / kWidth;  // of a row
        const scalar_t* const corner = x + int64_t(row_of(blockIdx.x)) * s.W + column_of(blockIdx.x);
        const int below = s.H - row_of(blockIdx.x), right = s.W - column_of(blockIdx.x);
#pragma unroll 8
        for (int e = threadIdx.x; e < rows * kGroups; e += P::kThreads) {
            const int r = e / kGroups, c = e % kGroups * kWidth, left = r < below ? right - c : 0;
            const scalar_t* const from = corner + (r * s.W + c);
            char* const to = tile + e * kWidth * 2;
            if constexpr (kLoad == Load::kPackets) {  // W is a multiple of 8
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(left > 0 ? from : x),
                             "r"(left > 0 ? 16 : 0)
                             : "memory");
            } else {
                const unsigned low = left > 0 ? __bfloat16_as_ushort(from[0]) : 0, high = left > 1 ? __bfloat16_as_ushort(from[1]) : 0;
                *reinterpret_cast<unsigned*>(to) = low | high << 16;
            }
        }
    }
    taps.prepare(filter);
    taps.place(filter, s.KH, s.KW, [](scalar_t tap) { return unsigned(__bfloat16_as_ushort(tap)); });
    if constexpr (kLoad == Load::kPackets) {
        asm volatile("cp.async.wait_all;" ::: "memory");
    }
    __syncthreads();

    for (int n = blockIdx.x, parity = 0; n < tiles.count; n += gridDim.x, parity ^= 1) {
        if constexpr (kStays) arrived.wait(parity);
        float sum[P::kRows][4];
        P::correlate(sum, tile, 0, filter, s.KH);
        if (P::team() > 0) return;
        if (kStays && n + int(gridDim.x) < tiles.count) {
            __syncthreads();  // the tile is no longer needed
            if (threadIdx.x == 0) start_box(n + int(gridDim.x));
        }
        finish<P>(sum, x, w, y, s, row_of(n) + P::first_row(), column_of(n), 0.0f);
        if (!kStays) return;
    }
}

template <class P, Load kLoad>
cudaError_t launch(const scalar_t* x, const scalar_t* w, scalar_t* y, const ImageShape& s, cudaStream_t stream) {
    const int bytes = tile_bytes<P>(s.KH) + P::filter_bytes(s.KH);
    const int across = int(ceil_div(s.columns, P::kColumns)), down = int(ceil_div(s.rows, P::kTileRows));
    const Tiles tiles{across, across * down};
    CUtensorMap map{};
    dim3 blocks(across, down);
    if constexpr (kLoad == Load::kBox) {
        const cudaError_t error = TensorMaps().describe<2>(
            &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x, {cuuint64_t(s.W), cuuint64_t(s.H)}, {cuuint64_t(s.W) * sizeof(scalar_t)},
            {cuuint32_t(P::kPitch), cuuint32_t(P::image_rows(s.KH))}, CU_TENSOR_MAP_SWIZZLE_NONE);
        if (error != cudaSuccess) return error;
        blocks = dim3(std::min(tiles.count, P::kBlocks * multiprocessors()));
    }
    return Launch(blocks, P::kThreads, stream).shared(bytes)(convolve<P, kLoad>, map, x, w, y, s, tiles);
}

// Outputs up to which an image is small, or of middle size: 256 x 256, 1024 x 1024 and 4096 x 4096 lie between.
constexpr int64_t kSmall = 200000, kMiddle = 2000000;

template <int kBlocksK, int kRows, int kChunkRows, int kWarps, int kTeams, int kBlocks>
using Plan = Bands<MmaType::kBf16, kBlocksK, kRows, kChunkRows, kWarps, kTeams, kBlocks>;

template <int kBlocksK>
cudaError_t choose(const scalar_t* x, const scalar_t* w, scalar_t* y, const ImageShape& s, cudaStream_t stream) {
    //                           rows  filter rows  warps  teams  blocks
    using Small = Plan<kBlocksK, 2, 4, 2, 4, 1>;
    using Middle = Plan<kBlocksK, 8, 8, 4, 1, 4>;
    using Large = Plan<kBlocksK, 16, 8, 4, 1, 3>;
    const bool aligned = packets_allowed(x) && s.W % 8 == 0;
    const int64_t outputs = s.rows * s.columns;
    if (outputs <= kSmall) {
        return aligned ? launch<Small, Load::kPackets>(x, w, y, s, stream) : launch<Small, Load::kElements>(x, w, y, s, stream);
    }
    if (!aligned) return launch<Middle, Load::kElements>(x, w, y, s, stream);
    if (outputs <= kMiddle) return launch<Middle, Load::kBox>(x, w, y, s, stream);
    if constexpr (kBlocksK == 5) {
        if (s.KH > 16) return launch<WideBands<5, 32, 4>, Load::kBox>(x, w, y, s, stream);
    }
    return launch<Large, Load::kBox>(x, w, y, s, stream);
}

}  // namespace

extern "C" cudaError_t conv_2d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t H, int64_t W, int64_t KH,
                               int64_t KW, void*, size_t, cudaStream_t stream) {
    const ImageShape s = {int(H), int(W), int(KH), int(KW), H - KH + 1, W - KW + 1};
    if (KW <= 9) return choose<2>(x, w, y, s, stream);
    if (KW <= 17) return choose<3>(x, w, y, s, stream);
    return choose<5>(x, w, y, s, stream);
}
