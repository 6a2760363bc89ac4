// fp32 products in one pass (msbench_thin_tiles.cuh) or of split numbers (msbench_split_product.cuh), whichever is faster.
#pragma once

#include <algorithm>

#include "msbench_split_product.cuh"
#include "msbench_thin_tiles.cuh"

namespace msbench {

namespace thin_product {

inline int slices(int64_t M, int64_t N, int64_t K) {
    const int64_t tiles = ceil_div(M, kTileM) * ceil_div(N, kTileN), most = ceil_div(K, 2 * kStageK);
    return int(std::max<int64_t>(1, std::min(multiprocessors() / tiles, most)));
}

inline size_t bytes(int64_t M, int64_t N, int64_t K) {
    return size_t(slices(M, N, K) * M * N) * sizeof(float);
}

// As multiply_fp32, in one pass.
inline cudaError_t launch(const Lines& A, const Lines& B, float* C, int64_t pitch, void* workspace, bool behind, cudaStream_t stream) {
    const int64_t M = A.count, N = B.count, K = A.K;
    const int slice_k = int(ceil_div(ceil_div(K, slices(M, N, K)), kStageK)) * kStageK, used = int(ceil_div(K, slice_k));
    float* to = used > 1 ? static_cast<float*>(workspace) : C;
    const int64_t to_pitch = used > 1 ? N : pitch;
    const auto vectors = [](const Lines& l) { return l.k_step == 1 && l.line_step % 4 == 0 && packets_allowed(l.data); };
    const Shape shape{used, slice_k, to_pitch, M * N, vectors(A), vectors(B), N % 4 == 0 && to_pitch % 4 == 0 && packets_allowed(to)};
    const int64_t blocks = ceil_div(M, kTileM) * ceil_div(N, kTileN) * used;
    Launch start(dim3(unsigned(blocks)), dim3(kThreads), stream);
    start.shared(kSharedBytes);
    if (behind) start.early();
    const cudaError_t status = start(thin_product::multiply, A, B, to, shape);
    if (status != cudaSuccess || used == 1) return status;
    return Launch(dim3(unsigned(ceil_div(M * N, kAddThreads))), dim3(kAddThreads), stream)
        .early()(add_layers, to, C, int(M), int(N), pitch, used);
}

}  // namespace thin_product

// 777 x 1003 x 515: 27 us, by a split of its own 31; 512^3: 13.5, 18.7; 64 x 2048 x 4096: 26, 51 (H200).
inline bool thin(int64_t M, int64_t N, int64_t K) {
    using namespace thin_product;
    return M <= 2 * kTileM || (K <= 640 && ceil_div(M, kTileM) * ceil_div(N, kTileN) <= multiprocessors());
}

inline size_t multiply_fp32_bytes(int64_t M, int64_t N, int64_t K) {
    return thin(M, N, K) ? thin_product::bytes(M, N, K) : split_product_bytes(M, N, K);
}

// C[i, j] is the product of line i of A, whose elements lie side by side, and line j of B, both without runs; C's rows are `pitch` apart, and
// what lies between may be overwritten. `behind`: not the launcher's first kernel.
inline cudaError_t multiply_fp32(const Lines& A, const Lines& B, float* C, int64_t pitch, void* workspace, bool behind, cudaStream_t stream) {
    return (thin(A.count, B.count, A.K) ? thin_product::launch : multiply_split)(A, B, C, pitch, workspace, behind, stream);
}

}  // namespace msbench
