// One step of the two-dimensional heat equation: out = u + r (left + right + up + down - 4 u), boundary copied.
//
// Idea: a thread owns a strip of 16 bytes times R rows, and loads all of it, and the rows above and below, before the first
// use. Then it walks down, and converts each row once. The columns left and right come from the neighbouring lanes by
// shuffle; the lanes at a warp's ends load them. Rows that are not 16-byte aligned take the same path one column a thread.
// Blocks are short-lived and numbered along the rows: DRAM likes that better than threads that walk down 16 to 256 rows with
// loads 1 to 6 rows ahead (1068 instead of 1019 us at 32768², bf16). A block's warps lie below each other, so that of the rows above
// and below a thread's own, which all come twice or more, most are in L1: so strips are short, and more of them are under way.
//
// Bound: each element read once and written once; one launch. 32768² is 1003 us in bf16 and 2006 in fp32 at an H200's copy's speed.
//
// Measured (H200, 2026-11-26, msbench bench), us cold: bf16 1024² 5.3, 1024x4096 8.4, 4096² 19.3, 4096x16384 66, 32768² 1010; fp32 6.2, 11.7, 34.1, 128,
// 2010. Blocks of 4 to 8 warps below each other, and strips of 4 rows (bf16): 1 to 4 % slower but for fp32 beyond 64 MiB. Lost (H100): warps beside
// each other, of 8 to 16 rows (1 to 2 % in bf16, 1 to 5 % in fp32), and tiles in shared memory by a bulk copy a row (2 % or more at 4096²).
#include "msbench_row_packs.cuh"

namespace {

using namespace msbench;

constexpr int kPacket = Packet<scalar_t>::kSize;

// Most threads of a block. The bounds ask for one block so that the compiler keeps all loads in front of the stores.
constexpr int bound(int rows) { return rows <= 2 ? 1024 : 256; }

// A block's threads lie beside each other in whole warps, and rows of them below each other. Blocks are numbered along the rows.
template <int N, int ROWS, bool kOnce>
__global__ void __launch_bounds__(bound(ROWS), 1)
    heat(const scalar_t* __restrict__ u, scalar_t* __restrict__ out, float r, int nx, int packs) {
    const int pack = int(blockIdx.x * blockDim.x + threadIdx.x), top = int(blockIdx.y * blockDim.y + threadIdx.y) * ROWS;
    const bool inside = pack < packs, first = threadIdx.x % 32 == 0, last = threadIdx.x % 32 == 31;
    // Whether this lane has to load the element beyond its pack, and where that is.
    const bool edge = inside && ((first && pack > 0) || (last && pack + 1 < packs));
    // Of packs. With 32 bits the compiler moves loads of single fp32 behind stores of other rows: 1003 x 777 took 7.2 us for 6.4.
    using Index = std::conditional_t<N == 1 && sizeof(scalar_t) == 4, int64_t, int>;
    const int beyond = first ? -1 : N;
    const Index start = Index(top) * packs + pack;
    RawPack<scalar_t, N> raw[ROWS + 2];  // raw[i] is row top + i - 1
    scalar_t side[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS + 2; ++i) {
        const bool there = inside && unsigned(top + i - 1) < unsigned(nx);
        const Index at = start + (i - 1) * packs;
        raw[i] = load_pack<N>(u, there, at);
        if (i > 0 && i <= ROWS) side[i - 1] = load_pack<1>(u + int64_t(at) * N + beyond, there && edge);
    }
    float up[N], here[N], down[N];
    unpack<scalar_t>(raw[0], up);
    unpack<scalar_t>(raw[1], here);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        unpack<scalar_t>(raw[i + 2], down);
        float sum[N], next[N];
        sum_beside(here, side[i], first, last, sum);
#pragma unroll
        for (int k = 0; k < N; ++k) next[k] = fmaf(r, fmaf(-4.0f, here[k], sum[k] + (up[k] + down[k])), here[k]);
        const int row = top + i;
        const auto pack_next = pack_inner<scalar_t>(next, raw[i + 1], pack == 0, pack + 1 == packs, row == 0 || row + 1 == nx);
        if (inside && row < nx) store_pack<kOnce, N>(out, pack_next, start + i * packs);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            up[k] = here[k];
            here[k] = down[k];
        }
    }
}

// `most`: threads across a block; `below`: how many such rows of threads it has.
template <int N, int ROWS, bool kOnce = false>
cudaError_t launch(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, int most, int below, cudaStream_t stream) {
    const int64_t packs = ny / N, whole = ceil_div(packs, 32) * 32;
    const dim3 threads(unsigned(whole < most ? whole : most), unsigned(below));
    const dim3 blocks(unsigned(ceil_div(packs, threads.x)), unsigned(ceil_div(nx, ROWS * below)));
    heat<N, ROWS, kOnce><<<blocks, threads, 0, stream>>>(u, out, r, int(nx), int(packs));
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t stencil_2d(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, void*, size_t,
                                  cudaStream_t stream) {
    constexpr int64_t kMiB = 1 << 20;
    const int64_t bytes = nx * ny * sizeof(scalar_t);
    if (!packets_allowed(u, out) || ny % kPacket != 0) {
        return launch<1, 8>(u, out, r, nx, ny, bytes < 4 * kMiB ? 64 : 256, 1, stream);
    }
#if MSBENCH_BF16
    if (bytes <= 8 * kMiB) return launch<kPacket, 1>(u, out, r, nx, ny, 32, 16, stream);
    if (bytes <= 32 * kMiB) return launch<kPacket, 2, true>(u, out, r, nx, ny, 32, 8, stream);
    return launch<kPacket, 4>(u, out, r, nx, ny, 64, 4, stream);
#else
    if (bytes <= 4 * kMiB) return launch<kPacket, 2>(u, out, r, nx, ny, 32, 32, stream);
    if (bytes <= 256 * kMiB) return launch<kPacket, 2>(u, out, r, nx, ny, 64, 8, stream);
    return launch<kPacket, 2>(u, out, r, nx, ny, 64, 4, stream);
#endif
}
