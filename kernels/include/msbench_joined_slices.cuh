// C = A B in fp32 on the tensor cores in one launch, where a tile of C, or a slice of one's K, is all that a block has.
//
// Numbers are three bf16 each, as in msbench_thin_tiles.cuh; B's are split as they lie, N fastest, so that both factors come in packets. Slices are
// the blocks of a cluster, which add up their sums in shared memory (msbench_send_slices.cuh): no layers, no second launch.
#pragma once

#include "msbench_send_slices.cuh"
#include "msbench_thin_tiles.cuh"

namespace msbench::joined_slices {

constexpr int kTileM = 64, kStageK = 64, kParts = 3, kChunk = 8, kBoxColumns = 64, kBoxBytes = kStageK * kBoxColumns * 2;

// Teams of loading groups take stages in turn.
template <int kTileN_, int kTeams_, int kTeamGroups, int kStages_, int kSlices_>
struct Plan {
    static constexpr int kTileN = kTileN_, kTeams = kTeams_, kStages = kStages_, kSlices = kSlices_, kTeamThreads = kTeamGroups * kGroupThreads;
    static constexpr int kThreads = kTeams * kTeamThreads + kGroupThreads, kQuads = kTileN / 8, kOwned = 4 / kSlices;
    static constexpr int kPlaneA = kTileM * kStageK * 2, kPlaneB = kTileN * kStageK * 2, kBytesA = kParts * kPlaneA;
    static constexpr int kOneStage = kBytesA + kParts * kPlaneB, kStageBytes = kStages * kOneStage, kPartBytes = kQuads * 32 * 16;
    static constexpr int kSharedBytes = kStageBytes + 1024 + (kSlices - 1) * kOwned * kPartBytes;
    static constexpr int kChunksA = kTileM * kStageK / kChunk / kTeamThreads, kChunksB = kTileN * kStageK / kChunk / kTeamThreads;  // a thread
    static_assert(kOwned * kSlices == 4);
};

struct Shape {
    int slice_k;
    int64_t pitch;
    bool vectors_a, vectors_b, pairs_c;
};

// Eight neighbours of a row of `columns`; zeros beyond.
__device__ __forceinline__ void load_chunk(float (&x)[kChunk], const float* row, int column, int columns, bool inside, bool vectors) {
    if (vectors && inside && column + kChunk <= columns) {
        *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(row + column);
        *reinterpret_cast<float4*>(x + 4) = *reinterpret_cast<const float4*>(row + column + 4);
        return;
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = inside && column + i < columns ? row[column + i] : 0.0f;
}

// A's lines are rows, B's are columns of a row-major matrix; neither's lie in runs. The grid is slices x tile rows x tile columns.
template <class P>
__global__ void __launch_bounds__(P::kThreads, 1)
    multiply(const __grid_constant__ Lines A, const __grid_constant__ Lines B, float* C, const __grid_constant__ Shape shape) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ Ring<P::kStages> ring;
    __shared__ int odd_row[kTileM], odd_column[P::kTileN], any_odd;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int M = A.count, N = B.count, slice = blockIdx.x, row = blockIdx.y * kTileM, column = blockIdx.z * P::kTileN;
    const int first_k = slice * shape.slice_k, end_k = min(first_k + shape.slice_k, A.K), blocks = max(0, (end_k - first_k + kStageK - 1) / kStageK);
    if (threadIdx.x == 0) ring.init(4, P::kTeamThreads), any_odd = 0;
    for (int i = threadIdx.x; i < kTileM + P::kTileN; i += P::kThreads) (i < kTileM ? odd_row[i] : odd_column[i - kTileM]) = 0;
    if constexpr (P::kSlices > 1) few_tiles::start_in_cluster();
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0), lane = threadIdx.x % 32;
    if (group > 0) {
        const int team = (threadIdx.x - kGroupThreads) / P::kTeamThreads, at = (threadIdx.x - kGroupThreads) % P::kTeamThreads;
        float x[P::kChunksB][kChunk], y[P::kChunksA][kChunk];
        constexpr int kLinesA = P::kTeamThreads / (kStageK / kChunk), kLinesB = P::kTeamThreads / (P::kTileN / kChunk);  // between a thread's chunks
        const int row_a = at / (kStageK / kChunk), chunk_a = at % (kStageK / kChunk);
        const int row_b = at / (P::kTileN / kChunk), chunk_b = at % (P::kTileN / kChunk);
        const auto load = [&](int block) {
            const int k = first_k + block * kStageK;
#pragma unroll
            for (int c = 0; c < P::kChunksB; ++c) {
                const int r = k + row_b + c * kLinesB;
                load_chunk(x[c], B.data + r * B.k_step, column + chunk_b * kChunk, N, r < end_k, shape.vectors_b);
            }
#pragma unroll
            for (int c = 0; c < P::kChunksA; ++c) {
                const int r = row + row_a + c * kLinesA;
                load_chunk(y[c], A.data + r * A.line_step, k + chunk_a * kChunk, end_k, r < M, shape.vectors_a);
            }
        };
        cudaGridDependencySynchronize();
        if (team < blocks) load(team);
        __syncthreads();
        cudaTriggerProgrammaticLaunchCompletion();
        RingPosition<P::kStages> position;
        for (int g = 0; g < team; ++g) position.advance();
        for (int block = team; block < blocks; block += P::kTeams) {
            unsigned char* const stage = stages + position.stage * P::kOneStage;
            ring.emptied[position.stage].wait(position.parity ^ 1);
            bool odd = false;
#pragma unroll
            for (int c = 0; c < P::kChunksB; ++c) {
                const int r = row_b + c * kLinesB;
                unsigned least = ~0u;
                thin_product::split_store(x[c], stage + P::kBytesA + chunk_b / 8 * kBoxBytes, P::kPlaneB, r, chunk_b % 8, least);
                if (least < split_product::kLeastWhole) {
#pragma unroll
                    for (int i = 0; i < kChunk; ++i) {
                        if (2 * __float_as_uint(x[c][i]) - 1 < split_product::kLeastWhole) odd_column[chunk_b * kChunk + i] = 1;
                    }
                    odd = true;
                }
            }
#pragma unroll
            for (int c = 0; c < P::kChunksA; ++c) {
                const int r = row_a + c * kLinesA;
                unsigned least = ~0u;
                thin_product::split_store(y[c], stage, P::kPlaneA, r, chunk_a, least);
                if (least < split_product::kLeastWhole) odd_row[r] = 1, odd = true;
            }
            if (odd) any_odd = 1;
            if (block + P::kTeams < blocks) load(block + P::kTeams);
            fence_shared_writes();
            ring.filled[position.stage].arrive();
            for (int g = 0; g < P::kTeams; ++g) position.advance();
        }
        follow_slices<P>();
        return;
    }
    __syncthreads();
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    constexpr int kSums = P::kTileN / 2;
    const int warp = threadIdx.x / 32;
    float sums[kSums], chain[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) sums[j] = 0.0f;
    RingPosition<P::kStages> position;
    for (int block = 0; block < blocks; ++block, position.advance()) {
        ring.wait(position);
        const SharedAddress a = shared_address(stages) + position.stage * P::kOneStage, b = a + P::kBytesA;
        mma_fence();
#pragma unroll
        for (int step = 0; step < kStageK / kMmaK; ++step) {
            const auto multiply_planes = [&](int plane_a, int plane_b) {
                multiply_add<MmaType::kBf16, true>(chain, descriptor_k_fastest(a + plane_a * P::kPlaneA + step * kMmaK * 2),
                                                   descriptor_n_fastest(b + plane_b * P::kPlaneB + step * kMmaK * kBoxColumns * 2, kBoxBytes),
                                                   step > 0 || plane_a != 2);
            };
            multiply_planes(2, 0), multiply_planes(0, 2), multiply_planes(1, 1);  // small products first
            multiply_planes(1, 0), multiply_planes(0, 1), multiply_planes(0, 0);
        }
        mma_commit();
        mma_wait<0>();
        hold(chain);
        if (lane == 0) ring.release(position.stage);
#pragma unroll
        for (int j = 0; j < kSums; ++j) sums[j] += chain[j];
    }
    // What bf16 cannot hold, too large or not finite, has become NaN; lines with very small numbers are marked.
    const auto row_of = [&](int j) { return warp * 16 + j / 2 % 2 * 8 + lane / 4; };
    const auto column_of = [&](int j) { return j / 4 * 8 + lane % 4 * 2 + j % 2; };
    bool odd = any_odd;
#pragma unroll
    for (int j = 0; j < kSums; ++j) odd |= sums[j] != sums[j];
    if (odd) {
        float again[kSums];
#pragma unroll
        for (int j = 0; j < kSums; ++j) again[j] = sums[j];
#pragma unroll 1
        for (int j = 0; j < kSums; ++j) {
            const int r = row_of(j), c = column_of(j);
            if (row + r < M && column + c < N && (odd_row[r] || odd_column[c] || again[j] != again[j])) {
                again[j] = thin_product::by_definition(A, B, row + r, column + c, first_k, end_k);
            }
        }
#pragma unroll
        for (int j = 0; j < kSums; ++j) sums[j] = again[j];
    }
    __syncwarp();
    if (!add_slices<P>(sums, stages, slice, warp, lane)) return;
#pragma unroll
    for (int j = 0; j < kSums; j += 2) {
        const int r = row + row_of(j), c = column + column_of(j);
        if (r >= M) continue;
        float* to = C + r * shape.pitch + c;
        if (shape.pairs_c && c < N) {
            *reinterpret_cast<float2*>(to) = make_float2(sums[j], sums[j + 1]);
        } else {
            if (c < N) to[0] = sums[j];
            if (c + 1 < N) to[1] = sums[j + 1];
        }
    }
}

// C's rows are `pitch` apart. `behind`: not the launcher's first kernel.
template <class P>
cudaError_t launch(const Lines& A, const Lines& B, float* C, int64_t pitch, bool behind, cudaStream_t stream) {
    const int64_t M = A.count, N = B.count;
    const auto vectors = [](const Lines& l, int64_t step) { return step % 4 == 0 && packets_allowed(l.data); };
    const Shape shape{int(ceil_div(ceil_div(A.K, P::kSlices), kStageK)) * kStageK, pitch, vectors(A, A.line_step), vectors(B, B.k_step),
                      N % 2 == 0 && pitch % 2 == 0 && reinterpret_cast<uintptr_t>(C) % 8 == 0};
    Launch launch(dim3(P::kSlices, unsigned(ceil_div(M, kTileM)), unsigned(ceil_div(N, P::kTileN))), dim3(P::kThreads), stream);
    launch.shared(P::kSharedBytes);
    if (behind) launch.early();
    if constexpr (P::kSlices > 1) return launch_clusters(P::kSlices, launch, multiply<P>, A, B, C, shape);
    else return launch(multiply<P>, A, B, C, shape);
}

}  // namespace msbench::joined_slices
