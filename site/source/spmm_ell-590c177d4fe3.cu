// Y = A X with A in ELL.
//
// Plans, by sizes and alignment:
// - `tiles` (msbench_spmm_tiles.cuh), while X has at most 2496 rows and there is work enough: A without its padding is cut into
//   slices of 16 rows of similar length with interleaved entries, and streams past 64 bytes of each row of X that stay in shared
//   memory.
// - `chunks` (msbench_spmm_chunks.cuh), else, in fp32, while K is wide enough: the same for 2752 rows of X at a time, whose sums are added up
//   in Y.
// - `short` (msbench_spmm_short.cuh), else, for fewer than 2²² products of short rows that can't go in pieces of 16 bytes: all that is read
//   is asked for at once.
// - `gather` (msbench_spmm_gather.cuh), else: rows of X from L2, 256 or 512 bytes at a time. In bf16 chunks took 330 us where gathers take 293
//   (2048 rows times 16384 columns, K = 4096, H200).
//
// Bound: neither bytes nor FLOPs, but reads of X: rows * w * K * size at 132 * 128 B a clock from shared memory, or 7 to
// 8.8 TB/s from L2 (measured).

#include "msbench_spmm_chunks.cuh"
#include "msbench_spmm_gather.cuh"
#include "msbench_spmm_short.cuh"

extern "C" size_t spmm_ell_workspace(int64_t rows, int64_t cols, int64_t w, int64_t K) {
    if (msbench::worth_tiles(cols, rows * w, K)) return msbench::tiles_bytes(rows, rows * w, K);
    return msbench::worth_chunks(rows, cols, rows * w, K) ? msbench::chunks_bytes(rows, cols, rows * w, K) : 0;
}

extern "C" cudaError_t spmm_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* X, scalar_t* Y, int64_t rows,
                                int64_t cols, int64_t w, int64_t K, void* workspace, size_t, cudaStream_t stream) {
    const msbench::EllRows A = {values, col_ids, int(rows), int(cols), int(w), int(rows * w)};
    const bool pieces = msbench::packets_allowed(X, Y) && K % msbench::kPiece == 0;
    if (pieces && msbench::worth_tiles(cols, rows * w, K)) {
        return msbench::multiply_by_tiles(A, X, Y, K, workspace, true, stream);
    }
    if (pieces && msbench::worth_chunks(rows, cols, rows * w, K)) {
        const msbench::EllMatrix entries = {values, col_ids, int(rows), int(cols), int(w), int(rows * w)};
        return msbench::multiply_by_chunks(entries, X, Y, K, workspace, stream);
    }
    if (!pieces && rows * w * K < msbench::kMostShort && w <= msbench::kLongShort) {
        return msbench::multiply_shortly(A, X, Y, K, workspace, stream);
    }
    return msbench::gather(A, X, Y, K, workspace, true, stream);
}
