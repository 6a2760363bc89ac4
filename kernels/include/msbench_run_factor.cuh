// A factor whose lines, rows of A or columns of B, lie in runs of whole 16-byte packets, so that neither has to be copied or turned.
//
// A product may take its k in any order: tensor cores are given what a thread of theirs reads as one packet, in msbench_row_stream.cuh and
// msbench_few_rows.cuh.
#pragma once

#include "msbench.cuh"
#include "msbench_divisor.cuh"

namespace msbench {

// Line n = (outer, inner) and k = (x, y): runs of y, of `run_packets` packets.
template <typename T>
struct RunFactor {
    static constexpr int kPacket = Packet<T>::kSize;
    const T* data;
    int64_t outer_step;
    int x_step, count, packets;  // `count` lines, each of so many packets
    Divisor inner, run_packets;

    __device__ __forceinline__ const T* line(int n) const {
        const int outer = int(inner.quotient(n));
        return data + outer * outer_step + int64_t(n - outer * int(inner.d)) * (run_packets.d * kPacket);
    }
    // Of a packet from its line's start.
    __device__ __forceinline__ int offset(int packet) const {
        const int x = int(run_packets.quotient(packet));
        return x * x_step + (packet - x * int(run_packets.d)) * kPacket;
    }
};

// The product of line m of A and line n of B by the definition; in runs, so that no chain is long.
__device__ __noinline__ inline float product_by_definition(const RunFactor<float>& A, const RunFactor<float>& B, int m, int n) {
    constexpr int kRun = 64;
    const float *a = A.line(m), *b = B.line(n);
    float total = 0;
    for (int first = 0; first < A.packets; first += kRun) {
        float sum = 0;
        for (int p = first; p < min(first + kRun, A.packets); ++p) {
            const float4 x = *reinterpret_cast<const float4*>(a + A.offset(p)), y = *reinterpret_cast<const float4*>(b + B.offset(p));
            sum = fmaf(x.x, y.x, sum), sum = fmaf(x.y, y.y, sum), sum = fmaf(x.z, y.z, sum), sum = fmaf(x.w, y.w, sum);
        }
        total += sum;
    }
    return total;
}

}  // namespace msbench
