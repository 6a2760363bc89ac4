// Matrix multiplication by cuBLASLt. The first call with a shape runs every algorithm that the heuristics propose and keeps the
// fastest; later calls only launch it.
//
// cuBLASLt counts in columns: our row-major C = A·B is its Cᵀ = Bᵀ·Aᵀ, so B comes first, with N rows, and nothing is transposed.
// fp32 is CUBLAS_COMPUTE_32F, which never rounds inputs to TF32; bf16 accumulates in fp32, and partial sums of a split K are
// only added in fp32.
// msbench: link cublasLt
#include <cublasLt.h>

#include <array>
#include <map>

#include "msbench_library.cuh"

#define CUBLASLT(call) MSBENCH_LIBRARY(cublasLtGetStatusString, call)

#ifdef MSBENCH_FP32
constexpr cudaDataType_t kType = CUDA_R_32F;
#else
constexpr cudaDataType_t kType = CUDA_R_16BF;
#endif
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kCandidates = 24;

struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm;
    bool ready = false;
};

static cublasLtHandle_t handle = nullptr;

static cudaError_t run(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const scalar_t* A, const scalar_t* B,
                       scalar_t* C, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const float one = 1, zero = 0;
    CUBLASLT(cublasLtMatmul(handle, plan.operation, &one, B, plan.b, A, plan.a, &zero, C, plan.c, C, plan.c, &algorithm,
                            workspace, workspace_bytes, stream));
    return cudaSuccess;
}

static cudaError_t propose(const Plan& plan, const scalar_t* A, const scalar_t* B, const scalar_t* C,
                           size_t workspace_bytes, cublasLtMatmulHeuristicResult_t* candidates, int* count) {
    cublasLtMatmulPreference_t preference = nullptr;
    CUBLASLT(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        return msbench::outcome(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                                cublasLtGetStatusString, "cublasLtMatmulPreferenceSetAttribute");
    };
    // NONE and COMPUTE_TYPE remain; the other schemes round partial sums to the output's type.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t bytes = workspace_bytes;
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, msbench::alignment(B)));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, msbench::alignment(A)));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, msbench::alignment(C)));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, msbench::alignment(C)));
    CUBLASLT(cublasLtMatmulAlgoGetHeuristic(handle, plan.operation, plan.b, plan.a, plan.c, plan.c, preference,
                                            kCandidates, candidates, count));
    CUBLASLT(cublasLtMatmulPreferenceDestroy(preference));
    return cudaSuccess;
}

static cudaError_t make_plan(Plan& plan, const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N,
                             int64_t K, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    CUBLASLT(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUBLASLT(cublasLtMatrixLayoutCreate(&plan.b, kType, N, K, N));
    CUBLASLT(cublasLtMatrixLayoutCreate(&plan.a, kType, K, M, K));
    CUBLASLT(cublasLtMatrixLayoutCreate(&plan.c, kType, N, M, N));
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates;
    int count = 0;
    MSBENCH_CUDA(propose(plan, A, B, C, workspace_bytes, candidates.data(), &count));
    float best = std::numeric_limits<float>::infinity();
    for (int i = 0; i < count; ++i) {
        const cublasLtMatmulHeuristicResult_t& candidate = candidates[i];
        if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
        const float time = msbench::milliseconds(stream, [&] {
            return run(plan, candidate.algo, A, B, C, workspace, candidate.workspaceSize, stream);
        });
        if (time < best) {
            best = time;
            plan.algorithm = candidate.algo;
            plan.ready = true;
        }
    }
    return plan.ready ? cudaSuccess : cudaErrorNotSupported;
}

extern "C" size_t matrix_mul_workspace(int64_t M, int64_t N, int64_t K) {
    return kWorkspaceBytes;
}

extern "C" cudaError_t matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K,
                                  void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    // What an algorithm asks of addresses is part of the choice.
    using Key = std::array<int64_t, 6>;
    static std::map<Key, Plan> plans;
    if (!handle) CUBLASLT(cublasLtCreate(&handle));
    Plan& plan = plans[Key{M, N, K, msbench::alignment(A), msbench::alignment(B), msbench::alignment(C)}];
    if (!plan.ready) MSBENCH_CUDA(make_plan(plan, A, B, C, M, N, K, workspace, workspace_bytes, stream));
    return run(plan, plan.algorithm, A, B, C, workspace, workspace_bytes, stream);
}
