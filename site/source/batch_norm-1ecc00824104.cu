// Batch normalisation: statistics down the columns of a row-major matrix, then a map.
//
// Plans:
//   few       to 1024 rows: threads stand along the columns, their rows in registers; a block, or a cluster of 8, has all rows of a
//             tile of columns. Two passes over the registers, joined across blocks as Chan, Golub and LeVeque do; nothing is divided
//             before the loads. Beyond, without registers, where x is not aligned to 16 bytes.
//   resident  beyond, cooperative: all multiprocessors at the same tile of columns. A tile comes into a ring in shared memory, is added up
//             there, moves to registers, and is written when the next one has been added up, so that nobody waits at the grid barrier
//             between the two, and reads and writes are under way together. A thread takes its at most 16 rows' distances from the first of
//             them, which can cost no more than four bits whatever they are, and what it found is joined in fp64.
//
// Bound: each element read once and written once: 65536x1024 in fp32 at an H200's 4.8 TB/s 112 us, in bf16 56; measured 155.5 and 80.8
// (2026-11-28, cold), and in the smaller cases, 16x16 to 1024x1024, 4.4 to 8.6.
// Lost, 65536x1024, on an H100, where this plan with sampled shifts took 194 and 101: a tile in registers that is written before the next is
// added up, 230 and 116, though 1 to 4 us faster at 20000x1000 and 2000x512; a tile that stays in the ring until it is written; two passes
// over x with 216 KiB a multiprocessor kept between them.

#include <utility>

#include "msbench_cluster.cuh"
#include "msbench_column_sums.cuh"
#include "msbench_packets.cuh"

namespace {

using msbench::Group;

constexpr int kPacket = 16 / sizeof(scalar_t), kWord = 4 / sizeof(scalar_t);  // elements of 16, 4 bytes

struct Arrays {
    const scalar_t *x, *gamma, *beta;
    scalar_t* y;
    float epsilon;
    int rows, columns;
};

// ---------------------------------------------------------------- few

// P columns a thread, T threads a row, kHeld rows of a thread in registers, or 0: read three times; `share`: rows of a block.
// Without rows in registers the compiler aims at 32 registers and spills one, unless fewer blocks will do.
template <int P, int T, int kHeld, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kHeld > 0 ? 0 : 4) few(Arrays a, int share) {
    constexpr int kStep = kThreads / T;
    static_assert(kStep >= kBlocks);
    __shared__ float part[2][kThreads / 32][T * P];
    const int p = threadIdx.x % T, q = threadIdx.x / T, column = (blockIdx.y * T + p) * P;
    const int begin = kBlocks > 1 ? blockIdx.x * share : 0, count = min(share, a.rows - begin);
    const bool inside = column < a.columns;
    const int64_t start = int64_t(begin + q) * a.columns + column;
    const auto has = [&](int h) { return inside && q + h * kStep < count; };
    const auto row = [&](int h) { return msbench::load_group<P>(a.x + start + int64_t(h) * kStep * a.columns, 0); };
    Group<scalar_t, P> x[kHeld > 0 ? kHeld : 1], gamma, beta;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
        if (has(h)) x[h] = row(h);
    }
    if (inside) gamma = msbench::load_group<P>(a.gamma + column, 0), beta = msbench::load_group<P>(a.beta + column, 0);
    if constexpr (kBlocks > 1) cooperative_groups::this_cluster().barrier_arrive();
    const auto each_row = [&](auto f) {
        if constexpr (kHeld > 0) {
#pragma unroll
            for (int h = 0; h < kHeld; ++h) {
                if (has(h)) f(h, x[h]);
            }
        } else {
#pragma unroll 4
            for (int h = 0; has(h); ++h) f(h, row(h));
        }
    };

    const float of_block = 1.0f / max(count, 1), inverse = 1.0f / a.rows;
    float mean[P] = {}, squares[P] = {}, scale[P];
    each_row([&](int, const auto& group) {
#pragma unroll
        for (int k = 0; k < P; ++k) mean[k] += msbench::to_float(group.lane[k]);
    });
    msbench::sum_over_rows<P, T, kThreads / 32>(mean, part[0]);
