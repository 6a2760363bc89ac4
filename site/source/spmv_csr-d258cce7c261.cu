// Sparse matrix times vector by cuSPARSE's generic SpMV. The first call with a shape tries its CSR algorithms.
//
// cusparseSpMV_preprocess is left out: what it prepares belongs to one sparsity pattern, and a launcher, which keeps nothing
// between calls, meets every matrix for the first time. Descriptors are made for each call for the same reason; they are
// small host objects.
// msbench: link cusparse
#include <cusparse.h>

#include <array>
#include <map>

#include "msbench_library.cuh"

#define CUSPARSE(call) MSBENCH_LIBRARY(cusparseGetErrorString, call)

#ifdef MSBENCH_FP32
constexpr cudaDataType_t kType = CUDA_R_32F;
#else
constexpr cudaDataType_t kType = CUDA_R_16BF;
#endif
constexpr cusparseSpMVAlg_t kAlgorithms[] = {CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2};

struct Matrices {
    cusparseConstSpMatDescr_t A = nullptr;
    cusparseConstDnVecDescr_t x = nullptr;
    cusparseDnVecDescr_t y = nullptr;

    ~Matrices() {
        if (A) cusparseDestroySpMat(A);
        if (x) cusparseDestroyDnVec(x);
        if (y) cusparseDestroyDnVec(y);
    }
};

struct Plan {
    cusparseSpMVAlg_t algorithm = CUSPARSE_SPMV_ALG_DEFAULT;
    void* buffer = nullptr;
    bool ready = false;
};

static cusparseHandle_t handle = nullptr;
static const float one = 1, zero = 0;

static cudaError_t run(const Plan& plan, const Matrices& matrices) {
    CUSPARSE(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrices.A, matrices.x, &zero, matrices.y,
                          CUDA_R_32F, plan.algorithm, plan.buffer));
    return cudaSuccess;
}

static cudaError_t make_plan(Plan& fastest, const Matrices& matrices, cudaStream_t stream) {
    float best = std::numeric_limits<float>::infinity();
    for (cusparseSpMVAlg_t algorithm : kAlgorithms) {
        Plan plan{algorithm};
        size_t bytes = 0;
        CUSPARSE(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrices.A, matrices.x, &zero,
                                         matrices.y, CUDA_R_32F, algorithm, &bytes));
        MSBENCH_CUDA(cudaMalloc(&plan.buffer, bytes + 1));
        const float time = msbench::milliseconds(stream, [&] { return run(plan, matrices); });
        if (time < best) {
            best = time;
            cudaFree(fastest.buffer);
            fastest = plan;
            fastest.ready = true;
        } else {
            cudaFree(plan.buffer);
        }
    }
    return fastest.ready ? cudaSuccess : cudaErrorNotSupported;
}

extern "C" size_t spmv_csr_workspace(int64_t rows, int64_t cols, int64_t nnz) {
    using msbench::Staging;
    return Staging::room(nnz * sizeof(scalar_t)) + Staging::room(nnz * sizeof(int32_t)) +
           Staging::room((rows + 1) * sizeof(int32_t)) + Staging::room(cols * sizeof(scalar_t)) +
           Staging::room(rows * sizeof(scalar_t));
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    static std::map<std::array<int64_t, 3>, Plan> plans;
    if (!handle) CUSPARSE(cusparseCreate(&handle));
    CUSPARSE(cusparseSetStream(handle, stream));

    msbench::Staging staging(workspace, stream);
    Matrices matrices;
    CUSPARSE(cusparseCreateConstCsr(&matrices.A, rows, cols, nnz,
                                    staging.input(row_offsets, (rows + 1) * sizeof(int32_t)),
                                    staging.input(col_indices, nnz * sizeof(int32_t)),
                                    staging.input(values, nnz * sizeof(scalar_t)), CUSPARSE_INDEX_32I,
                                    CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, kType));
    CUSPARSE(cusparseCreateConstDnVec(&matrices.x, cols, staging.input(x, cols * sizeof(scalar_t)), kType));
    CUSPARSE(cusparseCreateDnVec(&matrices.y, rows, staging.output(y, rows * sizeof(scalar_t)), kType));

    Plan& plan = plans[{rows, cols, nnz}];
    if (!plan.ready) MSBENCH_CUDA(make_plan(plan, matrices, stream));
    MSBENCH_CUDA(run(plan, matrices));
    return staging.finish();
}
