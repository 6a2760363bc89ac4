// Max pooling by lanes: each loads V S columns of some rows once, and gets what its windows need beside them from the lanes next to it.
//
// No shared memory, no barrier, no division: warps of a block lie below each other, blocks are numbered by columns, rows and images. So
// that no lane has to load an element more, warps overlap by the lanes that only serve their neighbours (one or two of 32). Padding
// costs nothing: a row or column beyond the image is replaced by the nearest one within, which every window at an edge contains anyway.
#pragma once

#include "msbench_window_pairs.cuh"

namespace msbench {

struct PoolShape {
    int images, H, W, rows, columns;
};

// K x K windows at distances of S with padding P; V outputs x R rows a lane. kWhole: rows of y are whole vectors of V.
template <int K_, int S_, int P_, int V_, int R_>
struct LanePlan {
    static constexpr int K = K_, S = S_, P = P_, V = V_, R = R_, kThreads = 256, kWarps = kThreads / 32;
    static constexpr int kColumns = V * S, kHigh = (R - 1) * S + K;              // a lane loads
    static constexpr int kBehind = K - S - P > 0 ? 1 : 0, kLanes = 32 - P - kBehind;  // lanes that need the one behind; that store
    static_assert(P <= 1 && K - S - P <= 2 && V % 2 == 0);
    struct alignas(kColumns * sizeof(scalar_t)) In {
        Pair pair[kColumns / 2];
    };
    struct alignas(V * sizeof(scalar_t)) Out {
        Pair pair[V / 2];
    };
};

template <class Plan, bool kWhole>
__global__ void __launch_bounds__(Plan::kThreads, 2) pool_lanes(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, PoolShape z) {
    constexpr int K = Plan::K, S = Plan::S, P = Plan::P, V = Plan::V, R = Plan::R, kPairs = Plan::kColumns / 2, kHigh = Plan::kHigh;
    const int lane = threadIdx.x, group = int(blockIdx.x) * Plan::kLanes + lane - P, last = z.W / Plan::kColumns - 1;
    const int top = (int(blockIdx.y) * Plan::kWarps + int(threadIdx.y)) * R;
    if (top >= z.rows) return;  // a whole warp
    const scalar_t* const from = x + int64_t(blockIdx.z) * z.H * z.W + min(max(group, 0), last) * Plan::kColumns;
    typename Plan::In in[kHigh];
#pragma unroll
    for (int a = 0; a < kHigh; ++a)
        in[a] = *reinterpret_cast<const typename Plan::In*>(from + min(max(top * S - P + a, 0), z.H - 1) * z.W);
    Pair wide[kHigh][V / 2];
#pragma unroll
    for (int a = 0; a < kHigh; ++a) {
        Pair w[kPairs + 2];
#pragma unroll
        for (int k = 0; k < kPairs; ++k) w[k + 1] = in[a].pair[k];
        if (P && group > last) w[1] = both(second(w[kPairs]));
        if (P && group < 0) w[kPairs] = both(first(w[1]));
        w[0] = P ? from_lane_before(w[kPairs]) : w[1];
        w[kPairs + 1] = Plan::kBehind ? from_lane_behind<(K - S - P > 1)>(w[1]) : w[1];
        across<K, S, P, V>(w, wide[a]);
    }
    const int j = group * V;
    if (lane < P || lane >= P + Plan::kLanes || j >= z.columns) return;
    scalar_t* const to = y + (int64_t(blockIdx.z) * z.rows + top) * z.columns + j;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if (top + r >= z.rows) break;
        typename Plan::Out out;
#pragma unroll
        for (int v = 0; v < V / 2; ++v) {
            out.pair[v] = wide[r * S][v];
#pragma unroll
            for (int a = 1; a < K; ++a) out.pair[v] = larger(out.pair[v], wide[r * S + a][v]);
        }
        if constexpr (kWhole) {
            *reinterpret_cast<typename Plan::Out*>(to + r * z.columns) = out;
        } else {
#pragma unroll
            for (int v = 0; v < V / 2; ++v) {
                if (v == 0 || j + 2 * v < z.columns) to[r * z.columns + 2 * v] = first(out.pair[v]);
                if (j + 2 * v + 1 < z.columns) to[r * z.columns + 2 * v + 1] = second(out.pair[v]);
            }
        }
    }
}

// Returns whether the plan takes the problem. kOnlyWhole: only where rows of y are whole vectors.
template <class Plan, bool kOnlyWhole = false>
bool pool_by_lanes(const scalar_t* x, scalar_t* y, const PoolShape& z, cudaStream_t stream) {
    const bool whole = z.columns % Plan::V == 0 && reinterpret_cast<uintptr_t>(y) % sizeof(typename Plan::Out) == 0;
    const bool vectors = z.W % Plan::kColumns == 0 && reinterpret_cast<uintptr_t>(x) % sizeof(typename Plan::In) == 0;
    if (!vectors || z.images > 65535 || (kOnlyWhole && !whole)) return false;
    const int64_t groups = ceil_div(z.columns, Plan::V);
    const dim3 blocks(unsigned(ceil_div(groups, Plan::kLanes)), unsigned(ceil_div(z.rows, Plan::kWarps * Plan::R)), unsigned(z.images));
    const auto kernel = kOnlyWhole || whole ? pool_lanes<Plan, true> : pool_lanes<Plan, kOnlyWhole>;
    kernel<<<blocks, dim3(32, Plan::kWarps), 0, stream>>>(x, y, z);
    return true;
}

}  // namespace msbench
