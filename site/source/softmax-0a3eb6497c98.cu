// Softmax over rows: a block of 256 threads a row, which stays in registers between one read and one write.
//
// Bound: 4 bytes an element and one launch; a single row is bound by what one multiprocessor can move.

#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int kMaxColumns = 16384;
constexpr int kPacket = 16 / sizeof(scalar_t);

template <int kWidth>
struct alignas(kWidth * sizeof(scalar_t)) Pack {
    scalar_t lane[kWidth];
};

template <int kWidth, int kHeld>
__global__ void __launch_bounds__(kThreads) softmax_rows(const scalar_t* x, scalar_t* y, int columns) {
    __shared__ float scratch[32];
    const int64_t start = int64_t(blockIdx.x) * columns;
    const auto* from = reinterpret_cast<const Pack<kWidth>*>(x + start);
    auto* to = reinterpret_cast<Pack<kWidth>*>(y + start);
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
    largest = msbench::block_reduce(largest, msbench::Max(), scratch);

    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            value[i][k] = __expf(value[i][k] - largest);
            sum += value[i][k];
        }
    }
    const float scale = 1.0f / msbench::block_reduce(sum, msbench::Sum(), scratch);

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

}  // namespace

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void*, size_t,
                               cudaStream_t stream) {
    if (C > kMaxColumns) return cudaErrorInvalidValue;
    const unsigned rows = unsigned(N);
    const int columns = int(C);
    if (msbench::packets_allowed(x, y) && columns % kPacket == 0) {
        const int held = (columns / kPacket + kThreads - 1) / kThreads;
        if (held <= 1) softmax_rows<kPacket, 1><<<rows, kThreads, 0, stream>>>(x, y, columns);
        else if (held <= 2) softmax_rows<kPacket, 2><<<rows, kThreads, 0, stream>>>(x, y, columns);
        else if (held <= 4) softmax_rows<kPacket, 4><<<rows, kThreads, 0, stream>>>(x, y, columns);
        else softmax_rows<kPacket, 8><<<rows, kThreads, 0, stream>>>(x, y, columns);
    } else {
        const int held = (columns + kThreads - 1) / kThreads;
        if (held <= 4) softmax_rows<1, 4><<<rows, kThreads, 0, stream>>>(x, y, columns);
        else if (held <= 16) softmax_rows<1, 16><<<rows, kThreads, 0, stream>>>(x, y, columns);
        else softmax_rows<1, 64><<<rows, kThreads, 0, stream>>>(x, y, columns);
    }
    return cudaGetLastError();
}
