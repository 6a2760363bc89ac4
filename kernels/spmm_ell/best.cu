// Y = A X with A in ELL.
//
// Plans, by sizes and alignment:
// - `tiles` (msbench_spmm_tiles.cuh), while X has at most 2496 rows and there is work enough: A without its padding is cut into
//   slices of eight rows of similar length with interleaved entries, and streams past 64 bytes of each row of X that stay in shared
//   memory.
// - `short` (msbench_spmm_short.cuh), else, for fewer than 2²² products of short rows that can't go in pieces of 16 bytes: all that is read
//   is asked for at once.
// - `gather` (msbench_spmm_gather.cuh), else: rows of X from L2, 256 or 512 bytes at a time. Tiles of X in several parts were
//   no faster in fp32 and slower in bf16 (a prototype, 4096 to 16384 columns).
//
// Bound: neither bytes nor FLOPs, but reads of X: rows * w * K * size at 132 * 128 B a clock from shared memory, or 7 to
// 8.8 TB/s from L2 (measured).

#include "msbench_spmm_gather.cuh"
#include "msbench_spmm_short.cuh"
#include "msbench_spmm_tiles.cuh"

extern "C" size_t spmm_ell_workspace(int64_t rows, int64_t cols, int64_t w, int64_t K) {
    return msbench::worth_tiles(cols, rows * w, K) ? msbench::tiles_bytes(rows, rows * w, K) : 0;
}

extern "C" cudaError_t spmm_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* X, scalar_t* Y, int64_t rows,
                                int64_t cols, int64_t w, int64_t K, void* workspace, size_t, cudaStream_t stream) {
    const msbench::EllRows A = {values, col_ids, int(rows), int(cols), int(w), int(rows * w)};
    const bool pieces = msbench::packets_allowed(X, Y) && K % msbench::kPiece == 0;
    if (pieces && msbench::worth_tiles(cols, rows * w, K)) {
        return msbench::multiply_by_tiles(A, X, Y, K, workspace, true, stream);
    }
    if (!pieces && rows * w * K < msbench::kMostShort && w <= msbench::kLongShort) {
        return msbench::multiply_shortly(A, X, Y, K, workspace, stream);
    }
    return msbench::gather(A, X, Y, K, workspace, true, stream);
}
