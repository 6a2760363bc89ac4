// What baselines on cuBLASLt share: row-major products whose algorithm is searched for on the first call with a shape.
//
// A file that includes this links cublasLt. cuBLASLt counts in columns: a row-major C = A·B is its Cᵀ = Bᵀ·Aᵀ, so B comes first.
// CUBLAS_COMPUTE_32F never rounds fp32 inputs to TF32; bf16 accumulates in fp32, and partial sums of a split K are only added in
// fp32.
#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "msbench_library.cuh"

#define MSBENCH_CUBLASLT(call) MSBENCH_LIBRARY(cublasLtGetStatusString, call)

namespace msbench::cublaslt {

#ifdef MSBENCH_FP32
constexpr cudaDataType_t kType = CUDA_R_32F;
#else
constexpr cudaDataType_t kType = CUDA_R_16BF;
#endif
// What every product may use of a launcher's workspace; addresses of workspaces are aligned to 256 bytes.
constexpr size_t kWorkspaceBytes = size_t{64} << 20;

// C = alpha·A·B, row-major without gaps. A is [m, k], or [k, m] if it is to be transposed; B is [k, n], or [n, k]; C is [m, n].
struct Product {
    int64_t m, n, k;
    bool transpose_a = false, transpose_b = false;
    cudaDataType_t inputs = kType, output = kType;
    // CUBLAS_COMPUTE_32F_EMULATED_16BFX9: only algorithms that run on matrix units; a product without one is not supported.
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

// An algorithm for a product at addresses of a certain alignment.
struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    std::vector<cublasLtMatmulAlgo_t> fastest;  // first the one that is run, then those that are tried when it is chosen anew
    Due due;
};

// How many algorithms are tried anew: what was far behind when all were tried won't have become the fastest since.
constexpr size_t kTriedAnew = 8;

// The arrays of one launch.
struct Operands {
    const void *A, *B;
    void* C;
    void* workspace;
    cudaStream_t stream;
};

inline cublasLtHandle_t handle() {
    static cublasLtHandle_t handle = nullptr;
    if (!handle) cublasLtCreate(&handle);
    return handle;
}

inline cudaError_t run(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, float alpha, const Operands& on) {
    const float zero = 0;
    MSBENCH_CUBLASLT(cublasLtMatmul(handle(), plan.operation, &alpha, on.B, plan.b, on.A, plan.a, &zero, on.C, plan.c,
                                    on.C, plan.c, &algorithm, on.workspace, kWorkspaceBytes, on.stream));
    return cudaSuccess;
}

inline cudaError_t describe(Plan& plan, const Product& product) {
    const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const cublasOperation_t first = operation(product.transpose_b), second = operation(product.transpose_a);
    // Rows to cuBLASLt are what lies next to each other.
    const auto layout = [](cublasLtMatrixLayout_t* made, cudaDataType_t type, int64_t rows, int64_t columns, bool swap) {
        if (swap) std::swap(rows, columns);
        return cublasLtMatrixLayoutCreate(made, type, rows, columns, rows);
    };
    MSBENCH_CUBLASLT(cublasLtMatmulDescCreate(&plan.operation, product.compute, CUDA_R_32F));
    MSBENCH_CUBLASLT(
        cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
    MSBENCH_CUBLASLT(
        cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)));
    MSBENCH_CUBLASLT(layout(&plan.b, product.inputs, product.n, product.k, product.transpose_b));
    MSBENCH_CUBLASLT(layout(&plan.a, product.inputs, product.k, product.m, product.transpose_a));
    MSBENCH_CUBLASLT(layout(&plan.c, product.output, product.n, product.m, false));
    return cudaSuccess;
}

// Whether an algorithm computes on matrix units, as native fp32 does not.
inline bool on_matrix_units(const cublasLtMatmulAlgo_t& algorithm) {
    uint64_t flags = 0;
    size_t written = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoCapGetAttribute(
        &algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof(flags), &written);
    return status == CUBLAS_STATUS_SUCCESS && flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK;
}

