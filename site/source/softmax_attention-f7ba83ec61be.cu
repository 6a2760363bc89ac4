// Y = softmax(Q K' / sqrt(d)) V in bf16.
//
// `narrow` (d and dv up to 128): scores never leave the multiprocessor (msbench_flash.cuh). Not for up to 128 queries, whose many keys two blocks
// would share.
// `two`: two products, the second early. Tiles of the first turn scores into weights, rounded to bf16, with a shift for each row; the second
// divides by a row's sum (msbench_weight_tiles.cuh, msbench_weight_mix.cuh). Where a product has few tiles, a block has one, or a slice of one
// (msbench_few_weights.cuh).
// `layers`: where slices of K pay, which few tiles ask for. Scores are fp32 in the workspace, as sums of slices, which a softmax adds up, and
// weights are rounded to bf16.
//
// Bound: 2 q kv (d + dv) flops on the tensor cores; besides, not narrow, weights through L2.
//
// Measured (H200, November 2026, cold): 56 us for 8192 x 8192 x 128 x 128 (cuDNN: 102; without taking turns 60).
// `two` for `layers` (H100, q x kv x d x dv): 54 us for 61 at 1024 x 2048 x 4096 x 4096, 31.5 for 35 at 1024 x 1024 x 4096 x 2048, 18.5 for 21.9 at
// 512 x 1024 x 2048 x 2048, 11.1 for 13.1 at 128 x 256 x 512 x 512.
// A block for each of few tiles, before that blocks that walked over them (H100): 8.8 us for 9.6 at 128 x 256 x 512 x 512, 10.8 for 11.7 at
// 256 x 512 x 1024 x 1024 (scores in halves of K; whole 11.3), 12.2 for 13.0 at 512 x 512 x 1024 x 2048, 14.9 for 15.4 at 256 x 1024 x 2048 x 1024,
// 16.3 for 17.1 at 512 x 1024 x 2048 x 2048, 7.9 for 8.7 at 77 x 203 x 96 x 80, and 11.0 for 13.3 at 256 x 256 x 4096 x 256 (quarters; `layers`
// before). 64 or 128 rows more to a tile and slices of the second product are slower, and clusters of four that fill over 120 multiprocessors.
#include "msbench_few_weights.cuh"
#include "msbench_flash.cuh"
#include "msbench_score_rows.cuh"
#include "msbench_tile_product.cuh"
#include "msbench_weight_mix.cuh"

namespace {

using namespace msbench;
using namespace tile_product;

bool narrow(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    return d <= flash::kWidth && dv <= flash::kWidth && (q > flash::kTile || kv <= flash::kTile);
}

// Estimated cycles of a product.
int64_t cycles_of(Size size, int64_t M, int64_t N, int64_t K, int slices) {
    switch (size) {
        case Size::kLarge: return estimate<Large>(M, N, K, 1120, 1500, slices);
        case Size::kMedium: return estimate<Medium>(M, N, K, 600, 1000, slices);
        case Size::kSmall: return estimate<Small>(M, N, K, 370, 800, slices);
        default: return estimate<Tiny>(M, N, K, 250, 700, slices);
    }
}

struct Choice {
    Plan plan;
    int64_t cycles;
};

// As choose, but layers are counted as what they cost: they are written, and read by the softmax.
Choice choose_layers(int64_t M, int64_t N, int64_t K, int most_slices) {
    Choice best{{}, INT64_MAX};
    for (int slices = 1; slices <= most_slices && (slices == 1 || slices * 4 * kTileK <= K); ++slices) {
        const int64_t layer = M * N / 132;  // elements a multiprocessor
        for (const Size size : {Size::kLarge, Size::kMedium, Size::kSmall, Size::kTiny}) {
            const int64_t cycles = cycles_of(size, M, N, K, slices) + (slices > 1 ? (slices - 1) * layer / 3 - 300 * slices : 0);
            if (cycles < best.cycles) best = {{size, slices}, cycles};
        }
    }
    return best;
}

// How a product of `two` is launched: blocks walk over tiles T, or each has a tile of few, or a slice of one.
template <class T_>
struct Walk {
    using T = T_;
    static constexpr int kSlices = 1, kSharedBytes = T::kSharedBytes;
    static constexpr auto kScore = weight_tiles::score<T>;
    static constexpr auto kMix = weight_tiles::mix<T>;
    static dim3 blocks(int64_t M, int64_t N) {
        return dim3(unsigned(std::min<int64_t>(ceil_div(M, T::kTileM) * ceil_div(N, T::kTileN), multiprocessors())));
    }
};
template <int kConsumers, int kTileN, int kStages, int kSlices_>
struct Each {
    using P = few_weights::Plan<kConsumers, kTileN, kStages, kSlices_>;
    using T = typename P::T;
    static constexpr int kSlices = kSlices_, kSharedBytes = few_weights::shared_bytes<P>();
    static constexpr auto kScore = few_weights::score<P>;
    static constexpr auto kMix = few_weights::mix<P>;
    static dim3 blocks(int64_t M, int64_t N) { return dim3(kSlices, unsigned(ceil_div(M, T::kTileM)), unsigned(ceil_div(N, T::kTileN))); }
};

enum class Way { kWalk, kLow, kLowHalves, kLowQuarters, kTall };

// Slices pay from `long_k` on where half of the multiprocessors stay free. Not for so long a K that layers may.
Way way_of(int64_t M, int64_t N, int64_t K, int64_t long_k) {
    constexpr int64_t kAtOnce = 132;  // multiprocessors
    const int64_t low = ceil_div(M, 64) * ceil_div(N, 64), tall = ceil_div(M, 128) * ceil_div(N, 64);
    if (K > 8192) return Way::kWalk;
    if (4 * low <= kAtOnce / 2 && K >= long_k) return Way::kLowQuarters;
    if (2 * low <= kAtOnce && K >= (4 * low <= kAtOnce ? long_k : 4096)) return Way::kLowHalves;
    if (low <= kAtOnce) return Way::kLow;
    return tall <= kAtOnce && K <= 1024 ? Way::kTall : Way::kWalk;
}

Way score_way(int64_t q, int64_t kv, int64_t d) {
    return way_of(q, kv, d, 1024);
}

// Values come early anyway.
Way mix_way(int64_t q, int64_t kv, int64_t dv) {
    return way_of(q, dv, kv, 2048);
}

// Calls f with how a product of M x N x K is launched.
template <typename F>
cudaError_t with_way(Way way, int64_t M, int64_t N, int64_t K, F f) {
    switch (way) {
        case Way::kLow: return f(Each<1, 64, 8, 1>());
        case Way::kLowHalves: return f(Each<1, 64, 12, 2>());
        case Way::kLowQuarters: return f(Each<1, 64, 11, 4>());
        case Way::kTall: return f(Each<2, 64, 9, 1>());
        case Way::kWalk: break;
    }
    switch (choose_layers(M, N, K, 1).plan.size) {
        case Size::kLarge: return f(Walk<Large>());
        case Size::kMedium: return f(Walk<Medium>());
        case Size::kSmall: return f(Walk<Small>());
        default: return f(Walk<Tiny>());
    }
}

// Where the parts of the workspace of `layers` start: scores, weights, and what the products need.
struct LayersSpace {
    Plan scores_plan;
    int64_t weights, products, bytes;

