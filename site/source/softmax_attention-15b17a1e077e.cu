// Y = softmax(Q K' / sqrt(d)) V in fp32.
//
// `small`: plain arithmetic in two launches (msbench_small_attention.cuh).
// `narrow` (d and dv up to 128): scores never leave the multiprocessor (msbench_flash_split.cuh).
// `wide`: two products with a softmax between them, all but the first launch early. The products are those of matrix_mul, of two scaled
// fp16 parts a number, and the softmax writes those of the weights.
//
// Bound: 6 q kv (d + dv) flops on the tensor cores, since three products make one; besides, wide, the scores through L2.
//
// Measured (H200, November 2026, cold; 8192 x 8192 x 128 x 128): 201 us; `wide` 537, with weights in memory and a split of their own 656. Products
// of up to 2^28 steps in one pass (H100, q x kv x d x dv): 29.4 us for 36.2 at 256 x 512 x 1024 x 1024, 43 for 46 at 512 x 512 x 1024 x 2048, 46 for
// 56 at 256 x 1024 x 2048 x 1024, where the first product, of 2^29, would cost 2.6 more that way.
#include "msbench_flash_split.cuh"
#include "msbench_small_attention.cuh"
#include "msbench_thin_product.cuh"

namespace {

using namespace msbench;

// ---------------------------------------------------------------- narrow

bool narrow(int64_t d, int64_t dv) {
    return d <= flash_split::kWidth && dv <= flash_split::kWidth;
}

// Planes of queries, keys and columns of values; the rest of the workspace starts behind.
struct NarrowSpace {
    int64_t queries, keys, value_panels, k, v, unscales, bytes;

    NarrowSpace(int64_t q, int64_t kv) : queries(round_up(q, kLineMultiple)), keys(round_up(kv, kLineMultiple)), value_panels(keys / kPanelK) {
        constexpr int64_t kLineBytes = flash_split::kPanels * kPlanes * kPanelRowBytes;
        k = queries * kLineBytes;
        v = k + keys * kLineBytes;
        unscales = v + value_panels * kPlanes * flash_split::kWidth * kPanelRowBytes;
        bytes = unscales + (queries + keys + flash_split::kWidth) * 4;
    }
};

cudaError_t attend_narrow(const float* Q, const float* K, const float* V, float* Y, int64_t q, int64_t kv, int64_t d, int64_t dv, void* workspace,
                          cudaStream_t stream) {
    const NarrowSpace space(q, kv);
    unsigned char* base = static_cast<unsigned char*>(workspace);
    float* unscales = reinterpret_cast<float*>(base + space.unscales);
    const Planes queries{base, unscales, int(space.queries), nullptr}, keys{base + space.k, unscales + space.queries, int(space.keys), nullptr};
    const Planes values{base + space.v, unscales + space.queries + space.keys, flash_split::kWidth, nullptr};
    cudaError_t status = split_product::split(rows_of(Q, q, d), rows_of(K, kv, d), queries, keys, flash_split::kPanels, nullptr, 0, false, stream);
    if (status == cudaSuccess) status = split_product::split(columns_of(V, kv, dv), Lines{}, values, values, space.value_panels, nullptr, 0, true, stream);
    if (status != cudaSuccess) return status;
    const int64_t tiles = ceil_div(q, flash_split::kQueries);
    const int splits = tiles >= multiprocessors() || kv <= flash_split::kKeys ? 1 : 2;
    const flash_split::Shape shape{int(q), int(kv), int(d), int(dv), splits, kLog2e / sqrtf(float(d)), dv % 2 == 0 && reinterpret_cast<uintptr_t>(Y) % 8 == 0};
    Launch launch(dim3(unsigned(tiles * splits)), dim3(flash_split::kThreads), stream);
    launch.shared(flash_split::kSharedBytes).early();
    return launch_clusters(splits, launch, flash_split::attention, queries, keys, values, Q, K, V, Y, shape);
}

// ---------------------------------------------------------------- wide

// Weights as a left factor, by scores and each row's largest and the inverse of its sum.
struct Weights {
    const float* scores;
    const float2* rows;
    int count, K;
    int64_t pitch;
    float scale;

