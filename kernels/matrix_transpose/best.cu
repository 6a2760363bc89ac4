// B = Aᵀ for a row-major M × N matrix, every bit of it.
//
// Bound: two matrices' bytes, one launch. A tile has 256 bytes of a row on both sides, since memory moves shorter runs at a lower rate.
// A thread reads a block of kPacket × kPacket in 16-byte loads, all of them before the first use, and transposes it in its registers
// (fp32: a renaming; bf16: one byte permutation a word); shared memory then only changes which thread stores which packet. Small
// matrices have tiles of 128 bytes, so that there are some for every multiprocessor. Neighbouring blocks write along the same rows.
//
// Measured (H200, 2026-11-23) at 32768 x 16384: 1041 us in fp32 and 520 in bf16, of 1004 and 502 for a copy. Lost there: tiles of 128
// bytes (1130, 568), neighbours along the rows that are read (bf16 544), strips of tiles (1158 in fp32), plain stores (1101 in fp32),
// streaming loads (1059, 531).
//
// Rows that don't begin on 16 bytes go through a tile in shared memory element by element. With tiles of 64, and loads that had a condition
// each, 1003 x 777 took 12.3 us, of 8.2 for cuBLAS; with tiles of 32 for few and loads at once 7 by reasoning, not yet measured.

#include "msbench_packets.cuh"

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int kWide = 16, kNarrow = 8;  // packets of a tile's row
constexpr int64_t kFewTiles = 4 * 132;  // below, tiles are small
constexpr int kTileThreads = 256;

using Packet = msbench::Group<scalar_t, kPacket>;

// A block has kSide × kSide threads, and a tile of kSide·kPacket rows and columns.
template <int kSide>
__global__ void __launch_bounds__(kSide* kSide)
    transpose_packets(const scalar_t* A, scalar_t* B, int64_t M, int64_t N) {
    constexpr int kRows = kSide * kPacket;
    __shared__ Packet tile[kRows][kSide];  // of B
    const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows, column = static_cast<int64_t>(blockIdx.y) * kRows;

    Packet in[kPacket];
    if (row + y * kPacket < M && column + x * kPacket < N) {
        const scalar_t* const from = A + (row + y * kPacket) * N + column + x * kPacket;
#pragma unroll
        for (int i = 0; i < kPacket; ++i) in[i] = msbench::load_group<kPacket>(from + i * N, 0);
    }
#pragma unroll
    for (int j = 0; j < kPacket; ++j) {
        Packet out;
#pragma unroll
        for (int i = 0; i < kPacket; ++i) out.lane[i] = in[i].lane[j];
        // Eight neighbours write to eight rows: without the permutation all to the same banks.
        msbench::store_group(&tile[x * kPacket + j][y ^ (x % 8)].lane[0], 0, out);
    }
    __syncthreads();
    if (row + x * kPacket >= M) return;
#pragma unroll
    for (int j = y; j < kRows; j += kSide) {
        if (column + j >= N) break;
        const Packet out = tile[j][x ^ (j / kPacket % 8)];
        msbench::store_group_once(B + (column + j) * M + row + x * kPacket, 0, out);
    }
}

// Loads have no condition, so that all of a thread's are under way at once: beyond the edge they read the last row or column.
template <int kTile>
__global__ void __launch_bounds__(kTileThreads) transpose_elements(const scalar_t* A, scalar_t* B, int64_t M, int64_t N) {
    constexpr int kPad = 4 / sizeof(scalar_t);  // an odd number of banks a row: columns are read without conflicts
    constexpr int kStep = kTileThreads / kTile, kCount = kTile / kStep;
    __shared__ scalar_t tile[kTile][kTile + kPad];
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kTile, column = static_cast<int64_t>(blockIdx.y) * kTile;
    const int along = threadIdx.x % kTile, across = threadIdx.x / kTile;
    const scalar_t* const from = A + min(column + along, N - 1);
    scalar_t in[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) in[i] = from[min(row + across + i * kStep, M - 1) * N];
#pragma unroll
    for (int i = 0; i < kCount; ++i) tile[across + i * kStep][along] = in[i];
    __syncthreads();
    if (row + along >= M) return;
    scalar_t* const to = B + row + along;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
        const int at = across + j * kStep;
        if (column + at < N) to[(column + at) * M] = tile[along][at];
    }
}

dim3 tiles(int64_t M, int64_t N, int64_t size) {
    return dim3(static_cast<unsigned>(msbench::ceil_div(M, size)), static_cast<unsigned>(msbench::ceil_div(N, size)));
}

}  // namespace

extern "C" cudaError_t matrix_transpose(const scalar_t* A, scalar_t* B, int64_t M, int64_t N, void*, size_t,
                                        cudaStream_t stream) {
    const bool packets = M % kPacket == 0 && N % kPacket == 0 && msbench::packets_allowed(A, B);
    const dim3 wide = tiles(M, N, kWide * kPacket), narrow = tiles(M, N, kNarrow * kPacket);
    if (!packets) {
        const dim3 large = tiles(M, N, 64);
        if (static_cast<int64_t>(large.x) * large.y < kFewTiles) {
            transpose_elements<32><<<tiles(M, N, 32), kTileThreads, 0, stream>>>(A, B, M, N);
        } else {
            transpose_elements<64><<<large, kTileThreads, 0, stream>>>(A, B, M, N);
        }
    } else if (static_cast<int64_t>(wide.x) * wide.y < kFewTiles) {
        transpose_packets<kNarrow><<<narrow, kNarrow * kNarrow, 0, stream>>>(A, B, M, N);
    } else {
        transpose_packets<kWide><<<wide, kWide * kWide, 0, stream>>>(A, B, M, N);
    }
    return cudaGetLastError();
}
