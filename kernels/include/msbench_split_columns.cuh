// Columns of a small fp32 B, in two scaled fp16 parts each, in a block's shared memory as wgmma reads them: for msbench_split_stream.cuh.
//
// Of 16 k a thread has a packet of four neighbours, which is two pairs of mma's k for it: so has a thread's row of A. Every thread has packets of two
// columns, all on their way at once as far as registers go: it looks for extremes, leaves the numbers where their parts will be, and splits
// them there once all threads have told their columns' extremes.
#pragma once

#include "msbench_async.cuh"
#include "msbench_run_factor.cuh"
#include "msbench_split_scales.cuh"
#include "msbench_wgmma.cuh"

namespace msbench::split_stream {

using Factor32 = RunFactor<float>;

constexpr int kChunkSteps = 4;  // 64 k

// Of 16 k: [plane][8 k][column], cores of 8 columns x 16 bytes.
constexpr int planes_bytes(int tile_n) { return 2 * kMmaK * tile_n * 2; }

template <int kTileN>
struct Columns {
    float unscales[kTileN], losses[kTileN];
    unsigned largest[kTileN], smallest[kTileN];
    int any_odd;
};

__device__ __forceinline__ float loss_of(const float4& x, float scale) {
    return msbench::loss_of(x.x, scale) + msbench::loss_of(x.y, scale) + msbench::loss_of(x.z, scale) + msbench::loss_of(x.w, scale);
}

template <int kTileN, int kGroups>
__device__ __forceinline__ void split_columns(unsigned char* planes, Columns<kTileN>& columns, const Factor32& B, int column0, int steps) {
    constexpr int kShares = kTileN / 32, kBatch = 8;
    const int q = threadIdx.x % 4, n0 = threadIdx.x / 4 % 32, group = threadIdx.x / kGroupThreads;
    for (int n = threadIdx.x; n < kTileN; n += kGroups * kGroupThreads) {
        columns.largest[n] = 0, columns.smallest[n] = 0x7f800000, columns.losses[n] = 0.0f;
    }
    if (threadIdx.x == 0) columns.any_odd = 0;
    __syncthreads();
    // Where the parts of a packet are: the high ones of both pairs, then the low ones.
    const auto words = [&](int n, int step) { return reinterpret_cast<unsigned*>(planes + step * planes_bytes(kTileN) + n * 16) + q; };
    constexpr int kPair = kTileN * 4, kPlane = planes_bytes(kTileN) / 8;
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
        const int n = n0 + 32 * share;
        const bool inside = column0 + n < B.count;
        const float* const line = inside ? B.line(column0 + n) : B.data;
        Extremes e;
        for (int first = group; first < steps; first += kBatch * kGroups) {
            float4 x[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const int packet = (first + i * kGroups) * 4 + q;
                x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (inside && packet < B.packets) x[i] = *reinterpret_cast<const float4*>(line + B.offset(packet));
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                if (first + i * kGroups >= steps) continue;
                unsigned* const to = words(n, first + i * kGroups);
                to[0] = __float_as_uint(x[i].x), to[kPair] = __float_as_uint(x[i].y);
                to[kPlane] = __float_as_uint(x[i].z), to[kPlane + kPair] = __float_as_uint(x[i].w);
                e.look(x[i].x), e.look(x[i].y), e.look(x[i].z), e.look(x[i].w);
            }
        }
        atomicMax(&columns.largest[n], e.largest);
        atomicMin(&columns.smallest[n], e.smallest);
    }
    __syncthreads();
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
        const int n = n0 + 32 * share;
        Extremes e;
        e.join(columns.largest[n], columns.smallest[n]);
        const float unscale = e.unscale(), scale = scale_of(unscale);
        float lost = 0;
#pragma unroll 4
        for (int step = group; step < steps; step += kGroups) {
            unsigned* const to = words(n, step);
            const float4 x = make_float4(__uint_as_float(to[0]), __uint_as_float(to[kPair]), __uint_as_float(to[kPlane]),
                                         __uint_as_float(to[kPlane + kPair]));
            split_pair(x.x * scale, x.y * scale, to[0], to[kPlane]);
            split_pair(x.z * scale, x.w * scale, to[kPair], to[kPlane + kPair]);
            if (unscale < 0) lost += loss_of(x, scale);
        }
        if (lost > 0) atomicAdd(&columns.losses[n], lost);
        if (lost > 0 || unscale != unscale) columns.any_odd = 1;
        if (group == 0 && q == 0) columns.unscales[n] = unscale;
    }
}

}  // namespace msbench::split_stream