    __device__ __forceinline__ float value(int row, int k) const {
        return exp2_fast((scores[row * pitch + k] - rows[row].x) * scale) * rows[row].y;
    }
};

// Makes planes of the weights of eight rows. A row's largest is 1 before it is divided by the sum, which the unscale takes over; what is smaller
// than the planes can hold may get lost.
__global__ void __launch_bounds__(kRowThreads) split_weights(const Weights w, float2* rows, const Planes to, int panels) {
    constexpr int kRows = 8, kWarps = kRowThreads / 32;
    __shared__ float largest_of[kRows], sum_of[kWarps][kRows];
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * kRows;
    float largest = -INFINITY;
    if (first + warp < w.count) {
        const float* from = w.scores + (first + warp) * w.pitch;
#pragma unroll 8
        for (int k = lane; k < w.K; k += 32) largest = fmaxf(largest, __ldcg(from + k));
    }
    largest = warp_reduce(largest, Max());
    if (lane == 0) largest_of[warp] = largest;
    __syncthreads();

    const int row = first + lane % kRows, chunk = lane / kRows;
    const float* from = w.scores + row * w.pitch + chunk * 8;
    const float origin = largest_of[lane % kRows];
    float sum = 0;
#pragma unroll 2
    for (int panel = warp; panel < panels; panel += kWarps) {
        const int k = panel * kPanelK + chunk * 8;
        alignas(16) float x[8];
        if (row < w.count && k + 8 <= w.K) {
            *reinterpret_cast<float4*>(x) = __ldcg(reinterpret_cast<const float4*>(from + panel * kPanelK));
            *reinterpret_cast<float4*>(x + 4) = __ldcg(reinterpret_cast<const float4*>(from + panel * kPanelK + 4));
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] = row < w.count && k + i < w.K ? __ldcg(from + panel * kPanelK + i) : -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            x[i] = row < w.count && k + i < w.K ? exp2_fast((x[i] - origin) * w.scale) : 0.0f;
            sum += x[i];
        }
        store_split(x, float(1 << kTopExponent), to, panel, row, chunk);
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 8);
    sum += __shfl_xor_sync(0xffffffffu, sum, 16);
    if (lane < kRows) sum_of[warp][lane] = sum;
    __syncthreads();
    if (threadIdx.x >= kRows || row >= w.count) return;
    sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += sum_of[i][lane];
    const float factor = 1.0f / sum;
    rows[row] = make_float2(origin, factor);
    to.unscales[row] = fabsf(factor) / float(1 << kTopExponent);  // NaN without a sign is no mark
}

// Whether a product is fastest in one pass: more often than by itself (msbench_thin_product.cuh), since two splits, a launch each, are saved.
bool in_one_pass(int64_t M, int64_t N, int64_t K) {
    return thin(M, N, K) || M * N * K <= int64_t(1) << 28;
}

size_t product_bytes(int64_t M, int64_t N, int64_t K) {
    return in_one_pass(M, N, K) ? thin_product::bytes(M, N, K) : split_product_bytes(M, N, K);
}

int64_t scores_bytes(int64_t q, int64_t kv) {
    return round_up(q * round_up(kv, 4) * 4, 256);
}

// Scores, what the products need one after another, and weights or what is known of rows.
size_t workspace_bytes(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    if (small_attention::small(q, kv, d, dv)) return size_t(scores_bytes(q, kv));
    if (narrow(d, dv)) return size_t(NarrowSpace(q, kv).bytes);
    return size_t(2 * scores_bytes(q, kv)) + std::max(product_bytes(q, kv, d), product_bytes(q, dv, kv));
}

cudaError_t attend(const float* Q, const float* K, const float* V, float* Y, int64_t q, int64_t kv, int64_t d, int64_t dv, void* workspace,
                   cudaStream_t stream) {
    if (small_attention::small(q, kv, d, dv)) return small_attention::attend_small(Q, K, V, Y, q, kv, d, dv, static_cast<float*>(workspace), stream);
    if (narrow(d, dv)) return attend_narrow(Q, K, V, Y, q, kv, d, dv, workspace, stream);
    const int64_t pitch = round_up(kv, 4);
    char* base = static_cast<char*>(workspace);
    float *scores = reinterpret_cast<float*>(base), *weights = reinterpret_cast<float*>(base + scores_bytes(q, kv));
    char* rest = base + 2 * scores_bytes(q, kv);
    const auto first = in_one_pass(q, kv, d) ? thin_product::launch : multiply_split;
    cudaError_t status = first(rows_of(Q, q, d), rows_of(K, kv, d), scores, pitch, rest, false, stream);
    if (status != cudaSuccess) return status;
    const Lines values = columns_of(V, kv, dv);
    if (in_one_pass(q, dv, kv)) {
        status = softmax(scores, weights, q, kv, pitch, pitch, 1, d, stream);
        Lines rows = rows_of(weights, q, kv);
        rows.line_step = pitch;
        return status != cudaSuccess ? status : thin_product::launch(rows, values, Y, dv, rest, true, stream);
    }
    float2* rows = reinterpret_cast<float2*>(weights);
    const Weights left{scores, rows, int(q), int(kv), pitch, kLog2e / sqrtf(float(d))};
    const split_product::Layout layout(q, dv, kv);
    const Planes a = layout.a_planes(rest), b = layout.b_planes(rest);
    const int slices = split_product::slices(q, dv, kv);
    status = Launch(dim3(unsigned(ceil_div(q, 8))), dim3(kRowThreads), stream).early()(split_weights, left, rows, a, int(layout.panels));
    if (status == cudaSuccess) status = split_product::split(values, Lines{}, b, b, layout.panels, Y, slices > 1 ? q * dv : 0, true, stream);
    return status != cudaSuccess ? status : split_product::product(left, values, a, b, layout.panels, Y, dv, slices, stream);
}

}  // namespace

extern "C" size_t softmax_attention_workspace(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    return workspace_bytes(q, kv, d, dv);
}

extern "C" cudaError_t softmax_attention(const scalar_t* Q, const scalar_t* K, const scalar_t* V, scalar_t* Y, int64_t q, int64_t kv, int64_t d,
                                         int64_t dv, void* workspace, size_t, cudaStream_t stream) {
    return attend(Q, K, V, Y, q, kv, d, dv, workspace, stream);
}