    LayersSpace(int64_t q, int64_t kv, int64_t d, int64_t dv) : scores_plan(choose_layers(q, kv, d, kMostSlices).plan) {
        weights = round_up(scores_plan.slices * q * sums_pitch(kv) * 4, 256);
        products = weights + round_up(q * round_up(kv, 8) * 2, 256);
        const size_t first = padded_bytes(q, d) + padded_bytes(kv, d), second = multiply_tiles_bytes<true>(q, dv, kv);
        bytes = products + int64_t(std::max(first, second));
    }
};

// Where the parts of the workspace of `two` start: weights, what is known of their rows, and copies of Q, K, V.
struct TwoSpace {
    int64_t parts, q, k, v, bytes;

    TwoSpace(int64_t queries, int64_t kv, int64_t d, int64_t dv) {
        parts = round_up(queries * round_up(kv, 8) * 2, 256);
        q = parts + ceil_div(kv, Tiny::kTileN) * round_up(queries, Large::kTileM) * int64_t(sizeof(float2));
        k = q + padded_bytes(queries, d), v = k + padded_bytes(kv, d), bytes = v + padded_bytes(kv, dv);
    }
};

// Whether slices of K save more than a softmax of its own and layers cost. Not where both products have few tiles.
bool in_layers(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    if (score_way(q, kv, d) != Way::kWalk && mix_way(q, kv, dv) != Way::kWalk) return false;
    constexpr int64_t kSoftmaxCycles = 3500;
    const Plan second = choose(q, dv, kv, false);
    return choose_layers(q, kv, d, kMostSlices).cycles + cycles_of(second.size, q, dv, kv, second.slices) + kSoftmaxCycles <
           choose_layers(q, kv, d, 1).cycles + choose_layers(q, dv, kv, 1).cycles;
}

cudaError_t attend_two(const Matrix16& Q, const Matrix16& K, const Matrix16& V, scalar_t* Y, void* workspace, cudaStream_t stream) {
    const TwoSpace space(Q.rows, K.rows, Q.columns, V.columns);
    char* base = static_cast<char*>(workspace);
    scalar_t* weights = reinterpret_cast<scalar_t*>(base);
    const Padding q(Q, base + space.q), k(K, base + space.k), v(V, base + space.v);
    bool behind = false;
    cudaError_t status = cudaSuccess;
    const auto pad = [&](const Padding& a, const Padding& b) {
        if (a.packets + b.packets == 0 || status != cudaSuccess) return;
        Launch launch(dim3(unsigned(ceil_div(a.packets + b.packets, kMapThreads))), dim3(kMapThreads), stream);
        if (behind) launch.early();
        behind = true;
        status = launch(pad_rows, a, b);
    };
    Padding nothing(Q, nullptr);
    nothing.packets = 0;
    pad(q, k), pad(v, nothing);
    const TensorMaps maps;
    const auto describe = [&](CUtensorMap* map, const Matrix16& m, int box_rows) {
        if (status != cudaSuccess) return;
        status = maps.describe<2>(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, m.data, {cuuint64_t(m.columns), cuuint64_t(m.rows)},
                                  {cuuint64_t(m.pitch) * 2}, {kBox, cuuint32_t(box_rows)});
    };
    const int64_t queries = Q.rows, keys = K.rows, pitch = round_up(keys, 8);
    weight_tiles::RowParts rows{reinterpret_cast<float2*>(base + space.parts), round_up(queries, Large::kTileM), 0};
    int part_columns = 0;
    const auto start = [&](auto way, auto kernel, int64_t M, int64_t N, bool early, const auto&... arguments) {
        using W = decltype(way);
        Launch launch(W::blocks(M, N), dim3(W::T::kThreads), stream);
        launch.shared(W::kSharedBytes);
        if (early) launch.early();
        if constexpr (W::kSlices > 1) return launch_clusters(W::kSlices, launch, kernel, arguments...);
        else return launch(kernel, arguments...);
    };
    const auto slice_of = [](int64_t k, int slices) { return int(round_up(ceil_div(k, slices), kTileK)); };
    if (status != cudaSuccess) return status;
    status = with_way(score_way(queries, keys, Q.columns), queries, keys, Q.columns, [&](auto way) {
        using W = decltype(way);
        part_columns = W::T::kTileN, rows.count = int(ceil_div(keys, W::T::kTileN));
        CUtensorMap a_map, b_map;
        describe(&a_map, q.result(), W::T::kTileM), describe(&b_map, k.result(), W::T::kTileN);
        if (status != cudaSuccess) return status;
        const Shape shape{int(queries), int(keys), int(Q.columns), slice_of(Q.columns, W::kSlices), W::kSlices, pitch, true};
        return start(way, W::kScore, queries, keys, behind, a_map, b_map, weights, shape, rows, kLog2e / sqrtf(float(Q.columns)));
    });
    if (status != cudaSuccess) return status;
    return with_way(mix_way(queries, keys, V.columns), queries, V.columns, keys, [&](auto way) {
        using W = decltype(way);
        CUtensorMap a_map, b_map;
        describe(&a_map, Matrix16{weights, queries, keys, pitch}, W::T::kTileM), describe(&b_map, v.result(), kTileK);
        if (status != cudaSuccess) return status;
        const Shape shape{int(queries),   int(V.columns), int(keys), slice_of(keys, W::kSlices), W::kSlices, V.columns,
                          V.columns % 8 == 0 && packets_allowed(Y)};
        return start(way, W::kMix, queries, V.columns, true, a_map, b_map, Y, shape, rows, part_columns, v.packets == 0);
    });
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

cudaError_t attend_layers(const Matrix16& Q, const Matrix16& K, const Matrix16& V, scalar_t* Y, void* workspace, cudaStream_t stream) {
    const int64_t q = Q.rows, kv = K.rows, d = Q.columns, dv = V.columns;
    const LayersSpace space(q, kv, d, dv);
    char* base = static_cast<char*>(workspace);
    float* scores = reinterpret_cast<float*>(base);
    scalar_t* weights = reinterpret_cast<scalar_t*>(base + space.weights);
    cudaError_t status = multiply_padded<false>(Q, K, scores, sums_pitch(kv), space.scores_plan, base + space.products, false, stream);
    if (status != cudaSuccess) return status;
    status = softmax(scores, weights, q, kv, sums_pitch(kv), round_up(kv, 8), space.scores_plan.slices, d, stream);
    if (status != cudaSuccess) return status;
    return multiply_tiles<true>({weights, q, kv, round_up(kv, 8)}, V, Y, dv, base + space.products, true, stream);
}

}  // namespace

extern "C" size_t softmax_attention_workspace(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    if (narrow(q, kv, d, dv)) return size_t(padded_bytes(q, d) + padded_bytes(kv, d) + padded_bytes(kv, dv));
    return size_t(in_layers(q, kv, d, dv) ? LayersSpace(q, kv, d, dv).bytes : TwoSpace(q, kv, d, dv).bytes);
}

extern "C" cudaError_t softmax_attention(const scalar_t* Q, const scalar_t* K, const scalar_t* V, scalar_t* Y, int64_t q, int64_t kv, int64_t d,
                                         int64_t dv, void* workspace, size_t, cudaStream_t stream) {
    const auto plan = narrow(q, kv, d, dv) ? attend_narrow : in_layers(q, kv, d, dv) ? attend_layers : attend_two;
    return plan({Q, q, d, d}, {K, kv, d, d}, {V, kv, dv, dv}, Y, workspace, stream);
}
