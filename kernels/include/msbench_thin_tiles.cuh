// C = A B in fp32 on the tensor cores in one pass over both, for few rows or a short K, where a split of its own costs more than it saves.
//
// x = high + middle + low, three bf16 a number, which need no scales and so are made on the way to shared memory; six of the nine products
// (0.84 * 2^-24 of a product). A block computes 64 x 128 of C for a slice of K: two groups of threads load 64 k in turn, keep the next ones
// under way, and write planes in the swizzle that wgmma reads; a third multiplies. The slices' layers are added up by an early second launch.
#pragma once

#include "msbench_split_again.cuh"

namespace msbench {

namespace thin_product {

constexpr int kTileM = 64, kTileN = 128, kStageK = 64, kPlanes = 3, kStages = 2, kThreads = 3 * kGroupThreads, kRowBytes = kStageK * 2;
constexpr int kPlaneA = kTileM * kRowBytes, kPlaneB = kTileN * kRowBytes, kBytesA = kPlanes * kPlaneA, kStageBytes = kBytesA + kPlanes * kPlaneB;
constexpr int kSharedBytes = kStages * kStageBytes + 1024, kPitch = kTileN + 8, kAddThreads = 128;

// Writes a chunk of 8 elements of each plane. `least` becomes the smallest magnitude that is not zero, twice its bits less one.
__device__ __forceinline__ void split_store(const float (&x)[8], unsigned char* planes, int plane_bytes, int row, int chunk, unsigned& least) {
    unsigned w[kPlanes][4];
    split_product::three_parts(x, w, least);
    unsigned char* const to = planes + row * kRowBytes + (chunk ^ row % 8) * 16;
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) *reinterpret_cast<uint4*>(to + p * plane_bytes) = make_uint4(w[p][0], w[p][1], w[p][2], w[p][3]);
}

// An element of C, or a slice's part of it, by the definition; in runs, so that no chain is long.
__device__ __noinline__ inline float by_definition(const Lines& A, const Lines& B, int row, int column, int from, int end) {
    constexpr int kRun = 256;
    float total = 0;
    for (int start = from; start < end; start += kRun) {
        float sum = 0;
#pragma unroll 8
        for (int k = start; k < min(start + kRun, end); ++k) sum = fmaf(A.value(row, k), B.value(column, k), sum);
        total += sum;
    }
    return total;
}

struct Shape {
    int slices, slice_k;
    int64_t pitch, layer;  // of C's rows, and from a slice's layer to the next
    bool vectors_a, vectors_b, vectors_c;  // four neighbours can be moved at once; those of B lie along k
};

// Lines of A have their elements side by side; neither's lie in runs.
__global__ void __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ Lines A, const __grid_constant__ Lines B, float* C, const __grid_constant__ Shape shape) {
    extern __shared__ unsigned char raw[];
    __shared__ Ring<kStages> ring;
    __shared__ int odd_row[kTileM], odd_column[kTileN];
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int M = A.count, N = B.count, K = A.K, slice = blockIdx.x % shape.slices, tile = blockIdx.x / shape.slices;
    const int tiles_n = (N + kTileN - 1) / kTileN, row = tile / tiles_n * kTileM, column = tile % tiles_n * kTileN;
    const int first_k = slice * shape.slice_k, end_k = min(first_k + shape.slice_k, K), blocks = (end_k - first_k + kStageK - 1) / kStageK;
    if (threadIdx.x == 0) ring.init(4, kGroupThreads);
    if (threadIdx.x < kTileM) odd_row[threadIdx.x] = 0;
    if (threadIdx.x < kTileN) odd_column[threadIdx.x] = 0;
    __syncthreads();
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0), at = threadIdx.x % kGroupThreads;
    float* sums_of_tile = reinterpret_cast<float*>(stages);
    bool odd = false;
    if (group < kStages) {
        constexpr int kChunks = kStageK / 8, kRounds = kTileM / (kGroupThreads / kChunks);
        const int chunk_a = at % kChunks, row_a = at / kChunks;
        alignas(16) float x[kChunks][8], y[kRounds][8];
        const auto load_b = [&](int block, int c) {
            const int k = first_k + block * kStageK + c * 8;
            const float* from = B.data + (column + at) * B.line_step + k * B.k_step;
            if (shape.vectors_b && column + at < N && k + 8 <= end_k) {
                *reinterpret_cast<float4*>(x[c]) = *reinterpret_cast<const float4*>(from);
                *reinterpret_cast<float4*>(x[c] + 4) = *reinterpret_cast<const float4*>(from + 4);
                return;
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[c][i] = 0.0f;
                if (column + at < N && k + i < end_k) x[c][i] = from[i * B.k_step];
            }
        };
        const auto load_a = [&](int block, int q) {
            const int k = first_k + block * kStageK + chunk_a * 8, r = row + row_a + q * (kTileM / kRounds);
            const float* from = A.data + r * A.line_step + k;
            if (shape.vectors_a && r < M && k + 8 <= end_k) {
                *reinterpret_cast<float4*>(y[q]) = *reinterpret_cast<const float4*>(from);
                *reinterpret_cast<float4*>(y[q] + 4) = *reinterpret_cast<const float4*>(from + 4);
            } else {
#pragma unroll
                for (int i = 0; i < 8; ++i) y[q][i] = r < M && k + i < end_k ? from[i] : 0.0f;
            }
        };
        if (group < blocks) {
#pragma unroll
            for (int c = 0; c < kChunks; ++c) load_b(group, c);
#pragma unroll
            for (int q = 0; q < kRounds; ++q) load_a(group, q);
        }
        unsigned char* stage = stages + group * kStageBytes;
        unsigned least_b = ~0u;
        int parity = 1;
        for (int block = group; block < blocks; block += kStages, parity ^= 1) {
            const bool more = block + kStages < blocks;
            ring.emptied[group].wait(parity);
#pragma unroll
            for (int c = 0; c < kChunks; ++c) {
                split_store(x[c], stage + kBytesA, kPlaneB, at, c, least_b);
                if (more) load_b(block + kStages, c);
            }
#pragma unroll
            for (int q = 0; q < kRounds; ++q) {
                const int r = row_a + q * (kTileM / kRounds);
                unsigned least_a = ~0u;
                split_store(y[q], stage, kPlaneA, r, chunk_a, least_a);
                if (least_a < split_product::kLeastWhole) odd_row[r] = 1, odd = true;
                if (more) load_a(block + kStages, q);
            }
            fence_shared_writes();
            ring.filled[group].arrive();
        }
        if (least_b < split_product::kLeastWhole) odd_column[at] = 1, odd = true;
    } else {
        const int warp = at / 32, lane = at % 32;
        float sums[kTileN / 2], chain[kTileN / 2];
#pragma unroll
        for (int j = 0; j < kTileN / 2; ++j) sums[j] = 0.0f;
        RingPosition<kStages> position;
        for (int block = 0; block < blocks; ++block, position.advance()) {
            ring.wait(position);
            const SharedAddress a = shared_address(stages) + position.stage * kStageBytes, b = a + kBytesA;
            mma_fence();
#pragma unroll
            for (int step = 0; step < kStageK / kMmaK; ++step) {
                const auto multiply_planes = [&](int plane_a, int plane_b) {
                    multiply_add<MmaType::kBf16>(chain, descriptor_k_fastest(a + plane_a * kPlaneA + step * kMmaK * 2),
                                                 descriptor_k_fastest(b + plane_b * kPlaneB + step * kMmaK * 2), step > 0 || plane_a != 2);
                };
                multiply_planes(2, 0), multiply_planes(0, 2), multiply_planes(1, 1);  // small products first
                multiply_planes(1, 0), multiply_planes(0, 1), multiply_planes(0, 0);
            }
            mma_commit();
            mma_wait<0>();
            if (lane == 0) ring.release(position.stage);
#pragma unroll
            for (int j = 0; j < kTileN / 2; ++j) sums[j] += chain[j];
        }
        sync_named(1, kGroupThreads);  // all has been read
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int j = 0; j < kTileN / 8; ++j) {
                const float u = sums[4 * j + 2 * h], v = sums[4 * j + 2 * h + 1];
                odd |= u != u || v != v;
                *reinterpret_cast<float2*>(sums_of_tile + (warp * 16 + h * 8 + lane / 4) * kPitch + j * 8 + lane % 4 * 2) = make_float2(u, v);
            }
        }
    }
    // What bf16 cannot hold, too large or not finite, has become NaN; lines with very small numbers are marked.
    if (__syncthreads_or(odd)) {
        for (int e = threadIdx.x; e < kTileM * kTileN; e += kThreads) {
            const int r = e / kTileN, c = e % kTileN;
            float& sum = sums_of_tile[r * kPitch + c];
            if (row + r < M && column + c < N && (odd_row[r] || odd_column[c] || sum != sum)) {
                sum = by_definition(A, B, row + r, column + c, first_k, end_k);
            }
        }
        __syncthreads();
    }
    for (int e = threadIdx.x * 4; e < kTileM * kTileN; e += kThreads * 4) {
        const int r = e / kTileN, c = e % kTileN;
        if (row + r >= M) break;
        const float* from = sums_of_tile + r * kPitch + c;
        float* to = C + slice * shape.layer + (row + r) * shape.pitch + column + c;
        if (shape.vectors_c) {
            if (column + c < N) *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
        } else {
            for (int i = 0; i < 4; ++i) {
                if (column + c + i < N) to[i] = from[i];
            }
        }
    }
}

// The sum of layers of M * N elements.
__global__ void __launch_bounds__(kAddThreads) add_layers(const float* layers, float* C, int M, int N, int64_t pitch, int slices) {
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    const int64_t elements = int64_t(M) * N, i = blockIdx.x * int64_t(kAddThreads) + threadIdx.x;
    if (i >= elements) return;
    float sum = 0;
#pragma unroll 8
    for (int s = 0; s < slices; ++s) sum += __ldcg(layers + s * elements + i);
    C[i / N * pitch + i % N] = sum;
}

}  // namespace thin_product

}  // namespace msbench
