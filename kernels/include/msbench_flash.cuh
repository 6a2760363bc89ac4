// Attention of narrow heads (d and dv up to 128) in bf16 without scores in memory, on wgmma and TMA.
//
// A cluster of two blocks has 128 queries, each block half of the keys, so that 8192 queries fill 128 multiprocessors. One warp group brings
// tiles of 128 keys and values; two have 64 queries each and take turns (named barriers): one multiplies while the other exponentiates. Scores
// of the next tile are started before the weights of this one meet V. What is subtracted from scores changes only when one exceeds it by
// 2^8, so that older sums are rarely scaled. The halves meet in distributed shared memory. (After FlashAttention-3, arXiv 2407.08608.)
#pragma once

#include "msbench_groups.cuh"

#include "msbench_async.cuh"
#include "msbench_cluster.cuh"
#include "msbench_math.cuh"
#include "msbench_running_softmax.cuh"
#include "msbench_wgmma.cuh"

namespace msbench::flash {

constexpr int kTile = 128, kWidth = 128, kBox = 64, kStages = 2;  // queries and keys of a tile; columns; columns of a TMA box
constexpr int kBoxBytes = kTile * kBox * 2, kTileBytes = 2 * kBoxBytes, kThreads = 3 * kGroupThreads;
constexpr int kExchange = 17;  // float4 of a thread's row sums, when halves meet
constexpr int kSharedBytes = (1 + 2 * kStages) * kTileBytes + kExchange * 16 * kGroupThreads + 1024;
using Softmax = RunningSoftmax<8, 0>;

struct Shape {
    int queries, keys, columns, splits;  // columns of V; splits: blocks of a cluster, which share the keys
    float scale;                         // of scores, so that weights are powers of two
    bool pairs;                          // of y are aligned
};

__device__ __forceinline__ unsigned pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned&>(pair);
}

// Boxes of all maps are 64 columns of 128 rows.
__global__ void __launch_bounds__(kThreads, 1)
    attention(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
              __nv_bfloat16* y, const __grid_constant__ Shape shape) {
    extern __shared__ unsigned char raw[];
    __shared__ Barrier q_filled;
    __shared__ Ring<kStages> k_ring, v_ring;
    unsigned char* q_tile = raw + (1024 - shared_address(raw) % 1024) % 1024;
    unsigned char *k_tiles = q_tile + kTileBytes, *v_tiles = k_tiles + kStages * kTileBytes;
    float4* exchange = reinterpret_cast<float4*>(v_tiles + kStages * kTileBytes);
    const auto cluster = cooperative_groups::this_cluster();
    const int rank = blockIdx.x % shape.splits, first_query = blockIdx.x / shape.splits * kTile;
    const int tiles = (shape.keys + kTile - 1) / kTile, share = (tiles + shape.splits - 1) / shape.splits;
    const int first_tile = min(rank * share, tiles), count = min(first_tile + share, tiles) - first_tile;
    if (threadIdx.x == 0) {
        q_filled.init(1);
        k_ring.init(8);  // each warp that multiplies
        v_ring.init(8);
    }
    __syncthreads();
    cudaGridDependencySynchronize();
    const bool split = shape.splits > 1;
    if (split) cluster.barrier_arrive();
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0), lane = threadIdx.x % 32;
    if (group == 0) {
        give_up_registers<24>();
        if (threadIdx.x == 0) {
            const auto copy_tile = [&](unsigned char* to, const CUtensorMap& map, Barrier& filled, int row) {
                for (int b = 0; b < 2; ++b) copy_box(to + b * kBoxBytes, &map, filled, b * kBox, row);
            };
            q_filled.expect(kTileBytes);
            copy_tile(q_tile, q_map, q_filled, first_query);
            RingPosition<kStages> at;
            for (int i = 0; i < count; ++i, at.advance()) {
                const int key = (first_tile + i) * kTile;
                k_ring.acquire(at, kTileBytes);
                copy_tile(k_tiles + at.stage * kTileBytes, k_map, k_ring.filled[at.stage], key);
                v_ring.acquire(at, kTileBytes);
                copy_tile(v_tiles + at.stage * kTileBytes, v_map, v_ring.filled[at.stage], key);
            }
        }
        __syncwarp();
        if (split) {
            cluster.barrier_wait();
            cluster.sync();
        }
        return;
    }
    get_registers<240>();
    const int mine = group - 1, warp = threadIdx.x / 32 % 4, thread = threadIdx.x % kGroupThreads;
    float out[64], s[64];
    unsigned p[32];
