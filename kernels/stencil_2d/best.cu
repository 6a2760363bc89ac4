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
// The launch bounds ask for one block so that the compiler keeps all loads in front of the stores.
//
// Measured (H100, 2026-11-25), us cold, a copy in brackets: bf16 1024x4096 9.9 (9.5), 4096² 23.3 (22.4), 4096x16384 89.6 (89.0), 32768² 1418 (1415);
// fp32 13.9 (13.4), 45.1 (44.0), 178 (177), 2847 (2830). Lost to them: warps beside each other, of 8 to 16 rows (1 to 2 % in bf16, 1 to 5 % in fp32),
// and tiles in shared memory by a bulk copy a row (2 % or more at 4096²).
#include "msbench_row_packs.cuh"

namespace {

using namespace msbench;

constexpr int kPacket = Packet<scalar_t>::kSize;

// Threads are numbered along the rows, and so are blocks: `across` of them have the same rows. A block's warps lie below each other.
template <int N, int ROWS, bool kOnce>
__global__ void __launch_bounds__(256, 1) heat(const scalar_t* __restrict__ u, scalar_t* __restrict__ out, float r, int nx,
                                               int ny, unsigned across) {
    const int packs = ny / N, lane = threadIdx.x % 32;
    const int pack = int(blockIdx.x % across * blockDim.x + threadIdx.x);
    const int first = int(blockIdx.x / across * blockDim.y + threadIdx.y) * ROWS;
    const bool inside = pack < packs;
    // Whether this lane has to load the element beyond its pack, and where that is.
    const bool edge = inside && (lane == 0 ? pack > 0 : lane == 31 && pack + 1 < packs);
    const int beyond = lane == 0 ? -1 : N;
    const int64_t start = int64_t(first) * ny + int64_t(pack) * N;
    RawPack<scalar_t, N> raw[ROWS + 2];  // raw[i] is row first + i - 1
    scalar_t side[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS + 2; ++i) {
        const bool there = inside && unsigned(first + i - 1) < unsigned(nx);
        const scalar_t* const p = u + start + (i - 1) * ny;
        raw[i] = load_pack<N>(p, there);
        if (i > 0 && i <= ROWS) side[i - 1] = load_pack<1>(p + beyond, there && edge);
    }
    float up[N], here[N], down[N];
    unpack<scalar_t>(raw[0], up);
    unpack<scalar_t>(raw[1], here);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        unpack<scalar_t>(raw[i + 2], down);
        float sum[N], next[N];
        sum_beside(here, side[i], sum);
        const int row = first + i;
        const bool inner = row > 0 && row + 1 < nx;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            next[k] = inner ? fmaf(r, fmaf(-4.0f, here[k], sum[k] + (up[k] + down[k])), here[k]) : here[k];
        }
        if (pack == 0) next[0] = here[0];
        if (pack + 1 == packs) next[N - 1] = here[N - 1];
        if (inside && row < nx) store_pack<kOnce>(out + start + i * ny, next);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            up[k] = here[k];
            here[k] = down[k];
        }
    }
}

// `most`: threads across a block; `below`: how many such rows of threads it has.
template <int N, int ROWS, bool kOnce = true>
cudaError_t launch(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, int most, int below, cudaStream_t stream) {
    const int64_t packs = ny / N, whole = ceil_div(packs, 32) * 32;
    const dim3 threads(unsigned(whole < most ? whole : most), unsigned(below));
    const unsigned across = unsigned(ceil_div(packs, threads.x)), strips = unsigned(ceil_div(nx, ROWS * below));
    heat<N, ROWS, kOnce><<<across * strips, threads, 0, stream>>>(u, out, r, int(nx), int(ny), across);
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
    if (bytes < 4 * kMiB) return launch<kPacket, 2, false>(u, out, r, nx, ny, 32, 4, stream);
    if (bytes <= 32 * kMiB) return launch<kPacket, 4>(u, out, r, nx, ny, 32, 4, stream);
    return launch<kPacket, 4, false>(u, out, r, nx, ny, 64, 4, stream);
#else
    if (bytes <= 64 * kMiB) return launch<kPacket, 2, false>(u, out, r, nx, ny, 32, 8, stream);
    return launch<kPacket, 2, false>(u, out, r, nx, ny, 64, 4, stream);
#endif
}
