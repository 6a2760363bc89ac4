// Finding the few very long rows or columns of a compressed matrix by a block, so that many blocks can share them: each makes the
// same list. In an even matrix that takes one trip to memory, for kThreads offsets at equal distances.
#pragma once

#include "msbench.cuh"

namespace msbench {

// In shared memory. kMost: lines that may have `least` entries.
template <int kThreads, int kMost>
struct LongLines {
    static_assert(kMost <= kThreads);
    static constexpr int kFlight = 6;  // lines that a thread looks at at once; with 8 the registers of spmv_csr spill

    // Lines that have `least` entries, in order, and the first part of each: a part has `part` entries.
    struct Sorted {
        int lines[kMost];
        unsigned short first[kMost + 1];
    };
    union {  // one after the other
        int offsets[kThreads];
        unsigned short suspect[kThreads];  // stretches that have `least` entries
        Sorted sorted;
    };
    int found[kMost], count, suspects;
    unsigned short parts[kMost];

    // How many there are; `sorted` holds if there are any. `total`: entries of all lines. Called once.
    __device__ int find(const int32_t* line_offsets, int lines, int total, int least, int part) {
        const int t = threadIdx.x, stride = (lines + kThreads - 1) / kThreads;
        const int begin = line_offsets[min(t * stride, lines)];
        offsets[t] = begin;
        if (t == 0) count = suspects = 0;
        __syncthreads();
        const bool is_suspect = (t + 1 < kThreads ? offsets[t + 1] : total) - begin >= least;
        if (!__syncthreads_or(is_suspect)) return 0;
        if (is_suspect) suspect[atomicAdd(&suspects, 1)] = static_cast<unsigned short>(t);
        __syncthreads();
        const int candidates = suspects * stride;
#pragma unroll 1
        for (int k = t; k < candidates; k += kFlight * kThreads) {
            int line[kFlight], length[kFlight];
#pragma unroll
            for (int i = 0; i < kFlight; ++i) {
                const int at = min(k + i * kThreads, candidates - 1);
                line[i] = suspect[at / stride] * stride + at % stride;
                length[i] = line_offsets[min(line[i] + 1, lines)] - line_offsets[min(line[i], lines)];  // behind the last line 0
            }
#pragma unroll
            for (int i = 0; i < kFlight; ++i) {
                if (k + i * kThreads >= candidates || length[i] < least) continue;
                const int at = atomicAdd(&count, 1);
                found[at] = line[i];
                parts[at] = static_cast<unsigned short>((length[i] + part - 1) / part);
            }
        }
        __syncthreads();
        if (t < count) {
            const int own = found[t];
            int place = 0, first = 0;
#pragma unroll 4
            for (int i = 0; i < count; ++i) {
                if (found[i] < own) ++place, first += parts[i];
            }
            sorted.lines[place] = own;
            sorted.first[place] = static_cast<unsigned short>(first);
            if (place == count - 1) sorted.first[count] = static_cast<unsigned short>(first + parts[t]);
        }
        __syncthreads();
        return count;
    }
    // The place of the line that `part` belongs to. By a whole warp.
    __device__ int line_of(int part) const {
        const int lane = threadIdx.x % 32;
        int at = -1;
#pragma unroll 1
        for (int k = 0; k < count; k += 32) at += __popc(__ballot_sync(~0u, k + lane < count && sorted.first[k + lane] <= part));
        return at;
    }
};

}  // namespace msbench
