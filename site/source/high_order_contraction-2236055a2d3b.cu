// Contraction as one cuBLASLt product: A permuted to [a·b, x·y] and B to [c, x·y] by a kernel each, so that the summed indices
// are adjacent. With x = 1 they are already. The product runs the algorithm that was the fastest of all that the heuristics
// proposed on the first call with a shape.
// msbench: link cublasLt
#include "msbench_cublaslt.cuh"

constexpr int kThreads = 256;

// [outer, x, inner, y] to [outer, inner, x, y] in pieces of `T`, of which a run of y has `width`. Threads follow the result, so
// that stores are in order and loads are in order within a run. No array has 2³¹ pieces.
template <typename T>
__global__ void permute(const T* from, T* to, uint32_t outer, uint32_t x, uint32_t inner, uint32_t width) {
    const uint32_t piece = blockIdx.x * kThreads + threadIdx.x;
    if (piece >= outer * x * inner * width) return;
    const uint32_t column = piece % width;
    const uint32_t run = piece / width;
    const uint32_t ix = run % x;
    const uint32_t row = run / x;
    const uint32_t i = row % inner;
    const uint32_t o = row / inner;
    to[piece] = from[((o * x + ix) * inner + i) * width + column];
}

template <typename T>
static void permute_as(const scalar_t* from, scalar_t* to, int64_t outer, int64_t x, int64_t inner, int64_t y,
                       cudaStream_t stream) {
    const int64_t width = y * sizeof(scalar_t) / sizeof(T);
    const int64_t blocks = (outer * x * inner * width + kThreads - 1) / kThreads;
    permute<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), outer, x, inner,
                                             width);
}

// In the widest pieces that runs and addresses allow.
static void permute(const scalar_t* from, scalar_t* to, int64_t outer, int64_t x, int64_t inner, int64_t y,
                    cudaStream_t stream) {
    const uintptr_t bits = reinterpret_cast<uintptr_t>(from) | y * sizeof(scalar_t);
    if (bits % 16 == 0) return permute_as<uint4>(from, to, outer, x, inner, y, stream);
    if (bits % 8 == 0) return permute_as<uint2>(from, to, outer, x, inner, y, stream);
    if (bits % 4 == 0) return permute_as<uint32_t>(from, to, outer, x, inner, y, stream);
    permute_as<scalar_t>(from, to, outer, x, inner, y, stream);
}

extern "C" size_t high_order_contraction_workspace(int64_t a, int64_t b, int64_t c, int64_t x, int64_t y) {
    return msbench::cublaslt::kWorkspaceBytes + msbench::Staging::room(a * x * b * y * sizeof(scalar_t)) +
           msbench::Staging::room(x * c * y * sizeof(scalar_t));
}

extern "C" cudaError_t high_order_contraction(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t a, int64_t b,
                                              int64_t c, int64_t x, int64_t y, void* workspace, size_t workspace_bytes,
                                              cudaStream_t stream) {
    if (x > 1) {
        char* free = static_cast<char*>(workspace) + msbench::cublaslt::kWorkspaceBytes;
        scalar_t* left = reinterpret_cast<scalar_t*>(free);
        scalar_t* right = reinterpret_cast<scalar_t*>(free + msbench::Staging::room(a * x * b * y * sizeof(scalar_t)));
        permute(A, left, a, x, b, y, stream);
        permute(B, right, 1, x, c, y, stream);
        MSBENCH_CUDA(cudaGetLastError());
        A = left;
        B = right;
    }
    return msbench::cublaslt::multiply({a * b, c, x * y, false, true}, 1, A, B, C, workspace, stream);
}
