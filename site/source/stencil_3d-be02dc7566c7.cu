// One step of the three-dimensional heat equation: out = u + r (sum of the six neighbours - 6 u), boundary copied.
//
// Idea: a thread owns a brick of I planes, J rows and up to 16 bytes of a row, and loads all of it and its six sides before the
// first use. The columns left and right come from the neighbouring lanes by shuffle (what lies beyond a row's end isn't needed there: it is
// boundary); lanes without a neighbour load one element more.
//
// Plans:
//   blocks  grids that are neither large nor of short rows: threads in three dimensions, so that most of the planes and rows around a thread's
//           own are in L1 and nothing is divided before the first load. Boundary is kept by masks over words, which is less code. The smaller the
//           grid, the smaller bricks are, since all multiprocessors have to load at once.
//   lines   the others: threads are numbered along the rows. Large grids: a block's warps stand below each other (strips of 32 packs), so that
//           more of the rows above and below are in L1. Rows that are not 16-byte aligned take the same path one column a thread.
//
// Bound: each element read once and written once; one launch. 768³ is 847 us in fp32 and 423 in bf16 at a copy's speed.
// DRAM traffic is compulsory (ncu: 1.82 + 1.79 GB in fp32); what is above the bound is L2: 3x3 bricks load 2.3 times their size.
//
// Measured (H100, 2026-11-26, L2 read over), us cold: blocks, what was there before (lines from 4 MiB in fp32, 8 MiB in bf16), and a copy:
// fp32 64x128x128 6.4 7.0 6.5, 128³ 8.9 9.0 8.6, 64x256x256 13.6 14.5 12.8, 128x256x256 23.3 24.1 21.7; bf16 64x64x128 4.9 5.0 4.8,
// 128³ 6.6 6.7 6.5, 64x256x256 9.4 10.3 8.5, 128x256x256 14.2 14.8 12.8. 256³: within 2 %. H200, lines: 256³ 37.2 and 22.2, 768³ 904, 467.
// Lost: blocks with bricks of four planes, whose loads the compiler moves behind stores in bf16 (H200, from 8 MiB: 4 to 6 % behind lines in fp32,
// 4 to 18 % in bf16), of one plane at 4 MiB in fp32 (3 %), blocks at 768³ (H100: 1 to 19 %), a preferred carveout of shared memory (none better).
// Lost at 768³ (H200): bricks of 4x2, 4x3, 2x2 (2 to 7 % slower), 4x1 and 8x1 (12 to 30 %); threads that walk along x with planes in registers
// (932, 476); masks in lines of 3x3 (1100 us for 908). The walk, and whole rows in shared memory by bulk copies, lose 6 to 9 % on an H100.
#include "msbench_divisor.cuh"
#include "msbench_row_packs.cuh"

namespace {

using namespace msbench;

constexpr int kPacket = Packet<scalar_t>::kSize;
template <int kBrick>  // packs of a thread
constexpr int kMostThreads = kBrick <= 2 ? 1024 : 512;  // of a block in three dimensions

struct Grid {
    int nx, ny, packs;         // packs of a row
    unsigned threads;          // that a strip and I planes need: packs of the strip times groups of J rows
    Divisor of_strip, strips;  // packs of a strip; strips beside each other
};

template <int N, int I, int J>
__global__ void __launch_bounds__(256) heat_lines(const scalar_t* __restrict__ u, scalar_t* __restrict__ out, float r, Grid grid) {
    const unsigned line = grid.strips.quotient(blockIdx.x), strip = blockIdx.x - line * grid.strips.d;
    const unsigned thread = line * blockDim.x + threadIdx.x, group = grid.of_strip.quotient(thread);
    const int pack = int(thread - group * grid.of_strip.d + strip * grid.of_strip.d);
    const int plane0 = blockIdx.y * I, row0 = int(group) * J;
    const bool inside = thread < grid.threads, first = threadIdx.x % 32 == 0, last = threadIdx.x % 32 == 31;
    // Whether this lane has to load the element beyond its pack, and where that is.
    const bool edge = inside && (first ? pack > 0 : last && pack + 1 < grid.packs);
    const int beyond = first ? -1 : N;
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
            sum_beside(here, side[i][j], first, last, sum);
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
            store_pack<true, N>(out + start + i * plane + j * width, packed<scalar_t>(next));
        }
    }
}

