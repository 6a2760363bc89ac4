// Small products C = A B, bf16 or fp32, with fp32 sums, whose lines lie in runs: mma.sync straight from what threads load, nothing staged.
//
// Of a row of A or a column of B a thread has a packet of neighbours where mma means pairs that lie apart: a sum does not care for the order of
// its terms. fp32 numbers are three bf16, six of nine products (msbench_split_again.cuh). A block has 16 rows and 16 columns; its warps share K,
// load all they multiply at once, and add up in shared memory. A launch and one trip to DRAM are what is left.
#pragma once

#include <algorithm>
#include <type_traits>

#include "msbench_launch.cuh"
#include "msbench_mma.cuh"
#include "msbench_run_factor.cuh"
#include "msbench_split_again.cuh"

namespace msbench::few_rows {

constexpr int kRows = 16, kColumns = 16, kMostWarps = 8, kPitch = kColumns + 4;

template <typename T>
__device__ __forceinline__ Packet<T> load(const RunFactor<T>& f, int line, int packet) {
    Packet<T> zeros{};
    return line < f.count && packet < f.packets ? load_packet(f.line(line) + f.offset(packet), 0) : zeros;
}

// A thread's packets of two rows, and of two columns, 8 apart.
template <typename T>
struct Packets {
    Packet<T> a[2], b[2];
};

__device__ __forceinline__ void multiply_add(float (&sums)[2][4], const Packets<__nv_bfloat16>& x, bool&) {
    const auto word = [](const Packet<__nv_bfloat16>& p, int i) { return reinterpret_cast<const unsigned*>(p.lane)[i]; };
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned a[4] = {word(x.a[0], i), word(x.a[1], i), word(x.a[0], i + 1), word(x.a[1], i + 1)};
#pragma unroll
        for (int t = 0; t < 2; ++t) mma<MmaType::kBf16>(sums[t], a, word(x.b[t], i), word(x.b[t], i + 1));
    }
}

// The tensor cores truncate when they add: each packet has a chain of its own. `odd`: some number is too small for its parts.
__device__ __forceinline__ void multiply_add(float (&sums)[2][4], const Packets<float>& x, bool& odd) {
    unsigned a[3][4], b[3][4], least = ~0u;
    const auto split = [&](const Packet<float>(&p)[2], unsigned(&parts)[3][4]) {
        split_product::three_parts({p[0].lane[0], p[0].lane[1], p[0].lane[2], p[0].lane[3], p[1].lane[0], p[1].lane[1], p[1].lane[2], p[1].lane[3]},
                                   parts, least);
    };
    split(x.a, a);
    split(x.b, b);
    odd |= least < split_product::kLeastWhole;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        float chain[4] = {};
        const auto multiply_parts = [&](int i, int j) {
            mma<MmaType::kBf16>(chain, {a[i][0], a[i][2], a[i][1], a[i][3]}, b[j][2 * t], b[j][2 * t + 1]);
        };
        multiply_parts(2, 0), multiply_parts(0, 2), multiply_parts(1, 1);  // small products first
        multiply_parts(1, 0), multiply_parts(0, 1), multiply_parts(0, 0);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[t][i] += chain[i];
    }
}

template <typename T>
__global__ void __launch_bounds__(kMostWarps * 32, 2)
    multiply(const __grid_constant__ RunFactor<T> A, const __grid_constant__ RunFactor<T> B, T* C, int tiles_n) {
    __shared__ float shared[kMostWarps][kRows][kPitch];
    constexpr int kAhead = sizeof(T) == 2 ? 2 : 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int row0 = blockIdx.x / tiles_n * kRows, column0 = blockIdx.x % tiles_n * kColumns, line = lane / 4;
    float sums[2][4] = {};
    bool odd = false;
    for (int first = warp * 4; first < A.packets; first += kAhead * warps * 4) {
        Packets<T> x[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            const int packet = first + i * warps * 4 + lane % 4;
#pragma unroll
            for (int h = 0; h < 2; ++h) x[i].a[h] = load(A, row0 + line + 8 * h, packet), x[i].b[h] = load(B, column0 + line + 8 * h, packet);
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            if (first + i * warps * 4 < A.packets) multiply_add(sums, x[i], odd);
        }
    }
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) shared[warp][line + i / 2 * 8][8 * t + lane % 4 * 2 + i % 2] = sums[t][i];
    }
    odd = __syncthreads_or(odd);
    for (int e = threadIdx.x; e < kRows * kColumns; e += blockDim.x) {
        const int row = row0 + e / kColumns, column = column0 + e % kColumns;
        if (row >= A.count || column >= B.count) continue;
        float sum = 0;
        for (int w = 0; w < warps; ++w) sum += shared[w][e / kColumns][e % kColumns];
        if constexpr (sizeof(T) == 4) {
            if (odd || !(fabsf(sum) < INFINITY)) sum = product_by_definition(A, B, row, column);  // what is not finite has become NaN
        }
        C[int64_t(row) * B.count + column] = from_float<T>(sum);
    }
}

// C[m, n] is the product of line m of A and line n of B.
template <typename T>
cudaError_t launch(const RunFactor<T>& A, const RunFactor<T>& B, T* C, cudaStream_t stream) {
    const int64_t tiles_n = ceil_div(B.count, kColumns);
    const int warps = int(std::min<int64_t>(kMostWarps, ceil_div(A.packets, 4)));
    return Launch(dim3(unsigned(ceil_div(A.count, kRows) * tiles_n)), dim3(unsigned(warps * 32)), stream)(multiply<T>, A, B, C, int(tiles_n));
}

}  // namespace msbench::few_rows
