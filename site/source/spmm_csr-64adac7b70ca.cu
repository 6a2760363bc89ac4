// Y = A X with A in CSR.
//
// Plans, by sizes and alignment:
// - `shares` (msbench_spmm_shares.cuh), for up to 2¹⁹ entries and K = 1024, and 2²² products at least: one launch, whose blocks have as
//   many entries each, however long rows are.
// - `tiles` (msbench_spmm_tiles.cuh), else, while X has at most 2496 rows and there is work enough: A is cut into slices of 16 rows
//   of similar length with interleaved entries, and streams past 64 bytes of each row of X that stay in shared memory. What
//   cuSPARSE reads from L2 here, 88 GB at 2¹⁸ rows and 8.4 TB/s, comes from shared memory.
// - `short` (msbench_spmm_short.cuh), else, for fewer than 2²² products that can't go in pieces of 16 bytes: all that is read is asked for
//   at once.
// - `runs` (msbench_spmm_runs.cuh), else, for 2¹⁷ rows and more: rows of X from L2, 256 bytes at a time, for eight rows of A in a stream.
// - `gather` (msbench_spmm_gather.cuh), else: rows of X from L2, 256 or 512 bytes at a time.
//
// Bound: neither bytes nor FLOPs, but reads of X: nnz * K * size at 132 * 128 B a clock from shared memory, or 7 to 8.8 TB/s
// from L2 (measured). Prototypes took 5.2 ms (fp32) and 3.0 ms (bf16) at 2¹⁸ rows, 269 and 181 us for the large case.
//
// Measured (H200, 2026-11-24, us, an empty call takes 2.8 in that loop): 16384,2048,335544,512 skewed 101 by `shares` (bf16 69), 391 (419) by
// `gather`, where one warp writes all slices of the full row. 15055 entries times 77: `gather` 7.7 (7.8), skewed 18.3 (18.9); `shares` 9.2
// (9.2) and 12.6 (12.8). So what is over in a few microseconds has no shares: entries by way of shared memory and heads of rows cost
// even matrices more there than a full row costs.

#include "msbench_spmm_gather.cuh"
#include "msbench_spmm_runs.cuh"
#include "msbench_spmm_shares.cuh"
#include "msbench_spmm_short.cuh"
#include "msbench_spmm_tiles.cuh"

constexpr int64_t kLeastShared = 1 << 22;  // products

static bool worth_shares(int64_t nnz, int64_t K) {
    return nnz * K >= kLeastShared && msbench::worth_shares(nnz, K);
}

extern "C" size_t spmm_csr_workspace(int64_t rows, int64_t cols, int64_t nnz, int64_t K) {
    if (worth_shares(nnz, K)) return msbench::shares_bytes(rows, nnz, K);
    const size_t least = std::max(msbench::gather_bytes(K), nnz * K < msbench::kMostShort ? msbench::VeryLongRows::bytes(nnz, K) : 0);
    return msbench::worth_tiles(cols, nnz, K) ? std::max(msbench::tiles_bytes(rows, nnz, K), least) : least;
}

extern "C" cudaError_t spmm_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t, cudaStream_t stream) {
    const msbench::CsrRows A = {values, col_indices, row_offsets, int(rows), int(cols), int(nnz)};
    if (worth_shares(nnz, K)) return msbench::multiply_by_shares(A, X, Y, K, workspace, stream);
    const bool pieces = msbench::packets_allowed(X, Y) && K % msbench::kPiece == 0;
    if (pieces && msbench::worth_tiles(cols, nnz, K)) {
        return msbench::multiply_by_tiles(A, X, Y, K, workspace, true, stream);
    }
    if (!pieces && nnz * K < msbench::kMostShort) return msbench::multiply_shortly(A, X, Y, K, workspace, stream);
    if (pieces && msbench::worth_runs(rows)) return msbench::multiply_by_runs(A, X, Y, K, workspace, stream);
    return msbench::gather(A, X, Y, K, workspace, true, stream);
}
