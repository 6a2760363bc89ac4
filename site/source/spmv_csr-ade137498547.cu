// CSR matrix times vector, fp32. L lanes a row, x in shared memory where it fits, long rows rebalanced inside clusters of 8 blocks.
// Expected: launch latency plus three dependent loads (about 7 us) for the small cases; L2 gathers (about 150 us) for the largest.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kCluster = 8;
constexpr int kUnroll = 4;
constexpr int kMiddling = 512;   // list entries a block
constexpr int kHuge = 64;
constexpr int kHugeLength = 4096;
constexpr int kStagedColumns = 8192;

// Sum of entries first, first + step, ... below end.
template <bool kStaged>
__device__ __forceinline__ float entries(const float* __restrict__ values, const int32_t* __restrict__ columns, const float* x, int64_t first,
                                         int64_t end, int step) {
    float sum = 0.f;
    for (int64_t k = first; k < end; k += static_cast<int64_t>(step) * kUnroll) {
        float v[kUnroll], g[kUnroll];
        int c[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int64_t at = k + static_cast<int64_t>(u) * step;
            v[u] = 0.f;
            c[u] = -1;
            if (at < end) {
                v[u] = __ldg(values + at);
                c[u] = __ldg(columns + at);
            }
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            g[u] = 0.f;
            if (c[u] >= 0) g[u] = kStaged ? x[c[u]] : __ldg(x + c[u]);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) sum = fmaf(v[u], g[u], sum);
    }
    return sum;
}

__device__ __forceinline__ float warp_sum(float s) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffffu, s, d);
    return s;
}

