// Y = softmax(Q K' / sqrt(d)) V.
//
// `narrow` (bf16, d and dv up to 128): scores never leave the multiprocessor (msbench_flash.cuh).
// `wide`: two products with a softmax between them, all but the first launch early. Scores are fp32 in the workspace; in bf16 as sums of
// slices of K, which the softmax adds up, and weights are rounded to bf16. fp32 takes the products of matrix_mul, of two scaled fp16 parts a
// number, and its softmax writes those of the weights.
//
// Bound: 2 q kv (d + dv) flops on the tensor cores, thrice that in fp32; besides, wide, the scores through L2.
//
// Measured (H200, 2026-11-23, cold; 8192 x 8192 x 128 x 128): bf16 56 us (cuDNN: 102; without taking turns 60); fp32 532 (with weights in memory
// and a split of their own 656).
#include "msbench_launch.cuh"
#include "msbench_math.cuh"
#if MSBENCH_BF16
#include "msbench_flash.cuh"
#include "msbench_tile_product.cuh"
#else
#include "msbench_thin_product.cuh"
#endif

namespace {

using namespace msbench;

constexpr int kRowThreads = 256;

// A row of scores is a sum of layers; its weights go to a matrix of `to_pitch`. `scale`: of scores, so that exponentials are to base 2.
__global__ void __launch_bounds__(kRowThreads)
    softmax_rows(const float* layers, scalar_t* weights, int rows, int columns, int64_t pitch, int64_t to_pitch, int count, float scale) {
    extern __shared__ __align__(16) float row_scores[];
    __shared__ float scratch[32];
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    const float4* from = reinterpret_cast<const float4*>(layers + blockIdx.x * pitch);
    const int64_t layer = rows * pitch / 4;
    float4* const scores = reinterpret_cast<float4*>(row_scores);
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < (columns + 3) / 4; i += kRowThreads) {
        float4 sum = __ldcg(from + i);
        for (int n = 1; n < count; ++n) {
            const float4 more = __ldcg(from + n * layer + i);
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        if (i * 4 + 1 >= columns) sum.y = -INFINITY;
        if (i * 4 + 2 >= columns) sum.z = -INFINITY;
        if (i * 4 + 3 >= columns) sum.w = -INFINITY;
        scores[i] = sum;
        largest = fmaxf(fmaxf(largest, fmaxf(sum.x, sum.y)), fmaxf(sum.z, sum.w));
    }
    largest = block_reduce(largest, Max(), scratch);
    float total = 0;
    for (int i = threadIdx.x; i < (columns + 3) / 4; i += kRowThreads) {
        float4 s = scores[i];
        s.x = exp2_fast((s.x - largest) * scale), s.y = exp2_fast((s.y - largest) * scale);
        s.z = exp2_fast((s.z - largest) * scale), s.w = exp2_fast((s.w - largest) * scale);
        scores[i] = s;
        total += (s.x + s.y) + (s.z + s.w);
    }
    const float factor = 1.0f / block_reduce(total, Sum(), scratch);
    Packet<scalar_t>* const to = reinterpret_cast<Packet<scalar_t>*>(weights + blockIdx.x * to_pitch);
    constexpr int kSize = Packet<scalar_t>::kSize;
    for (int i = threadIdx.x; i < to_pitch / kSize; i += kRowThreads) {
        Packet<scalar_t> packet;
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
            const int at = i * kSize + k;
            packet.lane[k] = from_float<scalar_t>(at < columns ? row_scores[at] * factor : 0.0f);
        }
        to[i] = packet;
    }
}

int64_t round_up(int64_t x, int64_t multiple) {
    return ceil_div(x, multiple) * multiple;
}