// A thread has I planes of J rows. Threads of a block are numbered in three dimensions, and so are blocks.
template <int N, int I, int J>
__global__ void __launch_bounds__(kMostThreads<I * J>)
    heat_blocks(const scalar_t* __restrict__ u, scalar_t* __restrict__ out, float r, int nx, int ny, int packs) {
    const unsigned lane = ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % 32;
    const int pack = int(blockIdx.x * blockDim.x + threadIdx.x), row0 = int(blockIdx.y * blockDim.y + threadIdx.y) * J;
    const int plane0 = int(blockIdx.z * blockDim.z + threadIdx.z) * I;
    // first, last: without a neighbour before, or behind.
    const bool inside = pack < packs, first = lane == 0 || threadIdx.x == 0, last = lane == 31 || threadIdx.x + 1 == blockDim.x;
    const bool edge = inside && ((first && pack > 0) || (last && pack + 1 < packs));
    const int beyond = first ? -1 : N, plane = ny * packs, start = (plane0 * ny + row0) * packs + pack;
    RawPack<scalar_t, N> raw[I + 2][J + 2];  // [i][j] is plane plane0 + i - 1, row row0 + j - 1
    scalar_t side[I][J];
#pragma unroll
    for (int i = 0; i < I + 2; ++i) {
#pragma unroll
        for (int j = 0; j < J + 2; ++j) {
            const bool own_plane = i > 0 && i <= I, own_row = j > 0 && j <= J;
            if (!own_plane && !own_row) continue;
            const bool there = inside && unsigned(plane0 + i - 1) < unsigned(nx) && unsigned(row0 + j - 1) < unsigned(ny);
            const int at = start + (i - 1) * plane + (j - 1) * packs;
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
#pragma unroll
            for (int k = 0; k < N; ++k) {
                sum[k] += (up[k] + down[k]) + (before[k] + behind[k]);
                next[k] = fmaf(r, fmaf(-6.0f, here[k], sum[k]), here[k]);
            }
            const int row = row0 + j, x = plane0 + i;
            if (!inside || row >= ny || x >= nx) continue;
            const bool outer = row == 0 || row + 1 == ny || x == 0 || x + 1 == nx;
            const auto pack_next = pack_inner<scalar_t>(next, raw[i + 1][j + 1], pack == 0, pack + 1 == packs, outer);
            store_pack<false, N>(out, pack_next, start + i * plane + j * packs);
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
    cudaError_t lines(int threads, bool narrow = false) const {
        const uint32_t packs = uint32_t(nz / N), width = narrow && packs % 32 == 0 ? 32 : packs;
        const uint32_t needed = width * uint32_t(ceil_div(ny, J));
        const Grid grid = {nx, ny, int(packs), needed, Divisor(width), Divisor(packs / width)};
        const dim3 blocks(unsigned(ceil_div(needed, threads)) * (packs / width), unsigned(ceil_div(nx, I)));
        heat_lines<N, I, J><<<blocks, threads, 0, stream>>>(u, out, r, grid);
        return cudaGetLastError();
    }

    // In three dimensions: `planes` bricks behind each other, a row in pieces of up to 32 packs, and as many rows of bricks as there are threads
    // left; fewer while there isn't a block for nearly every multiprocessor. A row of threads is a multiple of 8, so that a block has whole warps.
    template <int N, int I, int J>
    cudaError_t blocks(int threads, int planes) const {
        const int packs = nz / N, pieces = int(ceil_div(packs, 32)), x = int(ceil_div(ceil_div(packs, pieces), 8)) * 8;
        const auto count = [&](int y) { return dim3(unsigned(pieces), unsigned(ceil_div(ny, y * J)), unsigned(ceil_div(nx, planes * I))); };
        const auto enough = [&](dim3 n) { return n.x * n.y * n.z >= 128; };
        int y = threads / (x * planes);
        while (y > 1 && !enough(count(y))) y /= 2;
        heat_blocks<N, I, J><<<count(y), dim3(x, y, planes), 0, stream>>>(u, out, r, nx, ny, packs);
        return cudaGetLastError();
    }
};

}  // namespace

extern "C" cudaError_t stencil_3d(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, int64_t nz, void*,
                                  size_t, cudaStream_t stream) {
    constexpr bool kShort = sizeof(scalar_t) == 2;
    constexpr int kThreads = kShort ? 128 : 256;
    constexpr int64_t kMiB = 1 << 20;
    constexpr int kLeastPacks = 8;  // of a row in three-dimensional blocks
    const int64_t bytes = nx * ny * nz * sizeof(scalar_t);
    const Call call = {u, out, r, int(nx), int(ny), int(nz), stream};
    if (!packets_allowed(u, out) || nz % kPacket != 0) return bytes < 8 * kMiB ? call.lines<1, 2, 2>(128) : call.lines<1, 4, 4>(128);
    if (nz >= kLeastPacks * kPacket) {
#if MSBENCH_FP32
        if (bytes <= 2 * kMiB) return call.blocks<4, 1, 1>(1024, 8);
        if (bytes <= 4 * kMiB) return call.blocks<4, 2, 1>(1024, 8);
        if (bytes <= 8 * kMiB) return call.blocks<4, 2, 1>(512, 8);
        if (bytes <= 32 * kMiB) return call.blocks<4, 2, 2>(256, 4);
#else
        if (bytes <= 2 * kMiB) return call.blocks<8, 1, 1>(256, 8);
        if (bytes <= 4 * kMiB) return call.blocks<8, 2, 1>(256, 8);
        if (bytes <= 8 * kMiB) return call.blocks<8, 2, 1>(512, 8);
        if (bytes <= 16 * kMiB) return call.blocks<8, 2, 1>(512, 4);
#endif
    }
    if (bytes <= 4 * kMiB) return call.lines<kPacket, 2, 1>(256);
    if (bytes <= 64 * kMiB) return call.lines<kPacket, 4, 2>(kThreads, true);
    return call.lines<kPacket, 3, 3>(kThreads, true);
}
