// The entries of a sparse matrix sorted by row, with cub::DeviceRadixSort: what cuSPARSE wants of COO, and half of a
// conversion to CSR.
#pragma once

#include <cub/device/device_radix_sort.cuh>

#include <cstdint>

#include "msbench_cusparse.cuh"

namespace msbench {

// The column of entry k: its own, or in a compressed format the last line that starts at or before k.
struct ListedColumn {
    const int32_t* cols;
    __device__ int32_t operator()(int64_t k) const { return cols[k]; }
};

struct CompressedColumn {
    const int32_t* offsets;
    int64_t count;
    __device__ int32_t operator()(int64_t k) const {
        int64_t low = 0, high = count;  // offsets[low] <= k < offsets[high]
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            (offsets[middle] <= k ? low : high) = middle;
        }
        return static_cast<int32_t>(low);
    }
};

// Column and value travel together through the sort.
struct ColumnAndValue {
    int32_t col;
    float value;
};

template <typename Column>
__global__ void pack_entries(const scalar_t* values, Column column, ColumnAndValue* packed, int64_t nnz) {
    const int64_t k = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (k < nnz) packed[k] = {column(k), to_float(values[k])};
}

static __global__ void unpack_entries(const ColumnAndValue* packed, int32_t* cols, scalar_t* values, int64_t nnz) {
    const int64_t k = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (k >= nnz) return;
    cols[k] = packed[k].col;
    values[k] = from_float<scalar_t>(packed[k].value);
}

class SortedEntries {
   public:
    // Takes what it needs from the workspace; `parts` may be counting.
    SortedEntries(Parts& parts, int64_t rows, int64_t nnz) : nnz_(nnz) {
        while (end_bit_ < 31 && (int64_t{1} << end_bit_) < rows) ++end_bit_;
        rows_ = parts.take<int32_t>(nnz);
        cols_ = parts.take<int32_t>(nnz);
        values_ = parts.take<scalar_t>(nnz);
        packed_ = parts.take<ColumnAndValue>(nnz);
        packed_sorted_ = parts.take<ColumnAndValue>(nnz);
        if (radix_sort(nullptr, nullptr, nullptr) != cudaSuccess) temporary_bytes_ = 0;
        temporary_ = parts.take<char>(temporary_bytes_);
    }

    // Column: ListedColumn or CompressedColumn.
    template <typename Column>
    cudaError_t sort(const scalar_t* values, const int32_t* row_indices, Column column, cudaStream_t stream) {
        constexpr int kThreads = 256;
        const int64_t blocks = ceil_div(nnz_, kThreads);
        pack_entries<<<blocks, kThreads, 0, stream>>>(values, column, packed_, nnz_);
        MSBENCH_CUDA(radix_sort(temporary_, row_indices, stream));
        unpack_entries<<<blocks, kThreads, 0, stream>>>(packed_sorted_, cols_, values_, nnz_);
        return cudaGetLastError();
    }

    // As COO.
    SparseArrays entries() const { return {rows_, cols_, values_}; }

    // As CSR, with row offsets that this computes.
    cudaError_t compress(int32_t* row_offsets, int64_t rows, SparseArrays* A, cudaStream_t stream) const {
        cusparseHandle_t handle = nullptr;
        MSBENCH_CUDA(cusparse_handle(stream, &handle));
        CUSPARSE(cusparseXcoo2csr(handle, rows_, static_cast<int>(nnz_), static_cast<int>(rows), row_offsets,
                                  CUSPARSE_INDEX_BASE_ZERO));
        *A = {row_offsets, cols_, values_};
        return cudaSuccess;
    }

   private:
    cudaError_t radix_sort(void* temporary, const int32_t* row_indices, cudaStream_t stream) {
        return cub::DeviceRadixSort::SortPairs(temporary, temporary_bytes_, row_indices, rows_, packed_, packed_sorted_,
                                               static_cast<int>(nnz_), 0, end_bit_, stream);
    }

    int64_t nnz_;
    int end_bit_ = 1;
    int32_t* rows_ = nullptr;
    int32_t* cols_ = nullptr;
    scalar_t* values_ = nullptr;
    ColumnAndValue* packed_ = nullptr;
    ColumnAndValue* packed_sorted_ = nullptr;
    char* temporary_ = nullptr;
    size_t temporary_bytes_ = 0;
};

}  // namespace msbench
