// Matrix times vector by cuBLAS: gemv, batched gemv with a batch of one (in bf16 the only gemv there is) and gemm with one
// column. The first call with a shape tries them and keeps the fastest.
//
// cuBLAS counts in columns, so that our row-major A is its Aᵀ with N rows, which is transposed.
// msbench: link cublas
#include <cublas_v2.h>

#include <array>
#include <map>

#include "msbench_library.cuh"

#define CUBLAS(call) MSBENCH_LIBRARY(cublasGetStatusString, call)

#ifdef MSBENCH_FP32
constexpr cudaDataType_t kType = CUDA_R_32F;
#else
constexpr cudaDataType_t kType = CUDA_R_16BF;
#endif
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

enum Way { kUnknown, kVector, kBatchedVector, kColumn, kRow };

static cublasHandle_t handle = nullptr;

static cudaError_t run(Way way, const scalar_t* A, const scalar_t* x, scalar_t* y, int64_t rows, int64_t columns) {
    const int M = static_cast<int>(rows), N = static_cast<int>(columns);
    const float one = 1, zero = 0;
    const cublasOperation_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
    switch (way) {
#ifdef MSBENCH_FP32
        case kVector:
            CUBLAS(cublasSgemv(handle, transposed, N, M, &one, A, N, x, 1, &zero, y, 1));
            break;
        case kBatchedVector:
            CUBLAS(cublasSgemvStridedBatched(handle, transposed, N, M, &one, A, N, 0, x, 1, 0, &zero, y, 1, 0, 1));
            break;
#else
        case kBatchedVector:
            CUBLAS(cublasTSTgemvStridedBatched(handle, transposed, N, M, &one, A, N, 0, x, 1, 0, &zero, y, 1, 0, 1));
            break;
#endif
        case kColumn:
            CUBLAS(cublasGemmEx(handle, transposed, plain, M, 1, N, &one, A, kType, N, x, kType, N, &zero, y, kType, M,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
            break;
        case kRow:
            CUBLAS(cublasGemmEx(handle, plain, plain, 1, M, N, &one, x, kType, 1, A, kType, N, &zero, y, kType, 1,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
            break;
        default:
            return cudaErrorNotSupported;
    }
    return cudaSuccess;
}

extern "C" size_t matrix_vector_mul_workspace(int64_t M, int64_t N) {
    return kWorkspaceBytes;
}

extern "C" cudaError_t matrix_vector_mul(const scalar_t* A, const scalar_t* x, scalar_t* y, int64_t M, int64_t N,
                                         void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    using Key = std::array<int64_t, 5>;
    static std::map<Key, Way> ways;
    if (!handle) {
        CUBLAS(cublasCreate(&handle));
        // Partial sums of a split K are only added in fp32.
        CUBLAS(cublasSetMathMode(handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                                                   CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
    }
    CUBLAS(cublasSetStream(handle, stream));
    CUBLAS(cublasSetWorkspace(handle, workspace, kWorkspaceBytes));
    Way& fastest = ways[Key{M, N, msbench::alignment(A), msbench::alignment(x), msbench::alignment(y)}];
    if (fastest == kUnknown) {
        float best = std::numeric_limits<float>::infinity();
        for (Way way : {kVector, kBatchedVector, kColumn, kRow}) {
            const float time = msbench::milliseconds(stream, [&] { return run(way, A, x, y, M, N); });
            if (time < best) {
                best = time;
                fastest = way;
            }
        }
    }
    return run(fastest, A, x, y, M, N);
}
