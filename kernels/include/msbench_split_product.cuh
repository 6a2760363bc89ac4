// fp32 products of scaled fp16 parts in two launches: the split (msbench_split.cuh), and early behind it the product (msbench_split_tiles.cuh).
#pragma once

#include <algorithm>
#include <type_traits>

#include "msbench_split_tiles.cuh"

namespace msbench {

namespace split_product {

// Where the parts of the workspace start; A's planes come first.
struct Layout {
    int64_t rows, columns, panels, b, a_unscales, b_unscales, bytes;

    Layout(int64_t M, int64_t N, int64_t K) {
        const auto round_up = [](int64_t x, int64_t multiple) { return ceil_div(x, multiple) * multiple; };
        rows = round_up(M, kTile), columns = round_up(N, kTile), panels = round_up(K, kChainPanels * kPanelK) / kPanelK;
        b = rows * panels * kPlanes * kPanelRowBytes;
        a_unscales = b + columns * panels * kPlanes * kPanelRowBytes;
        b_unscales = a_unscales + 2 * rows * int64_t(sizeof(float));
        bytes = round_up(b_unscales + 2 * columns * int64_t(sizeof(float)), 256);
    }
    Planes a_planes(void* workspace) const { return planes(workspace, 0, a_unscales, rows); }
    Planes b_planes(void* workspace) const { return planes(workspace, b, b_unscales, columns); }

   private:
    static Planes planes(void* workspace, int64_t panels_at, int64_t unscales_at, int64_t lines) {
        unsigned char* base = static_cast<unsigned char*>(workspace);
        float* unscales = reinterpret_cast<float*>(base + unscales_at);  // and losses behind
        return {base + panels_at, unscales, int(lines), unscales + lines};
    }
};

// Into how many slices K is cut, so that all multiprocessors have work: a chain each at least.
inline int slices(int64_t M, int64_t N, int64_t K) {
    const int64_t tiles = ceil_div(M, kTile) * ceil_div(N, kTile), most = ceil_div(K, kChainPanels * kPanelK);
    return int(std::max<int64_t>(1, std::min(multiprocessors() / tiles, most)));
}

// Splits the lines of A and, if it has any, of B, and zeroes `zeros` elements of C. `behind`: not the launcher's first kernel.
inline cudaError_t split(const Lines& A, const Lines& B, const Planes& a, const Planes& b, int64_t panels, float* C, int64_t zeros, bool behind,
                         cudaStream_t stream) {
    const int64_t K = panels * kPanelK;
    const auto start = [&](auto lines) {
        constexpr int kLines = decltype(lines)::value;
        const int parts = int(std::min<int64_t>(16, ceil_div(K, kSplitElements / kLines))), depth = int(ceil_div(panels, parts)) * kPanelK;
        const int64_t slabs = (a.lines + (B.count ? b.lines : 0)) / kLines;
        Launch launch(dim3(unsigned(slabs * parts)), dim3(kSplitThreads), stream);
        const int bytes = kLines * (depth + 4) * int(sizeof(float));
        // Together with the kernel's static shared memory that may exceed the default limit where it does not alone.
        const cudaError_t status = cudaFuncSetAttribute(split_lines<kLines>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        if (status != cudaSuccess) return status;
        launch.shared(bytes);
        if (behind) launch.early();
        return launch_clusters(parts, launch, split_lines<kLines>, A, B, a, b, parts, depth, int(panels), A.vectors(), B.vectors(), C, zeros);
    };
    if (K <= kSplitElements / 128) return start(std::integral_constant<int, 128>());
    if (K <= kSplitElements / 64) return start(std::integral_constant<int, 64>());
    return start(std::integral_constant<int, 16>());
}

// Multiplies what has been split by the kernel before.
template <class Left>
cudaError_t product(const Left& A, const Lines& B, const Planes& a, const Planes& b, int64_t panels, float* C, int64_t pitch,
                           int slices, cudaStream_t stream) {
    const int64_t M = A.count, N = B.count;
    const int slice_panels = int(ceil_div(ceil_div(panels, slices), kChainPanels)) * kChainPanels;
    const Shape shape{A.count, B.count, A.K, int(panels), int(ceil_div(panels, slice_panels)), slice_panels, pitch,
                      pitch % 2 == 0 && N % 2 == 0 && reinterpret_cast<uintptr_t>(C) % 8 == 0};
    const int64_t works = ceil_div(M, kTile) * ceil_div(N, kTile) * shape.slices;
    const unsigned blocks = unsigned(std::min<int64_t>(works, multiprocessors()));
    return Launch(dim3(blocks), dim3(kThreads), stream).shared(kSharedBytes).early()(multiply<Left>, a, b, A, B, C, shape);
}

}  // namespace split_product

inline size_t split_product_bytes(int64_t M, int64_t N, int64_t K) {
    return size_t(split_product::Layout(M, N, K).bytes);
}

// C[i, j] is the product of line i of A and line j of B; C's rows are `pitch` apart, and what lies between may be overwritten. `behind`: not the
// launcher's first kernels.
inline cudaError_t multiply_split(const Lines& A, const Lines& B, float* C, int64_t pitch, void* workspace, bool behind, cudaStream_t stream) {
    const split_product::Layout layout(A.count, B.count, A.K);
    const Planes a = layout.a_planes(workspace), b = layout.b_planes(workspace);
    const int slices = split_product::slices(A.count, B.count, A.K);
    const int64_t zeros = slices > 1 ? A.count * pitch : 0;
    const cudaError_t status = split_product::split(A, B, a, b, layout.panels, C, zeros, behind, stream);
    return status != cudaSuccess ? status : split_product::product(A, B, a, b, layout.panels, C, pitch, slices, stream);
}

}  // namespace msbench
