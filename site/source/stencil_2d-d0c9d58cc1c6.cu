// One step of the two-dimensional heat equation: out = u + r (left + right + up + down - 4 u), boundary copied.
//
// Idea: a thread owns a strip of 16 bytes times R rows, and loads all of it, and the rows above and below, before the first
// use. Then it walks down, and converts each row once. The columns left and right come from the neighbouring lanes by
// shuffle; the lanes at a warp's ends load them. Rows that are not 16-byte aligned take the same path one column a thread.
// Blocks are short-lived and numbered along the rows: DRAM likes that better than threads that walk down 16 to 256 rows with
// loads 1 to 6 rows ahead (1068 instead of 1019 us at 32768², bf16).
//
// Bound: each element read once and written once; one launch. 32768² is 1003 us in bf16 and 2006 in fp32 at a copy's speed.
// The launch bounds ask for one block so that the compiler keeps all loads in front of the stores: with two more blocks it
// sinks some (72 registers instead of 96), and 32768² takes 1040 us.
//
// Measured (H200, 2026-11-23), us cold: bf16 1024² 5.7, 4096² 20.1, 16384² 266, 32768² 1059 (1019 with 8 rows in an earlier session); fp32 1024² 6.4,
// 4096² 35.2, 16384² 512, 32768² 2038. Rows and threads were swept; those next to the ones here lose 0 to 3 %, 16 rows in fp32 at 16 MiB 7 %.
#include "msbench_row_packs.cuh"

namespace {

using namespace msbench;

constexpr int kPacket = Packet<scalar_t>::kSize;

// Blocks are numbered along the rows: `across` of them a strip.
template <int N, int ROWS>
__global__ void __launch_bounds__(256, 1) heat(const scalar_t* __restrict__ u, scalar_t* __restrict__ out, float r, int nx,
                                               int ny, unsigned across) {
    const int packs = ny / N, lane = threadIdx.x % 32;
    const int pack = int(blockIdx.x % across * blockDim.x + threadIdx.x), first = int(blockIdx.x / across) * ROWS;
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
        if (inside && row < nx) store_pack(out + start + i * ny, next);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            up[k] = here[k];
            here[k] = down[k];
        }
    }
}

template <int N, int ROWS>
cudaError_t launch(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, int most, cudaStream_t stream) {
    const int64_t packs = ny / N, whole = ceil_div(packs, 32) * 32;
    const unsigned threads = unsigned(whole < most ? whole : most), across = unsigned(ceil_div(packs, threads));
    heat<N, ROWS><<<across * unsigned(ceil_div(nx, ROWS)), threads, 0, stream>>>(u, out, r, int(nx), int(ny), across);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t stencil_2d(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, void*, size_t,
                                  cudaStream_t stream) {
    constexpr int64_t kMiB = 1 << 20;
    const int64_t bytes = nx * ny * sizeof(scalar_t);
    if (!packets_allowed(u, out) || ny % kPacket != 0) {
        return launch<1, 8>(u, out, r, nx, ny, bytes < 4 * kMiB ? 64 : 256, stream);
    }
    if (bytes < 4 * kMiB) return launch<kPacket, 2>(u, out, r, nx, ny, 128, stream);
#if MSBENCH_BF16
    if (bytes <= 32 * kMiB) return launch<kPacket, 4>(u, out, r, nx, ny, 128, stream);
    return launch<kPacket, 8>(u, out, r, nx, ny, bytes < 1024 * kMiB ? 128 : 256, stream);
#else
    if (bytes <= 256 * kMiB) return launch<kPacket, 8>(u, out, r, nx, ny, 128, stream);
    if (bytes <= 1024 * kMiB) return launch<kPacket, 16>(u, out, r, nx, ny, 128, stream);
    return launch<kPacket, 12>(u, out, r, nx, ny, 256, stream);
#endif
}