#pragma unroll
    for (int k = 0; k < P; ++k) mean[k] *= of_block;
    each_row([&](int, const auto& group) {
#pragma unroll
        for (int k = 0; k < P; ++k) {
            const float apart = msbench::to_float(group.lane[k]) - mean[k];
            squares[k] = fmaf(apart, apart, squares[k]);
        }
    });
    msbench::sum_over_rows<P, T, kThreads / 32>(squares, part[1]);
    if constexpr (kBlocks > 1) msbench::join_columns<P, T, kBlocks>(mean, squares, share, a.rows, inverse);
#pragma unroll
    for (int k = 0; k < P; ++k) scale[k] = msbench::to_float(gamma.lane[k]) * rsqrtf(fmaf(squares[k], inverse, a.epsilon));
    each_row([&](int h, const auto& group) {
        Group<float, P> y;
#pragma unroll
        for (int k = 0; k < P; ++k) {
            y.lane[k] = fmaf(msbench::to_float(group.lane[k]) - mean[k], scale[k], msbench::to_float(beta.lane[k]));
        }
        msbench::store_group(a.y + start + int64_t(h) * kStep * a.columns, 0, msbench::rounded<scalar_t>(y));
    });
}

template <int P, int T, int kHeld, int kThreads, int kBlocks>
cudaError_t launch_few(const Arrays& a, cudaStream_t stream) {
    msbench::Launch launch(dim3(kBlocks, unsigned(msbench::ceil_div(a.columns, T * P))), kThreads, stream);
    const int share = int(msbench::ceil_div(a.rows, kBlocks));
    const auto kernel = few<P, T, kHeld, kThreads, kBlocks>;
    if constexpr (kBlocks > 1) return msbench::launch_clusters(kBlocks, launch, kernel, a, share);
    else return launch(kernel, a, share);
}

// ---------------------------------------------------------------- resident

// One block an SM; step s of a tile is row (s·blocks + block)·kRows + thread / kPacks, a packet a thread.
constexpr int kThreads = 512, kPacks = 16, kRows = kThreads / kPacks, kWarps = kThreads / 32;
constexpr int kWidth = kPacks * kPacket;  // columns of a tile: 256 bytes, the least that DRAM takes well
constexpr int kMostSteps = 16;            // of a tile: 2^16 rows on 132 SMs
constexpr int kSlots = kPacket == 8 ? 24 : 26;  // of 8 KiB, all on their way: more than a tile, as many as fit
constexpr int kPairs = kPacket / 2;

// Columns of a tile lie in shared memory, and in the workspace, as warps touch them without bank conflicts: pair q of pack p is number
// q·kPacks + p.
struct Shared {
    uint4 ring[kSlots][kThreads];
    double2 sums[kWarps][2][kPairs * kPacks];
    float2 mean[kPairs * kPacks], scale[kPairs * kPacks], beta[kPairs * kPacks];
};

template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Calls f(0), f(1), …, with constants.
template <int... kStep, class F>
__device__ __forceinline__ void each_of(std::integer_sequence<int, kStep...>, F f) {
    (f(std::integral_constant<int, kStep>{}), ...);
}

// The sum of a warp's two rows, in its first half.
__device__ __forceinline__ double of_warp(double v) {
    return v + __shfl_down_sync(~0u, v, kPacks);
}

__device__ __forceinline__ void unpack(const uint4& raw, float (&v)[kPacket]) {
    const auto values = msbench::operands(reinterpret_cast<const Group<scalar_t, kPacket>&>(raw));
#pragma unroll
    for (int k = 0; k < kPacket; ++k) v[k] = values.lane[k];
}

