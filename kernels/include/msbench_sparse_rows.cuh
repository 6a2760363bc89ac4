// Sparse matrices as rows of entries, whatever their format: what the kernels of spmm read A through.
#pragma once

#include "msbench_entries.cuh"

namespace msbench {

// A column and a value; a column below 0 is padding.
struct Entry {
    int32_t column;
    float value;
};

// CSR, entries in two arrays.
struct CsrRows {
    static constexpr bool kUneven = true;  // one row may have most of the entries
    const scalar_t* values;
    const int32_t *columns, *offsets;
    int rows, cols, total;

    __device__ int begin(int row) const { return offsets[row]; }
    __device__ int end(int row) const { return offsets[row + 1]; }
    __device__ int count(int row) const { return offsets[row + 1] - offsets[row]; }
    __device__ Entry entry(int k) const { return {load_once(columns + k), to_float(load_once(values + k))}; }
};

// ELL: rows of `width` entries, padding last.
struct EllRows {
    static constexpr bool kUneven = false;
    const scalar_t* values;
    const int32_t* columns;
    int rows, cols, width, total;

    __device__ int begin(int row) const { return row * width; }
    __device__ int end(int row) const { return row * width + width; }
    __device__ int count(int row) const {
        if (columns[row * width + width - 1] >= 0) return width;
        int low = 0, high = width - 1;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (columns[row * width + middle] >= 0) low = middle + 1;
            else high = middle;
        }
        return low;
    }
    __device__ Entry entry(int k) const { return {load_once(columns + k), to_float(load_once(values + k))}; }
};

// Rows that a kernel has put together in the workspace.
struct PackedRows {
    static constexpr bool kUneven = true;
    const Entry* entries;
    const int32_t* offsets;
    int rows, cols, total;

    __device__ int begin(int row) const { return __ldcg(offsets + row); }
    __device__ int end(int row) const { return __ldcg(offsets + row + 1); }
    __device__ int count(int row) const { return end(row) - begin(row); }
    __device__ Entry entry(int k) const {
        const int2 raw = __ldcg(reinterpret_cast<const int2*>(entries) + k);
        return {raw.x, __int_as_float(raw.y)};
    }
};

// ---------------------------------------------------------------- pieces of rows of X and Y

constexpr int kPiece = 16 / sizeof(scalar_t);  // elements of 16 bytes

// sum += value * the elements of a piece.
__device__ inline void add_piece(uint4 raw, float value, float (&sum)[kPiece]) {
    const unsigned word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if constexpr (kPiece == 4) {
            sum[k] = fmaf(value, __uint_as_float(word[k]), sum[k]);
        } else {
            sum[2 * k] = fmaf(value, __uint_as_float(word[k] << 16), sum[2 * k]);
            sum[2 * k + 1] = fmaf(value, __uint_as_float(word[k] & 0xffff0000u), sum[2 * k + 1]);
        }
    }
}

__device__ inline Packet<scalar_t> rounded(const float (&sum)[kPiece]) {
    Packet<scalar_t> out;
#pragma unroll
    for (int k = 0; k < kPiece; ++k) out.lane[k] = from_float<scalar_t>(sum[k]);
    return out;
}

}  // namespace msbench
