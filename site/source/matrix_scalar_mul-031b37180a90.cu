// Matrix times a scalar by cuBLAS geam out of place: C = a·A + 0·C. It exists for float and not for bf16.
// The elements lie without gaps, so that they may be told to cuBLAS, which counts in columns, as matrices of several
// shapes; the first call with a shape tries them.
// msbench: link cublas
// msbench: precisions fp32
#include <cublas_v2.h>

#include <map>
#include <tuple>

#include "msbench_library.cuh"

#define CUBLAS(call) MSBENCH_LIBRARY(cublasGetStatusString, call)

struct View {
    int rows = 0, columns = 0;
};

static cublasHandle_t handle = nullptr;

static cudaError_t run(const View& view, const scalar_t* A, scalar_t* B, float a) {
    const float zero = 0;
    CUBLAS(cublasSgeam(handle, CUBLAS_OP_N, CUBLAS_OP_N, view.rows, view.columns, &a, A, view.rows, &zero, B, view.rows,
                       B, view.rows));
    return cudaSuccess;
}

extern "C" cudaError_t matrix_scalar_mul(const scalar_t* A, scalar_t* B, float a, int64_t M, int64_t N, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    static std::map<std::tuple<int64_t, int64_t, uint32_t, uint32_t>, std::pair<msbench::Due, View>> views;
    if (!handle) CUBLAS(cublasCreate(&handle));
    CUBLAS(cublasSetStream(handle, stream));
    auto& [due, fastest] = views[{M, N, msbench::alignment(A), msbench::alignment(B)}];
    if (due.take()) {
        fastest = {};
        const int rows = static_cast<int>(M), columns = static_cast<int>(N);
        float best = std::numeric_limits<float>::infinity();
        for (const View& view : {View{columns, rows}, View{rows, columns}, View{rows * columns, 1}}) {
            const float time = msbench::milliseconds(stream, [&] { return run(view, A, B, a); });
            if (time < best) {
                best = time;
                fastest = view;
            }
        }
    }
    if (!fastest.rows) return cudaErrorNotSupported;
    return run(fastest, A, B, a);
}