// A thread's columns, in the order of Shared.
__device__ __forceinline__ void take(const float2* from, int pack, float (&v)[kPacket]) {
#pragma unroll
    for (int q = 0; q < kPairs; ++q) reinterpret_cast<float2&>(v[2 * q]) = from[q * kPacks + pack];
}

__global__ void __launch_bounds__(kThreads, 1) resident(Arrays a, double* sums) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    Shared& shared = *reinterpret_cast<Shared*>(raw_shared);
    const auto grid = cooperative_groups::this_grid();
    const int t = threadIdx.x, pack = t % kPacks, lane = t % 32, warp = t / 32;
    const int stride = gridDim.x * kRows, row0 = blockIdx.x * kRows + t / kPacks;
    const int steps = (a.rows + stride - 1) / stride, tiles = (a.columns + kWidth - 1) / kWidth;
    const int64_t hop = int64_t(stride) * a.columns, first = int64_t(row0) * a.columns + pack * kPacket;

    // The next load. A thread loads what only it reads, always kSlots steps ahead, into the slot that it has just read.
    int in_step = 0, in_row = row0, in_column = pack * kPacket, slot = 0;
    const scalar_t* in_from = a.x + first;
    const auto load = [&] {
        if (in_row < a.rows && in_column < a.columns) {
            const unsigned to = unsigned(__cvta_generic_to_shared(&shared.ring[slot][t]));
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in_from) : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        in_row += stride, in_from += hop;
        if (++in_step == steps) in_step = 0, in_row = row0, in_from += kWidth - steps * hop, in_column += kWidth;
        if (++slot == kSlots) slot = 0;
    };
    const auto steps_in = [&](int tile) {  // with an element of this thread
        return tile * kWidth + pack * kPacket < a.columns && row0 < a.rows ? (a.rows - row0 + stride - 1) / stride : 0;
    };

    uint4 held[kMostSteps];
    for (int i = 0; i < kSlots; ++i) load();
    for (int i = blockIdx.x * kThreads + t; i < tiles * 2 * kWidth; i += gridDim.x * kThreads) sums[i] = 0;
    auto token = grid.barrier_arrive();
    const double inverse = 1.0 / a.rows;
    for (int tile = 0; tile <= tiles; ++tile) {  // adds up this one, writes the one before
        if (tile < tiles) {
            const int own = steps_in(tile);
            float v[kPacket], first_row[kPacket] = {}, s1[kPacket] = {}, s2[kPacket] = {};  // s1, s2: of distances, and of their squares
            each_of(std::make_integer_sequence<int, kMostSteps>{}, [&](auto s) {
                if (s >= steps) return;
                wait_for_copies<kSlots - 1 - s>();
                if (s >= own) return;
                unpack(shared.ring[slot + s < kSlots ? slot + s : slot + s - kSlots][t], s > 0 ? v : first_row);
                if (s == 0) return;
#pragma unroll
                for (int k = 0; k < kPacket; ++k) {
                    const float distance = v[k] - first_row[k];
                    s1[k] += distance;
                    s2[k] = fmaf(distance, distance, s2[k]);
                }
            });
#pragma unroll
            for (int q = 0; q < kPairs; ++q) {
                double sum[2], squares[2];
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const double from = first_row[2 * q + k], apart = s1[2 * q + k];
                    sum[k] = fma(double(own), from, apart);
                    squares[k] = of_warp(fma(from, sum[k] + apart, double(s2[2 * q + k])));
                    sum[k] = of_warp(sum[k]);
                }
                if (lane < kPacks) {
                    shared.sums[warp][0][q * kPacks + pack] = make_double2(sum[0], sum[1]);
                    shared.sums[warp][1][q * kPacks + pack] = make_double2(squares[0], squares[1]);
                }
            }
        }
        __syncthreads();
        grid.barrier_wait(std::move(token));  // the sums are zero, and those of the tile before are complete
        if (tile < tiles && t < 2 * kWidth) {
            double sum = 0;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) sum += reinterpret_cast<const double*>(shared.sums[w])[t];
            atomicAdd(sums + tile * 2 * kWidth + t, sum);
        }
        if (tile < tiles) token = grid.barrier_arrive();
        if (tile > 0 && t < kWidth) {
            const int c = (tile - 1) * kWidth + t / 2 % kPacks * kPacket + t / (2 * kPacks) * 2 + t % 2;  // the column of number t
            const float gamma = c < a.columns ? msbench::to_float(a.gamma[c]) : 0.0f, beta = c < a.columns ? msbench::to_float(a.beta[c]) : 0.0f;
            const double* of_column = sums + (tile - 1) * 2 * kWidth + t;
            const double mean = __ldcg(of_column) * inverse;
            const float variance = fma(-mean, mean, __ldcg(of_column + kWidth) * inverse);
            reinterpret_cast<float*>(shared.mean)[t] = mean;
            reinterpret_cast<float*>(shared.scale)[t] = gamma * rsqrtf((variance < 0 ? 0.0f : variance) + a.epsilon);  // NaN stays
            reinterpret_cast<float*>(shared.beta)[t] = beta;
        }
        __syncthreads();
        float v[kPacket], mean[kPacket], scale[kPacket], offset[kPacket];
        take(shared.mean, pack, mean), take(shared.scale, pack, scale), take(shared.beta, pack, offset);
        scalar_t* to = a.y + first + (tile - 1) * kWidth;
        const int own = tile > 0 ? steps_in(tile - 1) : 0;
