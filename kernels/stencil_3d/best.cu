// One step of the three-dimensional heat equation: out = u + r (sum of the six neighbours - 6 u), boundary copied.
//
// Idea: a thread owns a brick of I planes, J rows and up to 16 bytes of a row, and loads all of it and its six sides before the
// first use. The columns left and right come from the neighbouring lanes by shuffle; lanes without a neighbour load one element more. Up to
// 32 MiB a block is three-dimensional, so that most of the planes and rows around a thread's own are in L1, and nothing is divided before
// the first load. Beyond, and where rows are short, threads are numbered along the rows; large grids in strips of 32 packs below each
// other. Rows that are not 16-byte aligned take that path one column a thread.
//
// Bound: each element read once and written once; one launch. 768³ is 847 us in fp32 and 423 in bf16 at a copy's speed.
// DRAM traffic is compulsory (ncu: 1.82 + 1.79 GB in fp32); what is above the bound is L2: 3x3 bricks load 2.3 times their size.
//
// Measured (H200, 2026-11-23), us cold, 768³: bf16 471, fp32 909. Lost there: bricks of 4x2, 4x3, 2x2 (2 to 7 % slower), 4x1 and 8x1
// (12 to 30 %); threads that walk along x with planes in registers (932, 476). Whole rows in shared memory by bulk copies lose 6 to 9 %.
// H200, 2026-11-26, a copy in brackets, without three-dimensional blocks behind: bf16 64³ 5.6 (5.4) 5.8, 128³ 7.3 (7.0) 7.7, 64x256x256 9.6 (8.7) 10.6,
// 128x256x256 14.0 (12.4) 14.9; fp32 64³ 5.7 (5.5) 5.9, 64x64x128 6.3 (6.3) 6.8, 64x128x128 7.4 (7.1) 7.8, 128³ 9.3 (8.9) 9.6, 64x256x256 13.5 (12.3) 14.1;
// fp32 256³ loses (38.3 instead of 38.0). Running the code once before the loads arrive, so that it comes from memory meanwhile, costs 0.2 us or more.
#include "msbench_divisor.cuh"
#include "msbench_row_packs.cuh"

namespace {

using namespace msbench;

constexpr int kPacket = Packet<scalar_t>::kSize;

struct Grid {
    int nx, ny, packs;         // packs of a row
    unsigned threads;          // kLines: that a strip and I planes need: packs of the strip times groups of J rows
    Divisor of_strip, strips;  // kLines: packs of a strip; strips beside each other
};

enum class Numbering { kLines, kBlocks };  // of threads: along the rows of a strip, or in three dimensions

template <int N, int I, int J, Numbering kNumbering, int kThreads>
__global__ void __launch_bounds__(kThreads) heat(const scalar_t* __restrict__ u, scalar_t* __restrict__ out, float r, Grid grid) {
    int pack, row0, plane0;
    bool inside, first, last;  // first, last: without a neighbour before, or behind
    if constexpr (kNumbering == Numbering::kLines) {
        const unsigned line = grid.strips.quotient(blockIdx.x), strip = blockIdx.x - line * grid.strips.d;
        const unsigned thread = line * blockDim.x + threadIdx.x, group = grid.of_strip.quotient(thread);
        pack = int(thread - group * grid.of_strip.d + strip * grid.of_strip.d);
        row0 = int(group) * J, plane0 = blockIdx.y * I;
        inside = thread < grid.threads;
        first = threadIdx.x % 32 == 0, last = threadIdx.x % 32 == 31;
    } else {
        const unsigned lane = ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % 32;
        pack = int(blockIdx.x * blockDim.x + threadIdx.x);
        row0 = int(blockIdx.y * blockDim.y + threadIdx.y) * J, plane0 = int(blockIdx.z * blockDim.z + threadIdx.z) * I;
        inside = pack < grid.packs;
        first = lane == 0 || threadIdx.x == 0, last = lane == 31 || threadIdx.x + 1 == blockDim.x;
    }
    const bool edge = inside && ((first && pack > 0) || (last && pack + 1 < grid.packs));
    const int beyond = first ? -1 : N;
    const int plane = grid.ny * grid.packs, start = (plane0 * grid.ny + row0) * grid.packs + pack;
    RawPack<scalar_t, N> raw[I + 2][J + 2];  // [i][j] is plane plane0 + i - 1, row row0 + j - 1
    scalar_t side[I][J];
#pragma unroll
    for (int i = 0; i < I + 2; ++i) {
#pragma unroll
        for (int j = 0; j < J + 2; ++j) {
            const bool own_plane = i > 0 && i <= I, own_row = j > 0 && j <= J;
            if (!own_plane && !own_row) continue;
            const bool there = inside && unsigned(plane0 + i - 1) < unsigned(grid.nx) && unsigned(row0 + j - 1) < unsigned(grid.ny);
            const int at = start + (i - 1) * plane + (j - 1) * grid.packs;
            raw[i][j] = load_pack<N>(u, there, at);
            if (own_plane && own_row) side[i - 1][j - 1] = load_pack<1>(u + int64_t(at) * N + beyond, there && edge);
        }
    }
#pragma unroll
    for (int i = 0; i < I; ++i) {
#pragma unroll
        for (int j = 0; j < J; ++j) {
            float here[N], up[N], down[N], before[N], behind[N], sum[N], next[N];
            unpack<scalar_t>(raw[i + 1][j + 1], here);
            unpack<scalar_t>(raw[i + 1][j], up);
            unpack<scalar_t>(raw[i + 1][j + 2], down);
            unpack<scalar_t>(raw[i][j + 1], before);
            unpack<scalar_t>(raw[i + 2][j + 1], behind);
            sum_beside(here, side[i][j], first, last, sum);
            const int row = row0 + j, x = plane0 + i;
#pragma unroll
            for (int k = 0; k < N; ++k) {
                sum[k] += (up[k] + down[k]) + (before[k] + behind[k]);
                next[k] = fmaf(r, fmaf(-6.0f, here[k], sum[k]), here[k]);
            }
            if (!inside || row >= grid.ny || x >= grid.nx) continue;
            const bool outer = row == 0 || row + 1 == grid.ny || x == 0 || x + 1 == grid.nx;
            const auto pack_next = pack_inner<scalar_t>(next, raw[i + 1][j + 1], pack == 0, pack + 1 == grid.packs, outer);
            store_pack<kNumbering == Numbering::kLines, N>(out, start + i * plane + j * grid.packs, pack_next);
        }
    }
}

struct Call {
    const scalar_t* u;
    scalar_t* out;
    float r;
    int nx, ny, nz;
    cudaStream_t stream;

