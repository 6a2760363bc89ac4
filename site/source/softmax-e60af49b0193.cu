// Softmax over rows: a row stays in the registers of the threads that share it, between one read and one write: a warp
// for short rows, a block of 128 to 1024 threads for longer ones.
//
// Bound: 4 bytes an element and one launch. Few rows can't fill the GPU: they cost the launch, one trip to memory, two
// reductions and what one multiprocessor needs for a row.

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

// The reduction over the threads of a row, in each of them. `slots` is for this call alone.
template <int kThreads, typename Operation>
__device__ float row_reduce(float v, Operation operation, float* slots) {
    v = msbench::warp_reduce(v, operation);
    if constexpr (kThreads > 32) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) slots[threadIdx.x / 32] = v;
        __syncthreads();
        v = msbench::warp_reduce(lane < kThreads / 32 ? slots[lane] : Operation::kIdentity, operation);
    }
    return v;
}

template <int kWidth, int kThreads, int kHeld>
__global__ void __launch_bounds__(kThreads == 32 ? 32 * kRowsPerBlock : kThreads)
    softmax_rows(const scalar_t* x, scalar_t* y, int64_t rows, int columns) {
    __shared__ float max_slots[32], sum_slots[32];
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
    largest = row_reduce<kThreads>(largest, msbench::Max(), max_slots);

    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            value[i][k] = __expf(value[i][k] - largest);
            sum += value[i][k];
        }
    }
    const float scale = 1.0f / row_reduce<kThreads>(sum, msbench::Sum(), sum_slots);

#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int at = i * kThreads + int(threadIdx.x);
        if (at < packs) {
            Pack<kWidth> out;
#pragma unroll
            for (int k = 0; k < kWidth; ++k) out.lane[k] = msbench::from_float<scalar_t>(value[i][k] * scale);
            to[at] = out;
        }
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
    else if (packs <= 512) launch_rows<kWidth, 512, 1>(x, y, rows, columns, stream);
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
