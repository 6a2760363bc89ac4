// Y = softmax(Q K' / sqrt(d)) V in bf16.
//
// `narrow` (d and dv up to 128): scores never leave the multiprocessor (msbench_flash.cuh).
// `wide`: two products with a softmax between them, all but the first launch early. Scores are fp32 in the workspace, as sums of slices of
// K, which the softmax adds up, and weights are rounded to bf16.
//
// Bound: 2 q kv (d + dv) flops on the tensor cores; besides, wide, the scores through L2.
//
// Measured (H200, November 2026, cold): 56 us for 8192 x 8192 x 128 x 128 (cuDNN: 102; without taking turns 60). Slices chosen by what layers
// cost: 33 us for q = kv = 1024, d = 4096, dv = 2048, where choosing by the product alone took 37. Lost: prefetching V to L2 in the
// softmax, 62 us for 60 at kv = 2048.
#include "msbench_flash.cuh"
#include "msbench_score_rows.cuh"
#include "msbench_tile_product.cuh"

namespace {

using namespace msbench;
using namespace tile_product;

bool narrow(int64_t d, int64_t dv) {
    return d <= flash::kWidth && dv <= flash::kWidth;
}

// As choose, but layers are counted as what they cost: they are written, and read by the softmax.
Plan choose_layers(int64_t M, int64_t N, int64_t K) {
    Plan best{};
    int64_t least = INT64_MAX;
    for (int slices = 1; slices <= kMostSlices && (slices == 1 || slices * 4 * kTileK <= K); ++slices) {
        const int64_t layer = M * N / 132;  // elements a multiprocessor
        const auto consider = [&](Size size, int64_t cycles) {
            cycles += slices > 1 ? (slices - 1) * layer / 3 - 300 * slices : 0;
            if (cycles < least) least = cycles, best = {size, slices};
        };
        consider(Size::kLarge, estimate<Large>(M, N, K, 1120, 1500, slices));
        consider(Size::kMedium, estimate<Medium>(M, N, K, 600, 1000, slices));
        consider(Size::kSmall, estimate<Small>(M, N, K, 370, 800, slices));
        consider(Size::kTiny, estimate<Tiny>(M, N, K, 250, 700, slices));
    }
    return best;
}

// Where the parts of the workspace of `wide` start: scores, weights, and what the products need. `narrow` has copies of Q, K, V.
struct Space {
    Plan scores_plan;
    int64_t weights, products, bytes;

    Space(int64_t q, int64_t kv, int64_t d, int64_t dv) : scores_plan(choose_layers(q, kv, d)) {
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

}  // namespace

extern "C" size_t softmax_attention_workspace(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    return workspace_bytes(q, kv, d, dv);
}

extern "C" cudaError_t softmax_attention(const scalar_t* Q, const scalar_t* K, const scalar_t* V, scalar_t* Y, int64_t q, int64_t kv, int64_t d,
                                         int64_t dv, void* workspace, size_t, cudaStream_t stream) {
    return attend(Q, K, V, Y, q, kv, d, dv, workspace, stream);
}
