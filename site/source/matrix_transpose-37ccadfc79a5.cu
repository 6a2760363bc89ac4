// Matrix transposition by cublasLtMatrixTransform: C = 1·Aᵀ, without a second operand.
// To cuBLASLt, which counts in columns, our A[M,N] is an N×M matrix.
// msbench: link cublasLt
#include <cublasLt.h>

#include <map>
#include <utility>

#include "msbench_library.cuh"

#define CUBLASLT(call) MSBENCH_LIBRARY(cublasLtGetStatusString, call)

#ifdef MSBENCH_FP32
constexpr cudaDataType_t kType = CUDA_R_32F;
#else
constexpr cudaDataType_t kType = CUDA_R_16BF;
#endif

struct Plan {
    cublasLtMatrixTransformDesc_t transposition = nullptr;
    cublasLtMatrixLayout_t from = nullptr, to = nullptr;
    bool ready = false;
};

static cudaError_t make_plan(Plan& plan, int64_t M, int64_t N) {
    const cublasOperation_t transpose = CUBLAS_OP_T;
    CUBLASLT(cublasLtMatrixTransformDescCreate(&plan.transposition, CUDA_R_32F));
    CUBLASLT(cublasLtMatrixTransformDescSetAttribute(plan.transposition, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA,
                                                     &transpose, sizeof(transpose)));
    CUBLASLT(cublasLtMatrixLayoutCreate(&plan.from, kType, N, M, N));
    CUBLASLT(cublasLtMatrixLayoutCreate(&plan.to, kType, M, N, M));
    plan.ready = true;
    return cudaSuccess;
}

extern "C" size_t matrix_transpose_workspace(int64_t M, int64_t N) {
    return 2 * msbench::Staging::room(M * N * sizeof(scalar_t));
}

extern "C" cudaError_t matrix_transpose(const scalar_t* A, scalar_t* B, int64_t M, int64_t N, void* workspace,
                                        size_t workspace_bytes, cudaStream_t stream) {
    static cublasLtHandle_t handle = nullptr;
    static std::map<std::pair<int64_t, int64_t>, Plan> plans;
    if (!handle) CUBLASLT(cublasLtCreate(&handle));
    Plan& plan = plans[{M, N}];
    if (!plan.ready) MSBENCH_CUDA(make_plan(plan, M, N));
    msbench::Staging staging(workspace, stream);
    const scalar_t* from = staging.input(A, M * N * sizeof(scalar_t));
    scalar_t* to = staging.output(B, M * N * sizeof(scalar_t));
    const float one = 1, zero = 0;
    CUBLASLT(cublasLtMatrixTransform(handle, plan.transposition, &one, from, plan.from, &zero, nullptr, nullptr, to,
                                     plan.to, stream));
    return staging.finish();
}