template <int L, bool kStaged>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 3)
    spmv(const float* __restrict__ values, const int32_t* __restrict__ columns, const int32_t* __restrict__ offsets,
         const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    extern __shared__ __align__(16) float staged[];
    __shared__ int middling_rows[kMiddling];
    __shared__ int huge_rows[kHuge];
    __shared__ float huge_sums[kHuge];
    __shared__ int counts[2];                  // of this block: middling, huge
    __shared__ int cluster_counts[kCluster][2];

    cg::cluster_group cluster = cg::this_cluster();
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");  // waited for before the first remote store

    const int tid = threadIdx.x;
    const int lane = tid % 32;
    const int warp = tid / 32;
    if (tid < 2) counts[tid] = 0;
    if (tid < kHuge) huge_sums[tid] = 0.f;

    constexpr int kGroups = kThreads / L;
    const int group_lane = tid % L;
    const int all_groups = gridDim.x * kGroups;
    const int first_row = blockIdx.x * kGroups + tid / L;
    const int rounds = (rows + all_groups - 1) / all_groups;

    int begin = 0, end = 0;
    if (first_row < rows) {
        begin = __ldg(offsets + first_row);
        end = __ldg(offsets + first_row + 1);
    }
    if (kStaged) {
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(staged));
        int done = 0;
        if ((reinterpret_cast<uintptr_t>(x) & 15) == 0) {
            for (int i = tid; i < cols / 4; i += kThreads) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + 16u * i), "l"(x + 4 * i) : "memory");
            }
            done = cols / 4 * 4;
        }
        for (int i = done + tid; i < cols; i += kThreads) {
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + 4u * i), "l"(x + i) : "memory");
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    }
    __syncthreads();
    const float* from = kStaged ? staged : x;

    for (int round = 0; round < rounds; ++round) {
        // The host sees to it that rows plus the groups stay below 2^31.
        const int row = first_row + round * all_groups;
        const int next = row + all_groups;
        int next_begin = 0, next_end = 0;
        if (round + 1 < rounds && next < rows) {
            next_begin = __ldg(offsets + next);
            next_end = __ldg(offsets + next + 1);
        }
        const int length = end - begin;
        bool listed = false;
        if (length > 3 * L * kUnroll) {
            int got = 0;
            if (group_lane == 0) {
                const bool huge = length > kHugeLength;
                const int at = atomicAdd(&counts[huge ? 1 : 0], 1);
                if (huge && at < kHuge) {
                    huge_rows[at] = row;
                    got = 1;
                }
                if (!huge && at < kMiddling) {
                    middling_rows[at] = row;
                    got = 1;
                }
            }
            const unsigned mask = L == 32 ? 0xffffffffu : (((1u << (L % 32)) - 1u) << (lane / L * L));
            listed = __shfl_sync(mask, got, 0, L) != 0;
        }
        float sum = 0.f;
        if (!listed) sum = entries<kStaged>(values, columns, from, static_cast<int64_t>(begin) + group_lane, end, L);
        __syncwarp();
#pragma unroll
        for (int d = L / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (group_lane == 0 && row < rows && !listed) y[row] = sum;
        begin = next_begin;
        end = next_end;
    }

    __syncthreads();
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    const int rank = static_cast<int>(cluster.block_rank());
    if (tid < 2 * kCluster) {
        const int what = tid % 2;
        int* remote = cluster.map_shared_rank(&cluster_counts[rank][what], tid / 2);
        *remote = min(counts[what], what == 0 ? kMiddling : kHuge);
    }
    cluster.sync();
    int any = 0;
#pragma unroll
    for (int b = 0; b < kCluster; ++b) any |= cluster_counts[b][0] | cluster_counts[b][1];
    if (any == 0) return;

    const int own_warp = rank * kWarps + warp;
    // Huge rows: every warp of the cluster takes a part.
    for (int b = 0; b < kCluster; ++b) {
        const int count = cluster_counts[b][1];
        const int* list = cluster.map_shared_rank(&huge_rows[0], b);
        float* sums = cluster.map_shared_rank(&huge_sums[0], b);
        for (int i = 0; i < count; ++i) {
            const int row = list[i];
            const int64_t first = __ldg(offsets + row);
            const int64_t last = __ldg(offsets + row + 1);
            const float part = warp_sum(entries<kStaged>(values, columns, from, first + own_warp * 32 + lane, last, 32 * kWarps * kCluster));
            if (lane == 0) atomicAdd(sums + i, part);
        }
    }
    // Middling rows: one warp each, all lists laid end to end.
    int before = 0;
    for (int b = 0; b < kCluster; ++b) {
        const int count = cluster_counts[b][0];
        const int* list = cluster.map_shared_rank(&middling_rows[0], b);
        int i = own_warp - before % (kWarps * kCluster);
        if (i < 0) i += kWarps * kCluster;
        for (; i < count; i += kWarps * kCluster) {
            const int row = list[i];
            const int64_t first = __ldg(offsets + row);
            const int64_t last = __ldg(offsets + row + 1);
            const float sum = warp_sum(entries<kStaged>(values, columns, from, first + lane, last, 32));
            if (lane == 0) y[row] = sum;
        }
        before += count;
    }
    cluster.sync();
    const int own_huge = cluster_counts[rank][1];
    for (int i = tid; i < own_huge; i += kThreads) y[huge_rows[i]] = huge_sums[i];
}

template <int L>
static void launch(const float* values, const int32_t* columns, const int32_t* offsets, const float* x, float* y, int rows, int cols,
                   cudaStream_t stream) {
    const int groups = kThreads / L;
    const bool stage = cols <= kStagedColumns;
    const int most = stage ? 256 : 4096;
    int blocks = (rows + groups - 1) / groups;
    blocks = (blocks + kCluster - 1) / kCluster * kCluster;
    if (blocks > most) blocks = most;
    if (stage) {
        spmv<L, true><<<blocks, kThreads, cols * sizeof(float), stream>>>(values, columns, offsets, x, y, rows, cols);
    } else {
        spmv<L, false><<<blocks, kThreads, 0, stream>>>(values, columns, offsets, x, y, rows, cols);
    }
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets, const scalar_t* x,
                                scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    const int r = static_cast<int>(rows);
    const int c = static_cast<int>(cols);
    const int64_t mean = nnz / rows;
    if (mean <= 8) launch<2>(values, col_indices, row_offsets, x, y, r, c, stream);
    else if (mean <= 14) launch<4>(values, col_indices, row_offsets, x, y, r, c, stream);
    else if (mean <= 28) launch<8>(values, col_indices, row_offsets, x, y, r, c, stream);
    else if (mean <= 64) launch<16>(values, col_indices, row_offsets, x, y, r, c, stream);
    else launch<32>(values, col_indices, row_offsets, x, y, r, c, stream);
    return cudaGetLastError();
}