    // Along the rows. A strip is a row, or as wide as a warp if `narrow` and that divides a row.
    template <int N, int I, int J>
    cudaError_t lines(int threads, bool narrow) const {
        const uint32_t packs = uint32_t(nz / N), width = narrow && packs % 32 == 0 ? 32 : packs;
        const uint32_t needed = width * uint32_t(ceil_div(ny, J));
        const Grid grid = {nx, ny, int(packs), needed, Divisor(width), Divisor(packs / width)};
        const dim3 blocks(unsigned(ceil_div(needed, threads)) * (packs / width), unsigned(ceil_div(nx, I)));
        heat<N, I, J, Numbering::kLines, 256><<<blocks, threads, 0, stream>>>(u, out, r, grid);
        return cudaGetLastError();
    }

    // In three dimensions: `planes` bricks behind each other, a row in pieces of up to `across` packs, and as many rows as there are threads left; fewer
    // while there isn't a block for nearly every multiprocessor. A row of threads is a multiple of 8, so that a block has whole warps.
    template <int N, int I, int J, int kThreads>
    cudaError_t blocks(int across, int planes) const {
        const int packs = nz / N, pieces = int(ceil_div(packs, across)), x = int(ceil_div(ceil_div(packs, pieces), 8)) * 8;
        const auto count = [&](int y) { return dim3(unsigned(pieces), unsigned(ceil_div(ny, y * J)), unsigned(ceil_div(nx, planes * I))); };
        const auto enough = [&](dim3 n) { return n.x * n.y * n.z >= 128; };
        int y = kThreads / (x * planes);
        while (y > 1 && !enough(count(y))) y /= 2;
        const Grid grid = {nx, ny, packs, 0, Divisor(1), Divisor(1)};
        heat<N, I, J, Numbering::kBlocks, kThreads><<<count(y), dim3(x, y, planes), 0, stream>>>(u, out, r, grid);
        return cudaGetLastError();
    }
};

}  // namespace

extern "C" cudaError_t stencil_3d(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, int64_t nz, void*,
                                  size_t, cudaStream_t stream) {
    constexpr bool kShort = sizeof(scalar_t) == 2;
    constexpr int64_t kMiB = 1 << 20;
    constexpr int kLeastPacks = 8;  // of a row in three-dimensional blocks
    const int64_t bytes = nx * ny * nz * sizeof(scalar_t);
    const Call call = {u, out, r, int(nx), int(ny), int(nz), stream};
    if (!packets_allowed(u, out) || nz % kPacket != 0) return bytes < 8 * kMiB ? call.lines<1, 2, 2>(128, false) : call.lines<1, 4, 4>(128, false);
    if (nz / kPacket >= kLeastPacks) {
#if MSBENCH_FP32
        if (bytes <= 4 * kMiB) return call.blocks<4, 1, 1, 1024>(64, 8);
        if (bytes <= 32 * kMiB) return call.blocks<4, 4, 1, 512>(32, 4);
#else
        if (bytes <= 2 * kMiB) return call.blocks<4, 2, 1, 512>(64, 8);
        if (bytes <= 4 * kMiB) return call.blocks<8, 2, 1, 512>(32, 8);
        if (bytes <= 32 * kMiB) return call.blocks<8, 4, 1, 512>(32, 4);
#endif
    } else if (bytes <= 4 * kMiB) {
        return call.lines<kPacket, 2, 1>(256, false);
    }
    if (bytes <= 64 * kMiB) return call.lines<kPacket, 4, 2>(kShort ? 128 : 256, true);
    return call.lines<kPacket, 3, 3>(kShort ? 128 : 256, true);
}
