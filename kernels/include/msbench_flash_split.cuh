// softmax(Q K' / sqrt(d)) V in fp32 where rows have up to 128 numbers: scores and weights never leave the multiprocessor.
//
// Idea: all numbers are two scaled fp16 parts, three products each. Two groups of warps have 64 queries each and take turns at issuing
// scores (H200, 8192 x 8192 x 128: 201 us, 213 without turns); a third brings keys and values. A weight is a power of two of what a score lies
// below the row's shift, which moves only if a score exceeds it by more than a half, and is split in registers. Two blocks of a cluster
// may share a row's keys. Lines that hold numbers too far apart for their parts are marked (msbench_split.cuh), and rows that this may
// matter to are computed once more by the definition.
//
// Lost: both chains of a product with values under way at once, 205 us, and 213 with turns.
#pragma once

#include "msbench_groups.cuh"

#include "msbench_async.cuh"
#include "msbench_cluster.cuh"
#include "msbench_split_weights.cuh"

namespace msbench::flash_split {

// Planes: lines of q and k have kPanels panels, those of v, its columns, have 32 keys in each.
__global__ void __launch_bounds__(kThreads, 1)
    attention(const Planes q, const Planes k, const Planes v, const float* Q, const float* K, const float* V, float* y,
              const __grid_constant__ Shape shape) {
    extern __shared__ __align__(128) unsigned char q_tile[];
    __shared__ Barrier q_filled;
    __shared__ Ring<kStages> k_ring, v_ring;
    unsigned char *k_tiles = q_tile + kQ, *v_tiles = k_tiles + kStages * kK, *unscales = v_tiles + kStages * kV;
    float4* exchange = reinterpret_cast<float4*>(unscales + kStages * kUnscales);
    const auto cluster = cooperative_groups::this_cluster();
    const int rank = blockIdx.x % shape.splits, first_query = blockIdx.x / shape.splits * kQueries;
    const int tiles = (shape.keys + kKeys - 1) / kKeys, share = (tiles + shape.splits - 1) / shape.splits;
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
            q_filled.expect(kQ);
            for (int i = 0; i < kPanels * kPlanes; ++i) {
                copy_bulk(q_tile + i * kQueryBytes, q.panel(i / kPlanes, i % kPlanes, first_query), kQueryBytes, q_filled);
            }
            RingPosition<kStages> at;
            for (int n = 0; n < count; ++n, at.advance()) {
                const int tile = first_tile + n;
                k_ring.acquire(at, kK + kUnscales);
                for (int i = 0; i < kPanels * kPlanes; ++i) {
                    copy_bulk(k_tiles + at.stage * kK + i * kKeyBytes, k.panel(i / kPlanes, i % kPlanes, tile * kKeys), kKeyBytes,
                              k_ring.filled[at.stage]);
                }
                copy_bulk(unscales + at.stage * kUnscales, k.unscales + tile * kKeys, kUnscales, k_ring.filled[at.stage]);
                v_ring.acquire(at, kV);
                copy_bulk(v_tiles + at.stage * kV, v.panel(tile * kKeyPanels, 0, 0), kV, v_ring.filled[at.stage]);
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
    const int first_row = first_query + mine * kGroupRows + warp * 16;
    float out[64];
    unsigned high[16], low[16];
#pragma unroll
    for (int i = 0; i < 64; ++i) out[i] = 0;
    Softmax state;
    const float q_unscales[2] = {q.unscales[first_row + lane / 4], q.unscales[first_row + 8 + lane / 4]};
    const float scale[2] = {shape.scale * fabsf(q_unscales[0]), shape.scale * fabsf(q_unscales[1])};
    bool odd[2] = {false, false};
    const SharedAddress q_start = shared_address(q_tile) + mine * kGroupRows * kPanelRowBytes, k_start = shared_address(k_tiles),
                        v_start = shared_address(v_tiles);
    const auto score_planes = [&](float (&d)[32], int stage, int plane_q, int plane_k, bool keep) {
#pragma unroll
        for (int i = 0; i < kWidth / kMmaK; ++i) {
            const int panel = i / 2, step = i % 2 * 256;  // two chunks of eight lines
            multiply_add<MmaType::kFp16>(d, descriptor_cores(q_start + (panel * kPlanes + plane_q) * kQueryBytes + step, 128, 512),
                                         descriptor_cores(k_start + stage * kK + (panel * kPlanes + plane_k) * kKeyBytes + step, 128, 512),
                                         keep || i > 0);
        }
    };
    const auto value_planes = [&](float (&d)[64], const unsigned* weights, int stage, int plane, bool keep) {
#pragma unroll
        for (int i = 0; i < kKeys / kMmaK; ++i) {
            multiply_add<MmaType::kFp16>(d, weights + 4 * i,
                                         descriptor_cores(v_start + stage * kV + (i / 2 * kPlanes + plane) * kValueBytes + i % 2 * 256, 128, 512),
                                         keep || i > 0);
        }
    };
    const auto turn = [&] { sync_named(2 + mine, 2 * kGroupThreads); };
    const auto pass = [&] { arrive_named(3 - mine, 2 * kGroupThreads); };
    if (mine == 1 && count > 0) pass();

    RingPosition<kStages> at;
    q_filled.wait(0);
    for (int n = 0; n < count; ++n, at.advance()) {
        float s[32];
        {
            float cross[32];
            k_ring.wait(at);
            turn();
            mma_fence();
            score_planes(cross, at.stage, 0, 1, false);
            score_planes(cross, at.stage, 1, 0, true);
            score_planes(s, at.stage, 0, 0, false);
            mma_commit();
            if (mine == 0 || n + 1 < count) pass();
            mma_wait<0>();
            hold(cross);
            hold(s);
#pragma unroll
            for (int i = 0; i < 32; ++i) s[i] = fmaf(cross[i], 1 / kLowScale, s[i]);
        }
        const float2* of_keys = reinterpret_cast<const float2*>(unscales + at.stage * kUnscales) + lane % 4;
        bool marked = false;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
            const float2 u = of_keys[4 * j];
            marked |= (__float_as_uint(u.x) | __float_as_uint(u.y)) >> 31;
            s[4 * j] *= fabsf(u.x), s[4 * j + 1] *= fabsf(u.y), s[4 * j + 2] *= fabsf(u.x), s[4 * j + 3] *= fabsf(u.y);
        }
        if (__any_sync(0xffffffffu, marked || q_unscales[0] < 0 || q_unscales[1] < 0)) {
#pragma unroll 1
            for (int i = 0; i < kKeys / 4; ++i) {
                const float u = reinterpret_cast<const float*>(of_keys - lane % 4)[i * 4 + lane % 4];
                for (int h = 0; h < 2; ++h) odd[h] |= (u < 0 || q_unscales[h] < 0) && matters(u, q_unscales[h], shape);
            }
        }
        __syncwarp();
        if (lane == 0) k_ring.release(at.stage);
        float factor[2];
        const int left = shape.keys - (first_tile + n) * kKeys;
        const bool moves = left < kKeys ? state.weigh<true>(s, factor, scale, left, lane) : state.weigh<false>(s, factor, scale, left, lane);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            split_pair(s[2 * i], s[2 * i + 1], high[i], low[i]);
        }
        if (__any_sync(0xffffffffu, moves)) {
#pragma unroll
            for (int i = 0; i < 64; ++i) out[i] *= factor[i / 2 % 2];
        }
        v_ring.wait(at);
        float chain[64];
        mma_fence();
        value_planes(chain, high, at.stage, 1, false);
        value_planes(chain, low, at.stage, 0, true);
        mma_commit();
        mma_wait<0>();
        hold(chain);
#pragma unroll
        for (int i = 0; i < 64; ++i) out[i] = fmaf(chain[i], 1 / kLowScale, out[i]);
        mma_fence();
        value_planes(chain, high, at.stage, 0, false);
        mma_commit();
        mma_wait<0>();
        hold(chain);
        hold(high);
        hold(low);
#pragma unroll
        for (int i = 0; i < 64; ++i) out[i] += chain[i];
        __syncwarp();
        if (lane == 0) v_ring.release(at.stage);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], 1);
        state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], 2);
        if (odd[h]) state.sum[h] = NAN;  // in any lane: seen below
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
    unsigned again = 0;  // rows to be computed once more
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = first_row + h * 8 + lane / 4;
        const float factor = 1.0f / state.sum[h];
        bool bad = state.sum[h] != state.sum[h];
        float* to = y + int64_t(row) * shape.columns;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            const int column = j * 8 + lane % 4 * 2;
            const float2 u = *reinterpret_cast<const float2*>(v.unscales + column);
            const float a = out[4 * j + 2 * h] * factor * fabsf(u.x), b = out[4 * j + 2 * h + 1] * factor * fabsf(u.y);
            // Marked values are off by 2^-36 of the column's unscale.
            bad |= (__float_as_uint(u.x) >> 31 && !(fabsf(a) >= 0x1p-10f * fabsf(u.x))) || (__float_as_uint(u.y) >> 31 && !(fabsf(b) >= 0x1p-10f * fabsf(u.y)));
            bad |= a != a || b != b;
            if (row >= shape.queries) continue;
            if (shape.pairs) {
                if (column < shape.columns) *reinterpret_cast<float2*>(to + column) = make_float2(a, b);
            } else {
                if (column < shape.columns) to[column] = a;
                if (column + 1 < shape.columns) to[column + 1] = b;
            }
        }
        for (unsigned lanes = __ballot_sync(0xffffffffu, bad && row < shape.queries); lanes; lanes &= lanes - 1) again |= 1u << (h * 8 + (__ffs(lanes) - 1) / 4);
    }
    __syncwarp();
    for (; again; again &= again - 1) {
        const int64_t row = first_row + __ffs(again) - 1;
        row_by_definition(Q + row * shape.width, K, V, y + row * shape.columns, shape);
    }
}

}  // namespace msbench::flash_split
