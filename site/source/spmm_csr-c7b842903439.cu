// Y = A X with A in CSR.
//
// Plans, by sizes and alignment:
// - `tiles` (msbench_spmm_tiles.cuh), while X has at most 2496 rows and there is work enough: A is cut into slices of eight rows
//   of similar length with interleaved entries, and streams past 64 bytes of each row of X that stay in shared memory. What
//   cuSPARSE reads from L2 here, 88 GB at 2¹⁸ rows and 8.4 TB/s, comes from shared memory.
// - `gather` (msbench_spmm_gather.cuh), else: rows of X from L2, 256 or 512 bytes at a time.
//
// Bound: neither bytes nor FLOPs, but reads of X: nnz * K * size at 132 * 128 B a clock from shared memory, or 7 to 8.8 TB/s
// from L2 (measured). Prototypes took 5.2 ms (fp32) and 3.0 ms (bf16) at 2¹⁸ rows, 269 and 181 us for the large case.

#include "msbench_spmm_gather.cuh"
#include "msbench_spmm_tiles.cuh"

extern "C" size_t spmm_csr_workspace(int64_t rows, int64_t cols, int64_t nnz, int64_t K) {
    const size_t gather = msbench::gather_bytes(K);
    return msbench::worth_tiles(cols, nnz, K) ? std::max(msbench::tiles_bytes(rows, nnz, K), gather) : gather;
}

extern "C" cudaError_t spmm_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t, cudaStream_t stream) {
    const msbench::CsrRows A = {values, col_indices, row_offsets, int(rows), int(cols), int(nnz)};
    const bool pieces = msbench::packets_allowed(X, Y) && K % msbench::kPiece == 0;
    if (pieces && msbench::worth_tiles(cols, nnz, K)) {
        return msbench::multiply_by_tiles(A, X, Y, K, workspace, true, stream);
    }
    return msbench::gather(A, X, Y, K, workspace, true, stream);
}
