// Softmax over rows: a row stays in the registers of the threads that share it, between one read and one write: a warp
// for short rows, a block of 128 to 1024 threads for longer ones. Each warp exponentiates relative to its own maximum,
// so that the warps of a row have to meet only once, with one barrier, to exchange their maxima and sums.
//
// Bound: 4 bytes an element and one launch. Few rows can't fill the GPU: they cost the launch, one trip to memory, the
// reduction and what one multiprocessor needs for a row.

#include "msbench.cuh"

namespace {

constexpr int kMaxColumns = 16384;
constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int kRowsPerBlock = 4;      // where a warp has a row and rows are many
constexpr int64_t kManyRows = 528;    // four for each of 132 multiprocessors

template <int kWidth>
struct alignas(kWidth * sizeof(scalar_t)) Pack {
    scalar_t lane[kWidth];
};

template <int kWidth>
__device__ Pack<kWidth> rounded(const float (&value)[kWidth], float factor) {
    Pack<kWidth> out;
    if constexpr (kWidth == 1) {
        out.lane[0] = __float2bfloat16_rn(value[0] * factor);
    } else {
#pragma unroll
        for (int k = 0; k < kWidth; k += 2) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(value[k] * factor, value[k + 1] * factor);
            out.lane[k] = pair.x;
            out.lane[k + 1] = pair.y;
        }
    }
    return out;
}

// Floats compare like integers once the negative ones have all bits but their sign flipped. v is no NaN.
__device__ float warp_max(float v) {
    const int bits = __float_as_int(v);
    const int key = __reduce_max_sync(0xffffffffu, bits < 0 ? bits ^ 0x7fffffff : bits);
    return __int_as_float(key < 0 ? key ^ 0x7fffffff : key);
}

// What a warp's exponentials, relative to its own maximum, must be multiplied by.
template <int kWarps>
__device__ float row_factor(float largest, float sum) {
    if constexpr (kWarps == 1) {
        return __fdividef(1.0f, sum);
    } else {
        __shared__ alignas(16) float2 of_warp[kWarps];
        const int lane = threadIdx.x % 32;
        if (lane == 0) of_warp[threadIdx.x / 32] = make_float2(largest, sum);
        __syncthreads();
        float row_largest, total = 0;
        if constexpr (kWarps <= 8) {
            float2 pair[kWarps];
            row_largest = -INFINITY;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) {
                pair[w] = of_warp[w];
                row_largest = fmaxf(row_largest, pair[w].x);
            }
#pragma unroll
            for (int w = 0; w < kWarps; ++w) total = fmaf(pair[w].y, __expf(pair[w].x - row_largest), total);
        } else {
            const float2 pair = lane < kWarps ? of_warp[lane] : make_float2(-INFINITY, 0.0f);
            row_largest = warp_max(pair.x);
            total = msbench::warp_reduce(pair.y * __expf(pair.x - row_largest), msbench::Sum());
        }
        return __fdividef(__expf(largest - row_largest), total);
    }
}

template <int kWidth, int kThreads, int kHeld>
__global__ void __launch_bounds__(kThreads == 32 ? 32 * kRowsPerBlock : kThreads)
    softmax_rows(const scalar_t* x, scalar_t* y, int64_t rows, int columns) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= rows) return;  // whole warps, and only where a warp has the row
    const auto* from = reinterpret_cast<const Pack<kWidth>*>(x + row * columns);
    auto* to = reinterpret_cast<Pack<kWidth>*>(y + row * columns);
    const int packs = columns / kWidth;

    float value[kHeld][kWidth];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int at = i * kThreads + int(threadIdx.x);
        if (at < packs) {
            const Pack<kWidth> raw = from[at];
#pragma unroll
            for (int k = 0; k < kWidth; ++k) value[i][k] = msbench::to_float(raw.lane[k]);
        } else {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) value[i][k] = -INFINITY;
        }
    }

    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) largest = fmaxf(largest, value[i][k]);
    }
    largest = warp_max(largest);
    // A warp without finite elements among others: its exponentials are zero, its NaNs stay.
    const float origin = kThreads > 32 && largest == -INFINITY ? 0.0f : largest;

    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            value[i][k] = __expf(value[i][k] - origin);
            sum += value[i][k];
        }
    }
    sum = msbench::warp_reduce(sum, msbench::Sum());
    const float factor = row_factor<kThreads / 32>(largest, sum);

#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int at = i * kThreads + int(threadIdx.x);
        if (at < packs) to[at] = rounded<kWidth>(value[i], factor);
    }
}

template <int kWidth, int kThreads, int kHeld>
void launch_rows(const scalar_t* x, scalar_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    const int together = kThreads == 32 && rows >= kManyRows ? kRowsPerBlock : 1;
    const unsigned blocks = unsigned((rows + together - 1) / together);
    softmax_rows<kWidth, kThreads, kHeld>
        <<<blocks, dim3(kThreads, together), 0, stream>>>(x, y, rows, int(columns));
}

template <int kWidth>
cudaError_t launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    const int64_t packs = columns / kWidth;
    if (packs <= 32) launch_rows<kWidth, 32, 1>(x, y, rows, columns, stream);
    else if (packs <= 64) launch_rows<kWidth, 32, 2>(x, y, rows, columns, stream);
    else if (packs <= 128) launch_rows<kWidth, 128, 1>(x, y, rows, columns, stream);
    else if (packs <= 256) launch_rows<kWidth, 256, 1>(x, y, rows, columns, stream);
    else if (packs <= 512) launch_rows<kWidth, 256, 2>(x, y, rows, columns, stream);
    else if (packs <= 1024) launch_rows<kWidth, 256, 4>(x, y, rows, columns, stream);
    else if (packs <= 2048) launch_rows<kWidth, 1024, 2>(x, y, rows, columns, stream);
    else if constexpr (kWidth == 1) launch_rows<kWidth, 1024, 16>(x, y, rows, columns, stream);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void*, size_t,
                               cudaStream_t stream) {
    if (C > kMaxColumns) return cudaErrorInvalidValue;
    const bool packets = msbench::packets_allowed(x, y) && C % kPacket == 0;
    return packets ? launch<kPacket>(x, y, N, C, stream) : launch<1>(x, y, N, C, stream);
}