#pragma unroll
        for (int s = 0; s < kMostSteps; ++s) {
            if (s < own) {
                unpack(held[s], v);
                Group<float, kPacket> y;
#pragma unroll
                for (int k = 0; k < kPacket; ++k) y.lane[k] = fmaf(v[k] - mean[k], scale[k], offset[k]);
                msbench::store_group_once(to + s * hop, 0, msbench::rounded<scalar_t>(y));
            }
            if (s < steps && tile < tiles) {
                held[s] = shared.ring[slot][t];
                load();
            }
        }
    }
}

}  // namespace

extern "C" size_t batch_norm_workspace(float, int64_t, int64_t C) {
    return msbench::ceil_div(C, kWidth) * 2 * kWidth * sizeof(double);
}

extern "C" cudaError_t batch_norm(const scalar_t* x, const scalar_t* gamma, const scalar_t* beta, scalar_t* y, float epsilon,
                                  int64_t N, int64_t C, void* workspace, size_t, cudaStream_t stream) {
    const Arrays a = {x, gamma, beta, y, epsilon, int(N), int(C)};
    const uintptr_t addresses = uintptr_t(x) | uintptr_t(gamma) | uintptr_t(beta) | uintptr_t(y);
    const bool words = addresses % 4 == 0 && C % kWord == 0;
    if (words && N <= 16) return launch_few<kWord, 16, 1, 256, 1>(a, stream);
    if (words && N <= 64) return launch_few<kWord, 8, 2, 256, 1>(a, stream);
    if (words && N <= 256) {
        return kWord == 2 ? launch_few<kWord, 4, 4, 256, 1>(a, stream) : launch_few<kWord, 8, 4, 512, 1>(a, stream);
    }
    if (words && N <= 1024 && C > 512) return launch_few<kWord, 8, 16, 512, 1>(a, stream);
    if (words && N <= 1024) return launch_few<kWord, 8, 4, 256, 8>(a, stream);
    if (N <= 1024) return launch_few<1, 32, 16, 256, 8>(a, stream);
    const int blocks = msbench::multiprocessors();
    if (!msbench::packets_allowed(x, y) || C % kPacket != 0 || N > kMostSteps * kRows * blocks) {
        return launch_few<1, 32, 0, 256, 8>(a, stream);
    }
    return msbench::Launch(blocks, kThreads, stream).shared(sizeof(Shared)).cooperative()(resident, a, static_cast<double*>(workspace));
}
