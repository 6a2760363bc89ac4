// Sparse matrix in ELL times a vector by cuSPARSE's generic SpMV in Sliced-ELL. A slice is stored by columns, so that slices of
// one row are ELL as it is, padding of -1 included; only their offsets have to be made.
// msbench: link cusparse
#include "msbench_cusparse.cuh"

constexpr msbench::Way kWays[] = {{CUSPARSE_FORMAT_SLICED_ELLPACK, CUSPARSE_SPMV_SELL_ALG1, CUDA_R_32F}};

static __global__ void fill_offsets(int32_t* slice_offsets, int64_t rows, int64_t w) {
    const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (row <= rows) slice_offsets[row] = static_cast<int32_t>(row * w);
}

struct Room {
    msbench::Parts parts;
    char* staging;
    int32_t* slice_offsets;
    msbench::Multiplication multiplication;

    Room(void* workspace, const msbench::SparseSizes& sizes)
        : parts(workspace),
          staging(parts.take<char>(msbench::Staging::room(sizes.nnz * sizeof(scalar_t)) +
                                   msbench::Staging::room(sizes.nnz * sizeof(int32_t)))),
          slice_offsets(parts.take<int32_t>(sizes.rows + 1)),
          multiplication(parts, kWays, sizes) {}
};

extern "C" size_t spmv_ell_workspace(int64_t rows, int64_t cols, int64_t w) {
    return Room(nullptr, {rows, cols, rows * w, 0}).parts.bytes();
}

extern "C" cudaError_t spmv_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t cols, int64_t w, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    const msbench::SparseSizes sizes{rows, cols, rows * w, 0};
    Room room(workspace, sizes);
    return msbench::run_fastest(kWays, sizes, stream, [&](const msbench::Way& way, bool first) {
        constexpr int kThreads = 256;
        msbench::Staging staging(room.staging, stream);
        const msbench::SparseArrays A{room.slice_offsets, staging.input(col_ids, rows * w * sizeof(int32_t)),
                                      staging.input(values, rows * w * sizeof(scalar_t))};
        MSBENCH_CUDA(staging.finish());
        fill_offsets<<<msbench::ceil_div(rows + 1, kThreads), kThreads, 0, stream>>>(room.slice_offsets, rows, w);
        return room.multiplication.run(way, A, x, y, first, stream);
    });
}
