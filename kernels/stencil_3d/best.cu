// One step of the three-dimensional heat equation: out = u + r (sum of the six neighbours - 6 u), boundary copied.
//
// Idea: a thread owns a brick of I planes, J rows and 16 bytes of a row, and loads all of it and its six sides before the
// first use. Threads are numbered along the rows, so that the columns left and right come from the neighbouring lanes by
// shuffle (what lies beyond a row's end isn't needed there: it is boundary); the lanes at a warp's ends load one element
// more. Large grids: a block's warps stand below each other (strips of 32 packs), so that more of the rows above and
// below are in L1. Rows that are not 16-byte aligned take the same path one column a thread.
//
// Bound: each element read once and written once; one launch. 768³ is 847 us in fp32 and 423 in bf16 at a copy's speed.
// DRAM traffic is compulsory (ncu: 1.82 + 1.79 GB in fp32); what is above the bound is L2: 3x3 bricks load 2.3 times their size.
//
// Measured (H200, 2026-11-23), us cold: bf16 64³ 4.9, 128³ 6.9, 256³ 22.1, 768³ 471; fp32 5.1, 8.6, 37.5, 909. Lost at 768³: bricks of 4x2, 4x3,
// 2x2 (2 to 7 % slower), 4x1 and 8x1 (12 to 30 %); threads that walk along x with planes in registers (932, 476). H100, 2026-11-25: in bf16, 4x1 is 2 to 4 %
// faster than 4x2 at 2^22 and 2^23 points; the walk, and whole rows in shared memory by bulk copies, lose 6 to 9 %.
#include "msbench_divisor.cuh"
#include "msbench_row_packs.cuh"

namespace {

using namespace msbench;

constexpr int kPacket = Packet<scalar_t>::kSize;

struct Grid {
    int nx, ny, packs;         // packs of a row
    unsigned threads;          // that a strip and I planes need: packs of the strip times groups of J rows
    Divisor of_strip, strips;  // packs of a strip; strips beside each other
};

template <int N, int I, int J>
__global__ void __launch_bounds__(256) heat(const scalar_t* __restrict__ u, scalar_t* __restrict__ out, float r, Grid grid) {
    const unsigned line = grid.strips.quotient(blockIdx.x), strip = blockIdx.x - line * grid.strips.d;
    const unsigned thread = line * blockDim.x + threadIdx.x, group = grid.of_strip.quotient(thread);
    const int pack = int(thread - group * grid.of_strip.d + strip * grid.of_strip.d), lane = threadIdx.x % 32;
    const int plane0 = blockIdx.y * I, row0 = int(group) * J;
    const bool inside = thread < grid.threads;
    // Whether this lane has to load the element beyond its pack, and where that is.
    const bool edge = inside && (lane == 0 ? pack > 0 : lane == 31 && pack + 1 < grid.packs);
    const int beyond = lane == 0 ? -1 : N;
    const int width = grid.packs * N, plane = grid.ny * width;
    const int64_t start = (int64_t(plane0) * grid.ny + row0) * width + pack * N;
    RawPack<scalar_t, N> raw[I + 2][J + 2];  // [i][j] is plane plane0 + i - 1, row row0 + j - 1
    scalar_t side[I][J];
#pragma unroll
    for (int i = 0; i < I + 2; ++i) {
#pragma unroll
        for (int j = 0; j < J + 2; ++j) {
            const bool own_plane = i > 0 && i <= I, own_row = j > 0 && j <= J;
            if (!own_plane && !own_row) continue;
            const bool there = inside && unsigned(plane0 + i - 1) < unsigned(grid.nx) && unsigned(row0 + j - 1) < unsigned(grid.ny);
            const scalar_t* const p = u + start + (i - 1) * plane + (j - 1) * width;
            raw[i][j] = load_pack<N>(p, there);
            if (own_plane && own_row) side[i - 1][j - 1] = load_pack<1>(p + beyond, there && edge);
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
            sum_beside(here, side[i][j], sum);
            const int row = row0 + j, x = plane0 + i;
            if (!inside || row >= grid.ny || x >= grid.nx) continue;
            const bool inner = row > 0 && row + 1 < grid.ny && x > 0 && x + 1 < grid.nx;
#pragma unroll
            for (int k = 0; k < N; ++k) {
                sum[k] += (up[k] + down[k]) + (before[k] + behind[k]);
                next[k] = inner ? fmaf(r, fmaf(-6.0f, here[k], sum[k]), here[k]) : here[k];
            }
            if (pack == 0) next[0] = here[0];
            if (pack + 1 == grid.packs) next[N - 1] = here[N - 1];
            store_pack(out + start + i * plane + j * width, next);
        }
    }
}

enum class Strips { kWholeRows, kWarps };  // a strip is a row, or as wide as a warp where that divides a row

template <int N, int I, int J>
cudaError_t launch(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, int64_t nz, int threads, Strips strips,
                   cudaStream_t stream) {
    const uint32_t packs = uint32_t(nz / N), width = strips == Strips::kWarps && packs % 32 == 0 ? 32 : packs;
    const uint32_t needed = width * uint32_t(ceil_div(ny, J));
    const Grid grid = {int(nx), int(ny), int(packs), needed, Divisor(width), Divisor(packs / width)};
    const dim3 blocks(unsigned(ceil_div(needed, threads)) * (packs / width), unsigned(ceil_div(nx, I)));
    heat<N, I, J><<<blocks, threads, 0, stream>>>(u, out, r, grid);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t stencil_3d(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, int64_t nz, void*,
                                  size_t, cudaStream_t stream) {
    constexpr bool kShort = sizeof(scalar_t) == 2;
    constexpr int kThreads = kShort ? 128 : 256;
    constexpr int64_t kMiB = 1 << 20;
    const int64_t bytes = nx * ny * nz * sizeof(scalar_t);
    constexpr Strips kRows = Strips::kWholeRows;
    if (!packets_allowed(u, out) || nz % kPacket != 0) {
        if (bytes < 8 * kMiB) return launch<1, 2, 2>(u, out, r, nx, ny, nz, 128, kRows, stream);
        return launch<1, 4, 4>(u, out, r, nx, ny, nz, 128, kRows, stream);
    }
    if (bytes <= (kShort ? 2 : 1) * kMiB) return launch<kPacket, 1, 1>(u, out, r, nx, ny, nz, 256, kRows, stream);
    if (bytes <= 4 * kMiB) return launch<kPacket, 2, 1>(u, out, r, nx, ny, nz, 256, kRows, stream);
    if (kShort && bytes <= 16 * kMiB) return launch<kPacket, 4, 1>(u, out, r, nx, ny, nz, 128, kRows, stream);
    if (bytes <= 64 * kMiB) return launch<kPacket, 4, 2>(u, out, r, nx, ny, nz, kThreads, Strips::kWarps, stream);
    return launch<kPacket, 3, 3>(u, out, r, nx, ny, nz, kThreads, Strips::kWarps, stream);
}
