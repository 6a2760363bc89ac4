// Y = A X for formats that don't have rows together. Plans, by sizes:
//
// - `scanned` (msbench_spmm_scan.cuh), for few products in bf16: one launch, whose blocks look for the entries of their rows among all.
// - `direct` (msbench_spmm_direct.cuh), for few products else: one launch, sums in L2.
// - `counted`, for up to 2¹⁹ entries, 32768 rows and 1024 columns of X: rows are packed by counts (msbench_count_rows.cuh), and multiplied
//   in equal shares (msbench_spmm_shares.cuh) or, where X is large, by gathers, however long rows are.
// - `bins` (msbench_spmm_bins.cuh), for narrow X: bins of rows are put in order in shared memory and multiplied from there.
// - `tiles` and `chunks` (msbench_spmm_chunks.cuh), for wide X: bins are put in order in shared memory and sliced from there, for tiles of X in
//   shared memory. Chunks, where X has too many rows for a tile, in fp32 only.
// - `packed`, else: rows are packed through bins (msbench_pack_rows.cuh), then multiplied as spmm_csr does it.
//
// The limits of `direct` and `counted` are by reckoning. Rows that are even and many columns would rather have
// tiles; a launcher can't see which it has, so the limit lies where packing weighs as much as what tiles gain.
#pragma once

#include "msbench_count_rows.cuh"
#include "msbench_pack_rows.cuh"
#include "msbench_spmm_bins.cuh"
#include "msbench_spmm_chunks.cuh"
#include "msbench_spmm_direct.cuh"
#include "msbench_spmm_gather.cuh"
#include "msbench_spmm_scan.cuh"
#include "msbench_spmm_shares.cuh"

namespace msbench {

enum class PackedPlan { kScanned, kDirect, kCounted, kBins, kTiles, kChunks, kPacked };

constexpr int64_t kMostCountedColumns = 1024;
// Bytes of X up to which it is read from L2 by shares, all columns at once; else by gathers, a few columns at a time.
constexpr int64_t kMostSharedX = 24 << 20;
// Shares of long rows: more than kMostShares, so that the blocks that start last are done soon (656 of 335544 entries instead of 2622).
constexpr int kCountedShares = 512;

inline bool counted_by_shares(int64_t cols, int64_t K) {
    return cols * K * int64_t(sizeof(scalar_t)) <= kMostSharedX;
}

// `pieces`: X and Y are aligned to 16 bytes, and K is a multiple of kPiece.
inline PackedPlan packed_plan(int64_t rows, int64_t cols, int64_t total, int64_t K, bool pieces) {
    if (!std::is_same_v<scalar_t, float> && worth_scanning(rows, cols, total, K)) return PackedPlan::kScanned;
    if (worth_direct(rows, total, K)) return PackedPlan::kDirect;
    if (rows <= kMostCountedRows && total <= kMostCountedEntries && K <= kMostCountedColumns) return PackedPlan::kCounted;
    if (pieces && worth_bins(rows, total, K)) return PackedPlan::kBins;
    if (pieces && worth_tiles(cols, total, K) && windows_fit(rows, total, kChunkWindow)) return PackedPlan::kTiles;
    if (pieces && worth_chunks(rows, cols, total, K)) return PackedPlan::kChunks;
    return PackedPlan::kPacked;
}

inline size_t plan_workspace(PackedPlan plan, int64_t rows, int64_t cols, int64_t total, int64_t K) {
    switch (plan) {
        case PackedPlan::kScanned:
        case PackedPlan::kDirect: return direct_bytes(rows, K);
        // What packing takes is read no more when rows are multiplied.
        case PackedPlan::kCounted:
            return packed_bytes(rows, total) + std::max(RowCounts::bytes(rows, total), counted_by_shares(cols, K)
                                                                                            ? shares_bytes(rows, total, K)
                                                                                            : gather_bytes(K, kCountedShares));
        case PackedPlan::kBins: return multiply_bins_bytes(rows, total, K);
        case PackedPlan::kTiles: return bin_tiles_bytes(rows, total, K);
        case PackedPlan::kChunks: return chunks_bytes(rows, cols, total, K);
        default: break;
    }
    size_t room = std::max(bins_bytes(rows, total), gather_bytes(K));
    if (worth_tiles(cols, total, K)) room = std::max(room, tiles_bytes(rows, total, K));
    return packed_bytes(rows, total) + room;
}

inline size_t packed_workspace(int64_t rows, int64_t cols, int64_t total, int64_t K) {
    const auto needed = [&](bool pieces) { return plan_workspace(packed_plan(rows, cols, total, K, pieces), rows, cols, total, K); };
    return std::max(needed(false), K % kPiece == 0 ? needed(true) : 0);
}

template <typename Matrix>
cudaError_t multiply_packed(const Matrix& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    const bool pieces = packets_allowed(X, Y) && K % kPiece == 0;
    const PackedPlan plan = packed_plan(A.rows, A.cols, A.total, K, pieces);
    if (plan == PackedPlan::kScanned) return multiply_by_scanning(A, X, Y, K, workspace, stream);
    if (plan == PackedPlan::kDirect) return multiply_directly(A, X, Y, K, workspace, stream);
    if (plan == PackedPlan::kBins) return multiply_by_bins(A, X, Y, K, workspace, stream);
    if (plan == PackedPlan::kTiles) return multiply_by_bin_tiles(A, X, Y, K, workspace, stream);
    if constexpr (std::is_same_v<scalar_t, float>) {
        if (plan == PackedPlan::kChunks) return multiply_by_chunks(A, X, Y, K, workspace, stream);
    }
    PackedRows rows;
    void* room = static_cast<char*>(workspace) + packed_bytes(A.rows, A.total);
    if (plan == PackedPlan::kCounted) {
        const cudaError_t error = pack_rows_by_counts(A, workspace, &rows, stream);
        if (error != cudaSuccess) return error;
        if (counted_by_shares(A.cols, K)) return multiply_by_shares(rows, X, Y, K, room, stream);
        return gather(rows, X, Y, K, room, true, stream, kCountedShares);  // not early: nothing is known of that behind a cooperative grid
    }
    const cudaError_t error = pack_rows(A, workspace, &rows, stream);
    if (error != cudaSuccess) return error;
    if (pieces && worth_tiles(A.cols, A.total, K)) return multiply_by_tiles(rows, X, Y, K, room, false, stream);
    return gather(rows, X, Y, K, room, false, stream);
}

}  // namespace msbench
