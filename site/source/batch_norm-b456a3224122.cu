// Batch normalisation: statistics down the columns of a row-major matrix, then a map.
//
// Plans:
//   few       to 1024 rows: threads stand along the columns, their rows in registers; a block, or a cluster of 8, has all rows of a
//             tile of columns. Two passes over the registers, joined across blocks as Chan, Golub and LeVeque do; nothing is divided
//             before the loads. Beyond, without registers, where x is not aligned to 16 bytes.
//   resident  many rows, cooperative: all multiprocessors at the same tile of columns, whose rows they hold in shared memory between
//             reading and writing, while the next tile is on its way. Squares are of distances from the mean of a few rows.
//
// Bound: each element read once and written once, 125 us for 65536x1024 in fp32, 63 in bf16.
// Lost (H200, 2026-11-23), 65536x1024: two passes over x with 216 KiB a multiprocessor kept between them, 201 us in fp32, 131 in bf16.
// Left: resident takes 145 and 81 us without the barriers between its tiles, 2 us each.

#include <type_traits>
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
template <int P, int T, int kHeld, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads) few(Arrays a, int share) {
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
constexpr int kSlots = 26;                // of 8 KiB: a tile's steps, and what there is room for of the next
constexpr int kSamples = 16;              // rows whose mean the squares are taken from

struct Shared {
    uint4 ring[kSlots][kThreads];
    float sums[kWarps][2 * kWidth];
    float shift[kWidth], mean[kWidth], scale[kWidth], beta[kWidth];
};

template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// f(0), f(1) … with constants.
template <int kStep = 0, class F>
__device__ __forceinline__ void each_step(const F& f) {
    f(std::integral_constant<int, kStep>());
    if constexpr (kStep + 1 < kMostSteps) each_step<kStep + 1>(f);
}

// The sum of a warp's two rows, in its first half.
__device__ __forceinline__ float of_warp(float v) {
    return v + __shfl_down_sync(~0u, v, kPacks);
}

__device__ __forceinline__ void unpack(uint4 raw, float (&v)[kPacket]) {
    const auto& packet = reinterpret_cast<const Group<scalar_t, kPacket>&>(raw);
#pragma unroll
    for (int k = 0; k < kPacket; ++k) v[k] = msbench::to_float(packet.lane[k]);
}

__global__ void __launch_bounds__(kThreads, 1) resident(Arrays a, float* sums) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    Shared& shared = *reinterpret_cast<Shared*>(raw_shared);
    const auto grid = cooperative_groups::this_grid();
    const int t = threadIdx.x, pack = t % kPacks, lane = t % 32, warp = t / 32;
    const int stride = gridDim.x * kRows, row0 = blockIdx.x * kRows + t / kPacks;
    const int steps = (a.rows + stride - 1) / stride, tiles = (a.columns + kWidth - 1) / kWidth;

    int in_tile = 0, in_step = 0, in_slot = 0;  // the next load; each thread loads what only it reads
    const auto load = [&] {
        const int row = row0 + in_step * stride, column = in_tile * kWidth + pack * kPacket;
        if (in_tile < tiles && row < a.rows && column < a.columns) {
            const unsigned to = unsigned(__cvta_generic_to_shared(&shared.ring[in_slot][t]));
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(a.x + int64_t(row) * a.columns + column) : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (++in_step == steps) in_step = 0, ++in_tile;
        if (++in_slot == kSlots) in_slot = 0;
    };
    const auto sample = [&](int tile) {
        const int column = tile * kWidth + pack * kPacket, which = t / kPacks;
        if (which >= kSamples || tile >= tiles || column >= a.columns) return make_uint4(0, 0, 0, 0);
        return __ldg(reinterpret_cast<const uint4*>(a.x + int64_t(a.rows) * which / kSamples * a.columns + column));
    };

    uint4 chosen = sample(0);
    for (int i = 0; i < kSlots; ++i) load();
    for (int i = blockIdx.x * kThreads + t; i < tiles * 2 * kWidth; i += gridDim.x * kThreads) sums[i] = 0;
    auto token = grid.barrier_arrive();
    int slot0 = 0;  // of the tile's first step
    for (int tile = 0; tile < tiles; ++tile) {
        const int column = tile * kWidth + pack * kPacket;
        const bool inside = column < a.columns;
        float v[kPacket], shift[kPacket], s1[kPacket] = {}, s2[kPacket] = {};
        unpack(chosen, v);
#pragma unroll
        for (int k = 0; k < kPacket; ++k) {
            v[k] = of_warp(v[k]);
            if (warp < kSamples / 2 && lane < kPacks) shared.sums[warp][pack * kPacket + k] = v[k];
        }
        __syncthreads();
        if (t < kWidth) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < kSamples / 2; ++w) sum += shared.sums[w][t];
            shared.shift[t] = sum / kSamples;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kPacket; ++k) shift[k] = shared.shift[pack * kPacket + k];

        each_step([&](auto number) {
            constexpr int s = decltype(number)::value;
            if (s >= steps) return;
            wait_for_copies<kSlots - 1 - s>();
            const int slot = slot0 + s < kSlots ? slot0 + s : slot0 + s - kSlots;
            if (row0 + s * stride >= a.rows || !inside) return;
            unpack(shared.ring[slot][t], v);
#pragma unroll
            for (int k = 0; k < kPacket; ++k) {
                const float distance = v[k] - shift[k];
                s1[k] += v[k];  // not of distances, which err more where the mean is near 0
                s2[k] = fmaf(distance, distance, s2[k]);
            }
        });
#pragma unroll
        for (int k = 0; k < kPacket; ++k) {
            s1[k] = of_warp(s1[k]);
            s2[k] = of_warp(s2[k]);
            if (lane < kPacks) {
                shared.sums[warp][pack * kPacket + k] = s1[k];
                shared.sums[warp][kWidth + pack * kPacket + k] = s2[k];
            }
        }
        __syncthreads();
        if (tile == 0) grid.barrier_wait(std::move(token));  // the sums are zero
        if (t < 2 * kWidth / 4) {
            float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
            for (int w = 0; w < kWarps; ++w) {
                const float4 part = reinterpret_cast<const float4*>(shared.sums[w])[t];
                sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
            }
            atomicAdd(reinterpret_cast<float4*>(sums + tile * 2 * kWidth) + t, sum);
        }
        token = grid.barrier_arrive();
        chosen = sample(tile + 1);
        const bool mine = t < kWidth && tile * kWidth + t < a.columns;
        const float gamma = mine ? msbench::to_float(a.gamma[tile * kWidth + t]) : 0.0f;
        const float beta = mine ? msbench::to_float(a.beta[tile * kWidth + t]) : 0.0f;
        grid.barrier_wait(std::move(token));
        if (t < kWidth) {
            const float* of_column = sums + tile * 2 * kWidth + t;
            const float mean = __ldcg(of_column) / a.rows, distance = mean - shared.shift[t];
            const float variance = fmaf(-distance, distance, __ldcg(of_column + kWidth) / a.rows);
            shared.mean[t] = mean;
            shared.scale[t] = gamma * rsqrtf((variance < 0 ? 0.0f : variance) + a.epsilon);  // NaN stays
            shared.beta[t] = beta;
        }
        __syncthreads();
        for (int s = 0; s < steps; ++s) {
            const int row = row0 + s * stride;
            if (row < a.rows && inside) {
                unpack(shared.ring[slot0][t], v);
                Group<float, kPacket> y;
#pragma unroll
                for (int k = 0; k < kPacket; ++k) {
                    const int c = pack * kPacket + k;
                    y.lane[k] = fmaf(v[k] - shared.mean[c], shared.scale[c], shared.beta[c]);
                }
                msbench::store_group_once(a.y + int64_t(row) * a.columns + column, 0, msbench::rounded<scalar_t>(y));
            }
            if (++slot0 == kSlots) slot0 = 0;
            load();
        }
    }
}

}  // namespace

extern "C" size_t batch_norm_workspace(float, int64_t, int64_t C) {
    return msbench::ceil_div(C, kWidth) * 2 * kWidth * sizeof(float);
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
    return msbench::Launch(blocks, kThreads, stream).shared(sizeof(Shared)).cooperative()(resident, a, static_cast<float*>(workspace));
}