// The algorithms that the heuristics propose, best guess first; none where the product is not supported.
inline cudaError_t propose(const Plan& plan, const Product& product, const Operands& on,
                           std::vector<cublasLtMatmulAlgo_t>& proposed) {
    constexpr int kCandidates = 32;
    cublasLtMatmulPreference_t preference = nullptr;
    MSBENCH_CUBLASLT(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        return outcome(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                       cublasLtGetStatusString, "cublasLtMatmulPreferenceSetAttribute");
    };
    // NONE and COMPUTE_TYPE remain; the other schemes round partial sums to the output's type.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t bytes = kWorkspaceBytes;
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(on.B)));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(on.A)));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(on.C)));
    MSBENCH_CUDA(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(on.C)));
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates;
    int count = 0;
    const cublasStatus_t found =
        cublasLtMatmulAlgoGetHeuristic(handle(), plan.operation, plan.b, plan.a, plan.c, plan.c, preference,
                                       kCandidates, candidates.data(), &count);
    MSBENCH_CUBLASLT(cublasLtMatmulPreferenceDestroy(preference));
    if (found == CUBLAS_STATUS_NOT_SUPPORTED) return cudaErrorNotSupported;
    MSBENCH_CUBLASLT(found);
    for (int i = 0; i < count; ++i) {
        if (candidates[i].state != CUBLAS_STATUS_SUCCESS) continue;
        if (product.compute != CUBLAS_COMPUTE_32F && !on_matrix_units(candidates[i].algo)) continue;
        proposed.push_back(candidates[i].algo);
    }
    return cudaSuccess;
}

// Runs every algorithm that is proposed, or of a plan that has some those, and sorts the fastest by their time. Synchronises.
inline cudaError_t choose(Plan& plan, const Product& product, float alpha, const Operands& on) {
    std::vector<cublasLtMatmulAlgo_t> tried;
    if (plan.fastest.empty()) {
        MSBENCH_CUDA(propose(plan, product, on, tried));
    } else {
        tried.swap(plan.fastest);
    }
    const float failed = std::numeric_limits<float>::infinity();
    std::vector<std::pair<float, cublasLtMatmulAlgo_t>> ran;
    float best = failed;
    const Flush flush;
    for (const cublasLtMatmulAlgo_t& algorithm : tried) {
        const float time = milliseconds(on.stream, [&] { return run(plan, algorithm, alpha, on); }, best, flush);
        if (time < failed) ran.emplace_back(time, algorithm);
        best = std::min(best, time);
    }
    std::stable_sort(ran.begin(), ran.end(), [](const auto& one, const auto& other) { return one.first < other.first; });
    for (size_t i = 0; i < std::min(ran.size(), kTriedAnew); ++i) plan.fastest.push_back(ran[i].second);
    return plan.fastest.empty() ? cudaErrorNotSupported : cudaSuccess;
}

// Launches a product. `workspace` has kWorkspaceBytes; where a choice is due, it tries algorithms.
inline cudaError_t multiply(const Product& product, float alpha, const void* A, const void* B, void* C, void* workspace,
                            cudaStream_t stream) {
    // What an algorithm asks of addresses is part of the choice.
    using Key = std::array<int64_t, 11>;
    static std::map<Key, Plan> plans;
    const Operands on{A, B, C, workspace, stream};
    Plan& plan = plans[Key{product.m, product.n, product.k, product.transpose_a, product.transpose_b, product.inputs,
                           product.output, product.compute, alignment(A), alignment(B), alignment(C)}];
    if (!plan.operation) MSBENCH_CUDA(describe(plan, product));
    if (plan.due.take()) MSBENCH_CUDA(choose(plan, product, alpha, on));
    if (plan.fastest.empty()) return cudaErrorNotSupported;
    return run(plan, plan.fastest.front(), alpha, on);
}

}  // namespace msbench::cublaslt
