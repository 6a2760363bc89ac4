// Y = A X with A in CSC.
//
// Plans, by sizes (msbench_spmm_packed.cuh):
//
// - `scanned`, for few products in bf16: one launch, whose blocks look for the entries of their own rows among all (msbench_spmm_scan.cuh),
//   unless a sample of the entries shows that few rows have most of them; then, and in fp32,
// - `direct`: one cooperative launch, whose blocks have as many entries each, in order by row, and add to fp32 sums in L2 where the row changes
//   (msbench_spmm_direct.cuh).
// - `counted`, for up to 2¹⁹ entries and K = 1024: rows are brought together by counting, with equal shares for all blocks
//   (msbench_count_rows.cuh), and multiplied out of L2 as spmm_csr does it, long rows in equal shares, too.
// - Else entries are brought together by bins of rows, which a block puts in order in shared memory (msbench_sorted_bins.cuh). For narrow X it
//   multiplies them right there, by rows of X from L2 (msbench_spmm_bins.cuh). For wide X it slices them for tiles of X in shared memory,
//   of all rows of X up to 2496, else, in fp32, of 2752 at a time (msbench_spmm_chunks.cuh). What is left is packed by rows,
//   and gathered from L2.
//
// `direct` and `counted` are for matrices whose rows may be of any length: with bins alone a full row made skewed matrices take 2.6 to 8 times
// as long as the faster baseline (H200, 2026-11-24; 2048,16384,335544,512 skewed: 0.86 ms before, 0.11 now; 15055 entries times 77: 22, now 11.4 us).
//
// Bound: that of spmm_csr, and about 30 bytes an entry for bins; of `direct` a launch, two trips to memory, a grid barrier (two in
// bf16) and the additions: about 8 us by reckoning, 11 measured.

#include "msbench_spmm_packed.cuh"

extern "C" size_t spmm_csc_workspace(int64_t rows, int64_t cols, int64_t nnz, int64_t K) {
    return msbench::packed_workspace(rows, cols, nnz, K);
}

extern "C" cudaError_t spmm_csc(const scalar_t* values, const int32_t* row_indices, const int32_t* col_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t, cudaStream_t stream) {
    const msbench::CscMatrix A = {values, row_indices, col_offsets, int(rows), int(cols), int(nnz)};
    return msbench::multiply_packed(A, X, Y, K, workspace, stream);
}
