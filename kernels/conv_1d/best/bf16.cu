// conv_1d in bf16 on tensor cores: the signal as a matrix of overlapping rows times a banded matrix of taps (msbench_toeplitz.cuh). Few
// outputs by FFMA (msbench_short_signal.cuh).
//
// Idea: a warp has a contiguous tile of 1024 outputs to itself, no block barrier after the filter. Tiles come by cp.async, one ahead; outputs leave
// through the place of their samples, in 16-byte packets. Outputs that are not finite are computed again by the definition. Some
// outputs: tiles of 256, and half of the copies of the filter, read by plain loads of 8 bytes, since staging them is what takes time.
//
// Bound (N = 2^25, K = 128): bytes, 31 us; MMA 16 us.
// Measured for this design (H200, 2026-11-23), us cold: 37.8 there (K = 1: 35.8, 256: 50.5). Lost: LDS of pairs instead of ldmatrix (41, 256: 62); 8-byte
// stores (K = 1: 40); tiles of 2048 (44); the plan for long signals, with tiles of 256, for some outputs (0.6 to 1 us longer at 2^18).
#include "msbench_launch.cuh"
#include "msbench_short_signal.cuh"
#include "msbench_toeplitz.cuh"

namespace {

using namespace msbench;

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kStages = 2;          // tiles of a warp: one is read, one arrives
constexpr int64_t kFew = 1 << 15;   // outputs: short signals up to here (measured: 2^14 are few, 2^16 are not),
constexpr int64_t kSome = 3 << 20;  // tiles of 256 up to here (2^19 are some, 2^22 are not)

// 16 bytes to `to`, an address in shared memory as asm takes it.
__device__ __forceinline__ void copy_async(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void wait_for_oldest() { asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory"); }

__device__ __forceinline__ uint2 rounded(float a, float b, float c, float d) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(a, b), high = __floats2bfloat162_rn(c, d);
    return make_uint2(reinterpret_cast<const unsigned&>(low), reinterpret_cast<const unsigned&>(high));
}

__device__ __forceinline__ bool finite(const float (&v)[2][4], int h) {  // what a lane has of row l / 4 + 8 h
    return fmaf(v[0][2 * h], 0.0f, fmaf(v[0][2 * h + 1], 0.0f, fmaf(v[1][2 * h], 0.0f, v[1][2 * h + 1] * 0.0f))) == 0.0f;
}

// ---------------------------------------------------------------- long signals
using Long = Toeplitz<MmaType::kBf16, 4>;

__global__ void __launch_bounds__(kThreads, 4)
    conv_long(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w, scalar_t* __restrict__ y, int N, int K, int shift, int tiles) {
    extern __shared__ __align__(128) char shared[];
    constexpr int kPacket = Signal<scalar_t>::kPacket, kMain = Long::kTile / kPacket / 32;
    const Long shape(K);
    const Signal<scalar_t> signal{x, N, shift};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, outputs = N - K + 1, packets = shape.units * 2;
    char* const stages = shared + shape.filter + warp * kStages * shape.part;
    const int place = Long::place(lane / 2) + lane % 2 * 16;  // of packet `lane`, and kStride on of packet lane + 32
    constexpr int kStride = 16 / Long::P * Long::kRowBytes;
    const auto fetch = [&](int tile, char* stage) {
        const int start = tile * Long::kTile + lane * kPacket;
        if (signal.covers(tile * Long::kTile, shape.units * Long::kStep)) {
#pragma unroll
            for (int n = 0; n < kMain; ++n) copy_async(stage + place + n * kStride, signal.at(start + n * 32 * kPacket));
#pragma unroll 1
            for (int n = kMain; 32 * n + lane < packets; ++n) copy_async(stage + place + n * kStride, signal.at(start + n * 32 * kPacket));
        } else {
#pragma unroll 1
            for (int n = 0; 32 * n + lane < packets; ++n)
                *reinterpret_cast<Packet<scalar_t>*>(stage + place + n * kStride) = signal.packet(start + n * 32 * kPacket);
        }
    };

    int tile = blockIdx.x * kWarps + warp;
    const int stride = gridDim.x * kWarps;
    if (tile < tiles) fetch(tile, stages);
    commit_copies();
    shape.stage_filter(shared, w, K, [](scalar_t tap) { return unsigned(__bfloat16_as_ushort(tap)); });
    __syncthreads();
    const bool whole_stores = (reinterpret_cast<uintptr_t>(y - shift) & 15) == 0;
    for (int stage = 0; tile < tiles; tile += stride, stage ^= 1) {
        if (tile + stride < tiles) fetch(tile + stride, stages + (stage ^ 1) * shape.part);
        commit_copies();
        wait_for_oldest();
        __syncwarp();
        char* const samples = stages + stage * shape.part;
        float sum[Long::P][2][4];
        shape.correlate(sum, samples, shared);
        const int first = tile * Long::kTile - shift;  // output
        const bool whole = whole_stores && first >= 0 && first + Long::kTile <= outputs;
        bool all_finite = true;
        __syncwarp();  // the samples are read: outputs take their place
#pragma unroll
        for (int p = 0; p < Long::P; ++p)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                all_finite &= finite(sum[p], h);
                *reinterpret_cast<uint2*>(samples + (lane / 4 + 8 * h) * Long::kRowBytes + p * Long::kUnit + lane % 4 * 8) =
                    rounded(sum[p][0][2 * h], sum[p][0][2 * h + 1], sum[p][1][2 * h], sum[p][1][2 * h + 1]);
            }
        const bool by_element = !whole || __any_sync(0xffffffffu, !all_finite);
        __syncwarp();
        if (!by_element) {
#pragma unroll
            for (int n = 0; n < kMain; ++n)
                __stcs(reinterpret_cast<uint4*>(y + first) + lane + 32 * n, *reinterpret_cast<const uint4*>(samples + place + n * kStride));
        } else {
            for (int n = 0; n < kMain; ++n)
#pragma unroll 1
                for (int e = 0; e < kPacket; ++e) {
                    const int i = first + (lane + 32 * n) * kPacket + e;
                    if (i < 0 || i >= outputs) continue;
                    const scalar_t v = reinterpret_cast<const scalar_t*>(samples + place + n * kStride)[e];
                    y[i] = isfinite(to_float(v)) ? v : from_float<scalar_t>(exact_output(x + i, w, K));
                }
        }
        __syncwarp();
    }
}

// ---------------------------------------------------------------- some outputs
// One step of outputs a row, 256 a warp; four copies of the filter, shifted by 0 to 3 taps.
struct Some {
    static constexpr int kTile = 256;
    int T, units;  // as in Toeplitz
    int copy;      // bytes from one copy of the filter to the next: half of the banks
    int filter, part;
    __host__ __device__ explicit Some(int K) {
        T = (K + 30) / 16;
        units = 16 + T - 1;
        copy = ((4 * T + 3) * 8 + 63) / 128 * 128 + 64;
        filter = 4 * copy;
        part = units * 32;
    }
};

__global__ void __launch_bounds__(kThreads)
    conv_some(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w, scalar_t* __restrict__ y, int N, int K, int shift, int tiles) {
    extern __shared__ __align__(128) char shared[];
    const Some shape(K);
    const Signal<scalar_t> signal{x, N, shift};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane / 4, q = lane % 4, outputs = N - K + 1;
    char* const stages = shared + shape.filter + warp * kStages * shape.part;
    const auto fetch = [&](int tile, char* to) {
        for (int c = lane; c < shape.units * 2; c += 32) {
            const int start = tile * Some::kTile + c * 8;
            if (signal.covers(start, 8)) copy_async(to + c * 16, signal.at(start));
            else *reinterpret_cast<Packet<scalar_t>*>(to + c * 16) = signal.packet(start);
        }
    };
    int tile = blockIdx.x * kWarps + warp;
    const int stride = gridDim.x * kWarps, groups = 4 * shape.T + 3;
    if (tile < tiles) fetch(tile, stages);
    commit_copies();
    // Group g of copy c has taps 4 (g - 3) - c to 4 (g - 3) - c + 3.
    for (int g = threadIdx.x; g < 4 * groups; g += kThreads) {
        const int copy = g / groups, group = g % groups, tap = 4 * (group - 3) - copy;
        unsigned v[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = tap + e >= 0 && tap + e < K ? __bfloat16_as_ushort(w[tap + e]) : 0u;
        *reinterpret_cast<uint2*>(shared + copy * shape.copy + group * 8) = make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
    }
    __syncthreads();
    const bool whole_stores = (reinterpret_cast<uintptr_t>(y - shift) & 7) == 0;
    // The samples of a step are permuted: a lane's four lie together, in A and in B.
    const char* const taps = shared + r % 2 * shape.copy + (q - r / 2 + 3) * 8;
    for (int stage = 0; tile < tiles; tile += stride, stage ^= 1) {
        if (tile + stride < tiles) fetch(tile + stride, stages + (stage ^ 1) * shape.part);
        commit_copies();
        wait_for_oldest();
        __syncwarp();
        const char* const row = stages + stage * shape.part + r * 32 + q * 8;
        float sum[2][4] = {};
#pragma unroll 4
        for (int t = 0; t < shape.T; ++t) {
            const uint2 u = *reinterpret_cast<const uint2*>(row + t * 32), v = *reinterpret_cast<const uint2*>(row + (t + 8) * 32);
            const unsigned a[4] = {u.x, v.x, u.y, v.y};
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint2 b = *reinterpret_cast<const uint2*>(taps + 2 * i * shape.copy + t * 32);
                mma<MmaType::kBf16>(sum[i], a, b.x, b.y);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int i = tile * Some::kTile - shift + (r + 8 * h) * 16 + q * 4;
            const float v[4] = {sum[0][2 * h], sum[0][2 * h + 1], sum[1][2 * h], sum[1][2 * h + 1]};
            const bool good = finite(sum, h);
            if (good && whole_stores && i >= 0 && i + 4 <= outputs) {
                *reinterpret_cast<uint2*>(y + i) = rounded(v[0], v[1], v[2], v[3]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (i + e >= 0 && i + e < outputs) y[i + e] = from_float<scalar_t>(good ? v[e] : exact_output(x + i + e, w, K));
            }
        }
        __syncwarp();
    }
}

template <typename Shape, typename Kernel>
cudaError_t launch(Kernel kernel, const scalar_t* x, const scalar_t* w, scalar_t* y, int N, int K, cudaStream_t stream) {
    const Shape shape(K);
    const int shift = int(reinterpret_cast<uintptr_t>(x) / sizeof(scalar_t) % Signal<scalar_t>::kPacket);
    const int bytes = shape.filter + kWarps * kStages * shape.part;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    const int64_t tiles = ceil_div(N - K + 1 + shift, Shape::kTile), blocks = ceil_div(tiles, kWarps);
    const int64_t most = resident_blocks(kernel, kThreads, bytes);
    return Launch(unsigned(blocks < most ? blocks : most), kThreads, stream).shared(bytes)(kernel, x, w, y, N, K, shift, int(tiles));
}

}  // namespace

extern "C" cudaError_t conv_1d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t N, int64_t K, void*, size_t,
                               cudaStream_t stream) {
    const int64_t outputs = N - K + 1;
    if (outputs <= kFew) return correlate_short_signal(x, w, y, N, K, stream);
    if (outputs <= kSome) return launch<Some>(conv_some, x, w, y, int(N), int(K), stream);
    return launch<Long>(conv_long, x, w, y, int(N), int(K), stream);
}