cudaError_t softmax(const float* layers, scalar_t* weights, int64_t q, int64_t kv, int64_t pitch, int64_t to_pitch, int count, int64_t d,
                    cudaStream_t stream) {
    const float scale = kLog2e / sqrtf(float(d));
    const int64_t bytes = round_up(kv, 4) * 4;
    // Together with the kernel's static shared memory that may exceed the default limit where it does not alone.
    const cudaError_t status = cudaFuncSetAttribute(softmax_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    if (status != cudaSuccess) return status;
    return Launch(dim3(unsigned(q)), dim3(kRowThreads), stream).shared(bytes).early()(softmax_rows, layers, weights, int(q), int(kv),
                                                                                                  pitch, to_pitch, count, scale);
}

#if MSBENCH_BF16

using namespace tile_product;

bool narrow(int64_t d, int64_t dv) {
    return d <= flash::kWidth && dv <= flash::kWidth;
}

// Where the parts of the workspace of `wide` start: scores, weights, and what the products need. `narrow` has copies of Q, K, V.
struct Space {
    Plan scores_plan;
    int64_t weights, products, bytes;

    Space(int64_t q, int64_t kv, int64_t d, int64_t dv) : scores_plan(choose(q, kv, d, true)) {
        weights = round_up(scores_plan.slices * q * sums_pitch(kv) * 4, 256);
        products = weights + round_up(q * round_up(kv, 8) * 2, 256);
        const size_t first = padded_bytes(q, d) + padded_bytes(kv, d), second = multiply_tiles_bytes<true>(q, dv, kv);
        bytes = products + int64_t(std::max(first, second));
    }
};

size_t workspace_bytes(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    return size_t(narrow(d, dv) ? padded_bytes(q, d) + padded_bytes(kv, d) + padded_bytes(kv, dv) : Space(q, kv, d, dv).bytes);
}

cudaError_t attend_narrow(const Matrix16& Q, const Matrix16& K, const Matrix16& V, scalar_t* Y, void* workspace, cudaStream_t stream) {
    const Padding q(Q, workspace), k(K, static_cast<char*>(workspace) + padded_bytes(Q.rows, Q.columns));
    const Padding v(V, reinterpret_cast<char*>(k.to) + padded_bytes(K.rows, K.columns));
    bool behind = false;
    const auto pad = [&](const Padding& a, const Padding& b) {
        if (a.packets + b.packets == 0) return cudaSuccess;
        Launch launch(dim3(unsigned(ceil_div(a.packets + b.packets, kMapThreads))), dim3(kMapThreads), stream);
        if (behind) launch.early();
        behind = true;
        return launch(pad_rows, a, b);
    };
    Padding nothing(Q, nullptr);
    nothing.packets = 0;
    cudaError_t status = pad(q, k);
    if (status == cudaSuccess) status = pad(v, nothing);
    const TensorMaps maps;
    CUtensorMap q_map, k_map, v_map;
    const auto describe = [&](CUtensorMap* map, const Matrix16& m) {
        if (status != cudaSuccess) return;
        status = maps.describe<2>(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, m.data, {cuuint64_t(m.columns), cuuint64_t(m.rows)},
                                  {cuuint64_t(m.pitch) * 2}, {flash::kBox, flash::kTile});
    };
    describe(&q_map, q.result()), describe(&k_map, k.result()), describe(&v_map, v.result());
    if (status != cudaSuccess) return status;
    const int64_t tiles = ceil_div(Q.rows, flash::kTile);
    const int splits = tiles >= multiprocessors() || K.rows <= flash::kTile ? 1 : 2;
    const flash::Shape shape{int(Q.rows), int(K.rows), int(V.columns), splits, kLog2e / sqrtf(float(Q.columns)),
                             V.columns % 2 == 0 && reinterpret_cast<uintptr_t>(Y) % 4 == 0};
    Launch launch(dim3(unsigned(tiles * splits)), dim3(flash::kThreads), stream);
    launch.shared(flash::kSharedBytes);
    if (behind) launch.early();
    return launch_clusters(splits, launch, flash::attention, q_map, k_map, v_map, Y, shape);
}

cudaError_t attend(const scalar_t* Q, const scalar_t* K, const scalar_t* V, scalar_t* Y, int64_t q, int64_t kv, int64_t d, int64_t dv,
                   void* workspace, cudaStream_t stream) {
    const Matrix16 queries{Q, q, d, d}, keys{K, kv, d, d}, values{V, kv, dv, dv};
    if (narrow(d, dv)) return attend_narrow(queries, keys, values, Y, workspace, stream);
    const Space space(q, kv, d, dv);
    char* base = static_cast<char*>(workspace);
    float* scores = reinterpret_cast<float*>(base);
    scalar_t* weights = reinterpret_cast<scalar_t*>(base + space.weights);
    cudaError_t status =
        multiply_padded<false>(queries, keys, scores, sums_pitch(kv), space.scores_plan, base + space.products, false, stream);
    if (status != cudaSuccess) return status;
    status = softmax(scores, weights, q, kv, sums_pitch(kv), round_up(kv, 8), space.scores_plan.slices, d, stream);
    if (status != cudaSuccess) return status;
    return multiply_tiles<true>({weights, q, kv, round_up(kv, 8)}, values, Y, dv, base + space.products, true, stream);
}

#else

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

int64_t scores_bytes(int64_t q, int64_t kv) {
    return round_up(q * round_up(kv, 4) * 4, 256);
}

// Scores, what the products need one after another, and weights or what is known of rows.
size_t workspace_bytes(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    return size_t(2 * scores_bytes(q, kv)) + std::max(multiply_fp32_bytes(q, kv, d), multiply_fp32_bytes(q, dv, kv));
}

cudaError_t attend(const float* Q, const float* K, const float* V, float* Y, int64_t q, int64_t kv, int64_t d, int64_t dv, void* workspace,
                   cudaStream_t stream) {
    const int64_t pitch = round_up(kv, 4);
    char* base = static_cast<char*>(workspace);
    float *scores = reinterpret_cast<float*>(base), *weights = reinterpret_cast<float*>(base + scores_bytes(q, kv));
    char* rest = base + 2 * scores_bytes(q, kv);
    cudaError_t status = multiply_fp32(rows_of(Q, q, d), rows_of(K, kv, d), scores, pitch, rest, false, stream);
    if (status != cudaSuccess) return status;
    const Lines values = columns_of(V, kv, dv);
    if (thin(q, dv, kv)) {
        status = softmax(scores, weights, q, kv, pitch, pitch, 1, d, stream);
        Lines rows = rows_of(weights, q, kv);
        rows.line_step = pitch;
        return status != cudaSuccess ? status : multiply_fp32(rows, values, Y, dv, rest, true, stream);
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

#endif

}  // namespace

extern "C" size_t softmax_attention_workspace(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    return workspace_bytes(q, kv, d, dv);
}

extern "C" cudaError_t softmax_attention(const scalar_t* Q, const scalar_t* K, const scalar_t* V, scalar_t* Y, int64_t q, int64_t kv, int64_t d,
                                         int64_t dv, void* workspace, size_t, cudaStream_t stream) {
    return attend(Q, K, V, Y, q, kv, d, dv, workspace, stream);
}
