// Matrix times vector as a cuBLASLt product with one column. The first call with a shape runs every algorithm that the heuristics
// propose, for the vector as a column on the right and as a row on the left, and keeps the fastest; later calls only launch it.
// msbench: link cublasLt
#include "msbench_cublaslt.cuh"

extern "C" size_t matrix_vector_mul_workspace(int64_t M, int64_t N) {
    return msbench::cublaslt::kWorkspaceBytes;
}

extern "C" cudaError_t matrix_vector_mul(const scalar_t* A, const scalar_t* x, scalar_t* y, int64_t M, int64_t N,
                                         void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    using Key = std::array<int64_t, 5>;
    enum Way { kUnknown, kColumn, kRow };
    static std::map<Key, Way> ways;
    const auto column = [&] { return msbench::cublaslt::multiply({M, 1, N}, 1, A, x, y, workspace, stream); };
    // yᵀ = xᵀ·Aᵀ
    const auto row = [&] { return msbench::cublaslt::multiply({1, M, N, false, true}, 1, x, A, y, workspace, stream); };
    Way& way = ways[Key{M, N, msbench::alignment(A), msbench::alignment(x), msbench::alignment(y)}];
    if (way == kUnknown) {
        // The first of each, in which algorithms are searched for, is the one that is not timed.
        const float of_column = msbench::milliseconds(stream, column), of_row = msbench::milliseconds(stream, row);
        way = of_row < of_column ? kRow : kColumn;
    }
    return way == kRow ? row() : column();
}
