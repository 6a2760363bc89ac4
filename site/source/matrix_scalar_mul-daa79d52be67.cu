// Matrix times a scalar by cublasLtMatrixTransform: C = a·A, not transposed and without a second operand.
// The elements lie without gaps, so that they may be told to cuBLASLt, which counts in columns, as matrices of several
// shapes; the first call with a shape tries them.
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

static cublasLtHandle_t handle = nullptr;
static cublasLtMatrixTransformDesc_t scaling = nullptr;

static cudaError_t run(cublasLtMatrixLayout_t layout, const scalar_t* A, scalar_t* B, float a, cudaStream_t stream) {
    const float zero = 0;
    CUBLASLT(cublasLtMatrixTransform(handle, scaling, &a, A, layout, &zero, nullptr, nullptr, B, layout, stream));
    return cudaSuccess;
}

static cudaError_t choose(cublasLtMatrixLayout_t& fastest, const scalar_t* A, scalar_t* B, float a, int64_t M,
                          int64_t N, cudaStream_t stream) {
    const std::pair<int64_t, int64_t> views[] = {{N, M}, {M, N}, {M * N, 1}};
    float best = std::numeric_limits<float>::infinity();
    for (const auto& [rows, columns] : views) {
        cublasLtMatrixLayout_t layout = nullptr;
        CUBLASLT(cublasLtMatrixLayoutCreate(&layout, kType, rows, columns, rows));
        const float time = msbench::milliseconds(stream, [&] { return run(layout, A, B, a, stream); });
        if (time < best) {
            best = time;
            std::swap(fastest, layout);
        }
        if (layout) CUBLASLT(cublasLtMatrixLayoutDestroy(layout));
    }
    return fastest ? cudaSuccess : cudaErrorNotSupported;
}

extern "C" size_t matrix_scalar_mul_workspace(float a, int64_t M, int64_t N) {
    return 2 * msbench::Staging::room(M * N * sizeof(scalar_t));
}

extern "C" cudaError_t matrix_scalar_mul(const scalar_t* A, scalar_t* B, float a, int64_t M, int64_t N, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    static std::map<std::pair<int64_t, int64_t>, cublasLtMatrixLayout_t> layouts;
    if (!handle) CUBLASLT(cublasLtCreate(&handle));
    if (!scaling) CUBLASLT(cublasLtMatrixTransformDescCreate(&scaling, CUDA_R_32F));
    msbench::Staging staging(workspace, stream);
    const scalar_t* from = staging.input(A, M * N * sizeof(scalar_t));
    scalar_t* to = staging.output(B, M * N * sizeof(scalar_t));
    cublasLtMatrixLayout_t& layout = layouts[{M, N}];
    if (!layout) MSBENCH_CUDA(choose(layout, from, to, a, M, N, stream));
    MSBENCH_CUDA(run(layout, from, to, a, stream));
    return staging.finish();
}