#pragma unroll
    for (int i = 0; i < 64; ++i) out[i] = s[i] = 0;
    Softmax state;
    const float scale[2] = {shape.scale, shape.scale};
    const uint64_t q_start = descriptor_k_fastest(shared_address(q_tile) + mine * kGroupRows * kBox * 2),
                   k_start = descriptor_k_fastest(shared_address(k_tiles)), v_start = descriptor_n_fastest(shared_address(v_tiles), kBoxBytes);
    const auto scores = [&](int stage) {
        mma_fence();
#pragma unroll
        for (int i = 0; i < kWidth / kMmaK; ++i) {
            const int at = (i / 4 * kBoxBytes + i % 4 * 32) >> 4;
            multiply_add<MmaType::kBf16>(s, q_start + at, k_start + (stage * kTileBytes >> 4) + at, i > 0);
        }
        mma_commit();
    };
    const auto values = [&](int stage) {
        mma_fence();
#pragma unroll
        for (int i = 0; i < kTile / kMmaK; ++i) multiply_add<MmaType::kBf16, true>(out, p + 4 * i, v_start + ((stage * kTileBytes + i * kMmaK * kBox * 2) >> 4));
        mma_commit();
    };
    const auto pack_weights = [&] {
#pragma unroll
        for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
    };
    const auto turn = [&] { sync_named(2 + mine, 2 * kGroupThreads); };
    const auto pass = [&] { arrive_named(3 - mine, 2 * kGroupThreads); };
    const auto weigh = [&](int tile, float (&factor)[2]) {
        const int left = shape.keys - tile * kTile;
        return left < kTile ? state.weigh<true>(s, factor, scale, left, lane)
                            : state.weigh<false>(s, factor, scale, left, lane);
    };
    if (count > 0) {
        float factor[2];
        RingPosition<kStages> at;
        if (mine == 1) pass();
        q_filled.wait(0);
        k_ring.wait(at);
        turn();
        scores(0);
        pass();
        mma_wait<0>();
        hold(s);
        if (lane == 0) k_ring.release(0);
        weigh(first_tile, factor);
        pack_weights();
        for (int i = 1; i < count; ++i) {
            RingPosition<kStages> next = at;
            next.advance();
            k_ring.wait(next);
            turn();
            scores(next.stage);
            v_ring.wait(at);
            values(at.stage);
            pass();
            mma_wait<1>();
            hold(s);
            if (lane == 0) k_ring.release(next.stage);
            const bool moves = weigh(first_tile + i, factor);
            mma_wait<0>();
            hold(out);
            hold(p);  // until here the products read these registers
            if (lane == 0) v_ring.release(at.stage);
            if (__any_sync(0xffffffffu, moves)) {
#pragma unroll
                for (int n = 0; n < 64; ++n) out[n] *= factor[n / 2 % 2];
            }
            pack_weights();
            at = next;
        }
        v_ring.wait(at);
        turn();
        values(at.stage);
        if (mine == 0) pass();
        mma_wait<0>();
        hold(out);
        hold(p);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], 1);
        state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], 2);
    }
    if (split) {
        // Each block ends half of the rows: what it has of the others it gives to its peer.
        cluster.barrier_wait();
        if (mine != rank) {
            float4* there = cluster.map_shared_rank(exchange, rank ^ 1);
#pragma unroll
            for (int i = 0; i < 16; ++i) there[i * kGroupThreads + thread] = make_float4(out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3]);
            there[16 * kGroupThreads + thread] = make_float4(state.shift[0], state.shift[1], state.sum[0], state.sum[1]);
        }
        cluster.sync();
        if (mine != rank) return;
        const float4 other = exchange[16 * kGroupThreads + thread];
        const float other_shift[2] = {other.x, other.y}, other_sum[2] = {other.z, other.w};
        float here[2], there[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            // A block without keys has a sum of zero; its shift is of no account.
            const float top = other_sum[h] == 0 ? state.shift[h] : state.sum[h] == 0 ? other_shift[h] : fmaxf(state.shift[h], other_shift[h]);
            here[h] = state.sum[h] == 0 ? 0.0f : exp2_fast(state.shift[h] - top);
            there[h] = other_sum[h] == 0 ? 0.0f : exp2_fast(other_shift[h] - top);
            state.sum[h] = state.sum[h] * here[h] + other_sum[h] * there[h];
        }
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const float4 o = exchange[i * kGroupThreads + thread];
            out[4 * i] = out[4 * i] * here[0] + o.x * there[0], out[4 * i + 1] = out[4 * i + 1] * here[0] + o.y * there[0];
            out[4 * i + 2] = out[4 * i + 2] * here[1] + o.z * there[1], out[4 * i + 3] = out[4 * i + 3] * here[1] + o.w * there[1];
        }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = first_query + mine * kGroupRows + warp * 16 + h * 8 + lane / 4;
        const float factor = 1.0f / state.sum[h];
        if (row >= shape.queries) continue;
        __nv_bfloat16* to = y + int64_t(row) * shape.columns;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            const int column = j * 8 + lane % 4 * 2;
            const float a = out[4 * j + 2 * h] * factor, b = out[4 * j + 2 * h + 1] * factor;
            if (shape.pairs) {
                if (column < shape.columns) *reinterpret_cast<unsigned*>(to + column) = pack(a, b);
            } else {
                if (column < shape.columns) to[column] = __float2bfloat16_rn(a);
                if (column + 1 < shape.columns) to[column + 1] = __float2bfloat16_rn(b);
            }
        }
    }
}

}  // namespace msbench::flash
