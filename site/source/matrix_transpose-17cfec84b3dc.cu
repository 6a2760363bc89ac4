// B = A^T for a row-major M x N matrix.
//
// Idea: a thread reads a 4 x 4 block in 4 16-byte loads, transposes it in its registers (a renaming, no instructions)
// and writes it in 4 16-byte stores: no shared memory and no barrier. Lanes are laid out 4 x 8, so that a warp reads
// whole 128-byte lines of A, and a block of four warps, one below the other, writes runs of 256 bytes of B. This needs
// rows of A and of B that start on 16 bytes; other matrices go through a tile in shared memory, whose row stride is an
// odd number of 4-byte banks, so that its columns are read without conflicts.
//
// Bound: 8 bytes an element, no flops; one launch.

#include "msbench.cuh"

namespace {

constexpr int WIDTH = 16 / sizeof(scalar_t);        // elements of a 16-byte access
constexpr int LANES_X = 8, LANES_Y = 4, WARPS = 4;  // register path
constexpr int BLOCK_X = LANES_X * WIDTH, BLOCK_Y = WARPS * LANES_Y * WIDTH;
constexpr int TILE = 64, TILE_THREADS = 256;  // shared-memory path
constexpr int PAD = 4 / sizeof(scalar_t);

struct alignas(16) Pack {
    scalar_t v[WIDTH];
};

__global__ void __launch_bounds__(32 * WARPS)
    transpose_registers(const scalar_t* A, scalar_t* B, int64_t m, int64_t n) {
    const unsigned blocks_x = unsigned((n + BLOCK_X - 1) / BLOCK_X);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t column = int64_t(blockIdx.x % blocks_x) * BLOCK_X + lane % LANES_X * WIDTH;
    const int64_t row = int64_t(blockIdx.x / blocks_x) * BLOCK_Y + (warp * LANES_Y + lane / LANES_X) * WIDTH;
    if (row >= m || column >= n) return;

    Pack in[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(A + (row + i) * n + column));
        in[i] = reinterpret_cast<const Pack&>(raw);
    }
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
        Pack out;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) out.v[i] = in[i].v[j];
        // A plain assignment of the pack would be compiled to four 4-byte stores.
        __stcg(reinterpret_cast<uint4*>(B + (column + j) * m + row), reinterpret_cast<const uint4&>(out));
    }
}

__global__ void __launch_bounds__(TILE_THREADS) transpose_tile(const scalar_t* A, scalar_t* B, int64_t m, int64_t n) {
    __shared__ scalar_t tile[TILE][TILE + PAD];
    const unsigned tiles_x = unsigned((n + TILE - 1) / TILE);
    const int64_t column = int64_t(blockIdx.x % tiles_x) * TILE, row = int64_t(blockIdx.x / tiles_x) * TILE;
    const int along = threadIdx.x % TILE, across = threadIdx.x / TILE;
#pragma unroll
    for (int i = 0; i < TILE; i += TILE_THREADS / TILE) {
        const int64_t from_row = row + across + i, from_column = column + along;
        if (from_row < m && from_column < n) tile[across + i][along] = A[from_row * n + from_column];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TILE; j += TILE_THREADS / TILE) {
        const int64_t to_row = column + across + j, to_column = row + along;
        if (to_row < n && to_column < m) B[to_row * m + to_column] = tile[along][across + j];
    }
}

}  // namespace

extern "C" cudaError_t matrix_transpose(const scalar_t* A, scalar_t* B, int64_t M, int64_t N, void*, size_t,
                                        cudaStream_t stream) {
    const bool aligned = (uintptr_t(A) | uintptr_t(B)) % 16 == 0 && M % WIDTH == 0 && N % WIDTH == 0;
    if (aligned) {
        const int64_t blocks = (N + BLOCK_X - 1) / BLOCK_X * ((M + BLOCK_Y - 1) / BLOCK_Y);
        transpose_registers<<<unsigned(blocks), 32 * WARPS, 0, stream>>>(A, B, M, N);
    } else {
        const int64_t tiles = (N + TILE - 1) / TILE * ((M + TILE - 1) / TILE);
        transpose_tile<<<unsigned(tiles), TILE_THREADS, 0, stream>>>(A, B, M, N);
    }
    return cudaGetLastError();
}
