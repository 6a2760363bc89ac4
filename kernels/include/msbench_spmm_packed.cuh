// Y = A X for formats that don't have rows together: they are packed first, then multiplied like CSR.
#pragma once

#include "msbench_pack_rows.cuh"
#include "msbench_spmm_gather.cuh"
#include "msbench_spmm_tiles.cuh"

namespace msbench {

inline size_t packed_workspace(int64_t rows, int64_t cols, int64_t total, int64_t K) {
    size_t room = std::max(bins_bytes(total), gather_bytes(K));  // bins are read no more when rows are multiplied
    if (worth_tiles(cols, total, K)) room = std::max(room, tiles_bytes(rows, total, K));
    return packed_bytes(rows, total) + room;
}

template <typename Matrix>
cudaError_t multiply_packed(const Matrix& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    PackedRows rows;
    const cudaError_t error = A.total >= kManyEntries ? pack_rows<768>(A, workspace, &rows, stream)
                                                      : pack_rows<256>(A, workspace, &rows, stream);
    if (error != cudaSuccess) return error;
    void* room = static_cast<char*>(workspace) + packed_bytes(A.rows, A.total);
    const bool pieces = packets_allowed(X, Y) && K % kPiece == 0;
    if (pieces && worth_tiles(A.cols, A.total, K)) return multiply_by_tiles(rows, X, Y, K, room, false, stream);
    return gather(rows, X, Y, K, room, false, stream);
}

}  // namespace msbench
