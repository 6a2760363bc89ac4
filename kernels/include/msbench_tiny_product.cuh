// C = A B in bf16 with fp32 sums, up to 128 deep, in one trip to memory: every thread asks at once for all that it brings.
//
// A block has 16 x 16 of C. Its rows of A and columns of B come by cp.async and stay in shared memory as a whole; each of its eight warps
// multiplies 16 of K by mma.sync, and their sums meet in shared memory. There is little code, which comes from memory like the factors, and no
// tensor map to be fetched.
//
// Rows of A and B start on 16 bytes. Of a row's last packet, elements beyond the matrix are not read.
#pragma once

#include "msbench.cuh"
#include "msbench_launch.cuh"
#include "msbench_turned_matrices.cuh"

namespace msbench {

namespace tiny_product {

constexpr int kTile = 16, kWarps = 8, kThreads = kWarps * 32, kDepth = kWarps * 16, kChunk = 8;  // elements of 16 bytes
// Rows an odd number of packets apart, so that ldmatrix meets no bank twice; sums in fp32.
constexpr int kPitchA = kDepth + kChunk, kPitchB = kTile + kChunk, kSumPitch = kTile + kChunk;

struct Factors {
    const __nv_bfloat16 *A, *B;
    int a_pitch, b_pitch, M, N, K;
};

struct Result {
    __nv_bfloat16* C;
    int pitch;
    bool vectors;  // C's rows start on 16 bytes, and padding may be written to
};

// kRows x kColumns from `from` on to shared memory, rows kPitch apart there; zeros beyond `rows` and `columns`.
template <int kRows, int kColumns, int kPitch>
__device__ __forceinline__ void copy_panel(__nv_bfloat16* to, const __nv_bfloat16* from, int pitch, int rows, int columns) {
    static_assert(kRows * kColumns / kChunk == kThreads);
    const int row = threadIdx.x / (kColumns / kChunk), column = threadIdx.x % (kColumns / kChunk) * kChunk;
    const int bytes = row < rows ? max(min(2 * (columns - column), 16), 0) : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to + row * kPitch + column)),
                 "l"(from + (bytes ? row * pitch + column : 0)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ unsigned pair(float x, float y) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
    return reinterpret_cast<const unsigned&>(both);
}

struct Shared {
    __nv_bfloat16 a[kTile * kPitchA], b[kDepth * kPitchB];
    float sums[kWarps][kTile * kSumPitch];
};

__global__ void __launch_bounds__(kThreads) multiply(const Factors f, const Result result) {
    extern __shared__ __align__(16) unsigned char raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int tile_row = blockIdx.y * kTile, tile_column = blockIdx.x * kTile;
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    copy_panel<kTile, kDepth, kPitchA>(shared.a, f.A + tile_row * f.a_pitch, f.a_pitch, f.M - tile_row, f.K);
    copy_panel<kDepth, kTile, kPitchB>(shared.b, f.B + tile_column, f.b_pitch, f.K, f.N - tile_column);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned x[4], y[4];
    load_matrices(x, shared_address(shared.a + lane % 16 * kPitchA + warp * 16 + lane / 16 * kChunk));
    load_turned(y, shared_address(shared.b + (warp * 16 + lane % 16) * kPitchB + lane / 16 * kChunk));
    float sums[2][4] = {};
    mma<MmaType::kBf16>(sums[0], x, y[0], y[1]);
    mma<MmaType::kBf16>(sums[1], x, y[2], y[3]);
    float* const part = shared.sums[warp] + lane / 4 * kSumPitch + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        *reinterpret_cast<float2*>(part + n * 8) = make_float2(sums[n][0], sums[n][1]);
        *reinterpret_cast<float2*>(part + 8 * kSumPitch + n * 8) = make_float2(sums[n][2], sums[n][3]);
    }
    __syncthreads();

    const int row = threadIdx.x / 2, column = threadIdx.x % 2 * kChunk, to_row = tile_row + row, to_column = tile_column + column;
    if (row >= kTile || to_row >= f.M || to_column >= f.N) return;
    float sum[kChunk] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
        const float4* from = reinterpret_cast<const float4*>(shared.sums[w] + row * kSumPitch + column);
        const float4 u = from[0], v = from[1];
        sum[0] += u.x, sum[1] += u.y, sum[2] += u.z, sum[3] += u.w;
        sum[4] += v.x, sum[5] += v.y, sum[6] += v.z, sum[7] += v.w;
    }
    __nv_bfloat16* to = result.C + to_row * result.pitch + to_column;
    if (result.vectors) {
        *reinterpret_cast<uint4*>(to) = make_uint4(pair(sum[0], sum[1]), pair(sum[2], sum[3]), pair(sum[4], sum[5]), pair(sum[6], sum[7]));
    } else {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
            if (to_column + i < f.N) to[i] = __float2bfloat16_rn(sum[i]);
        }
    }
}

}  // namespace tiny_product

// Whether the factors' addresses, pitches and depth are such that multiply_tiny may be called.
inline bool tiny_product_allowed(const tiny_product::Factors& f) {
    return f.K <= tiny_product::kDepth && f.a_pitch % tiny_product::kChunk == 0 && f.b_pitch % tiny_product::kChunk == 0 && packets_allowed(f.A, f.B);
}

// `behind`: not the launcher's first kernel.
inline cudaError_t multiply_tiny(const tiny_product::Factors& f, const tiny_product::Result& result, bool behind, cudaStream_t stream) {
    using namespace tiny_product;
    Launch launch(dim3(unsigned(ceil_div(f.N, kTile)), unsigned(ceil_div(f.M, kTile))), dim3(kThreads), stream);
    launch.shared(sizeof(Shared));
    if (behind) launch.early();
    return launch(multiply, f, result);
}

}  // namespace msbench
