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
// Rows that don't begin on 16 bytes go through a tile in shared memory element by element.

#include "msbench_packets.cuh"

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int kWide = 16, kNarrow = 8;  // packets of a tile's row
constexpr int64_t kFewTiles = 4 * 132;  // below, tiles are narrow
constexpr int kTile = 64, kTileThreads = 256;

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

__global__ void __launch_bounds__(kTileThreads) transpose_elements(const scalar_t* A, scalar_t* B, int64_t M, int64_t N) {
    constexpr int kPad = 4 / sizeof(scalar_t);  // an odd number of banks a row: columns are read without conflicts
    __shared__ scalar_t tile[kTile][kTile + kPad];
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kTile, column = static_cast<int64_t>(blockIdx.y) * kTile;
    const int along = threadIdx.x % kTile, across = threadIdx.x / kTile;
#pragma unroll
    for (int i = across; i < kTile; i += kTileThreads / kTile) {
        if (row + i < M && column + along < N) tile[i][along] = A[(row + i) * N + column + along];
    }
    __syncthreads();
#pragma unroll
    for (int j = across; j < kTile; j += kTileThreads / kTile) {
        if (column + j < N && row + along < M) B[(column + j) * M + row + along] = tile[along][j];
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
        transpose_elements<<<tiles(M, N, kTile), kTileThreads, 0, stream>>>(A, B, M, N);
    } else if (static_cast<int64_t>(wide.x) * wide.y < kFewTiles) {
        transpose_packets<kNarrow><<<narrow, kNarrow * kNarrow, 0, stream>>>(A, B, M, N);
    } else {
        transpose_packets<kWide><<<wide, kWide * kWide, 0, stream>>>(A, B, M, N);
    }
    return cudaGetLastError();
}
