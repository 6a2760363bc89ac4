// Writing runs of equal 16-bit keys, in ascending order, when it is known where each key's run starts.
//
// A window of the output is marked in shared memory: at the start of each run its key, elsewhere 0. As keys ascend, the key at
// any position is the largest mark so far: a running maximum, 8 positions a lane.
#pragma once

#include "msbench_count_keys.cuh"

namespace msbench {

constexpr int kRunThreads = 1024, kRunWarps = kRunThreads / 32, kRunStep = 256;  // positions of a warp at a time

struct KeyWindow {
    int64_t low, high;   // positions: indices of elements plus a constant that makes packets begin at multiples of 8
    uint16_t* marks;     // high - low, rounded up to kRunStep, aligned to 16 bytes

    __device__ int count() const { return int(high - low); }
    __device__ int steps() const { return (count() + kRunStep - 1) / kRunStep; }       // of all warps
    __device__ int steps_of_warp() const { return (steps() + kRunWarps - 1) / kRunWarps; }

    __device__ void clear() const {
        for (int i = threadIdx.x; i < steps() * 32; i += kRunThreads) reinterpret_cast<uint4*>(marks)[i] = make_uint4(0, 0, 0, 0);
    }

    // The run of `count` > 0 keys that begins at position `start`.
    __device__ void mark(int64_t start, unsigned count, unsigned key) const {
        const int64_t from = max(start, low);
        if (from < min(start + count, high)) marks[from - low] = uint16_t(key);
    }
};

// The 8 keys of a packet, two a word, from their marks; `before` is the key ahead of the warp's 256, and then its last one.
__device__ inline uint4 running_keys(uint4 m, unsigned& before) {
    if (!__any_sync(~0u, (m.x | m.y | m.z | m.w) != 0)) {
        const unsigned both = before * 0x10001u;
        return make_uint4(both, both, both, both);
    }
    const auto upper = [](unsigned word) { return __byte_perm(word, 0, 0x3232); };  // its upper half, twice
    m.x = __vmaxu2(m.x, m.x << 16);
    m.y = __vmaxu2(__vmaxu2(m.y, m.y << 16), upper(m.x));
    m.z = __vmaxu2(__vmaxu2(m.z, m.z << 16), upper(m.y));
    m.w = __vmaxu2(__vmaxu2(m.w, m.w << 16), upper(m.z));
    unsigned through = m.w >> 16;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) through = max(through, __shfl_up_sync(~0u, through, distance));
    const unsigned lanes = __shfl_up_sync(~0u, through, 1);
    const unsigned earlier = threadIdx.x % 32 == 0 ? before : max(before, lanes), both = earlier * 0x10001u;
    before = max(before, __shfl_sync(~0u, through, 31));
    return make_uint4(__vmaxu2(m.x, both), __vmaxu2(m.y, both), __vmaxu2(m.z, both), __vmaxu2(m.w, both));
}

// Calls put(position, keys) for each packet of a window when all its marks are written. Has a barrier.
template <typename Put>
__device__ inline void for_each_run_packet(const KeyWindow& window, Put put) {
    __shared__ unsigned largest[kRunWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = warp * window.steps_of_warp(), last = min(first + window.steps_of_warp(), window.steps());
    const uint4* const packets = reinterpret_cast<const uint4*>(window.marks) + lane;
    unsigned most = 0;
    for (int step = first; step < last; ++step) {
        const uint4 marks = packets[step * 32];
        most = __vmaxu2(most, __vmaxu2(__vmaxu2(marks.x, marks.y), __vmaxu2(marks.z, marks.w)));
    }
    most = __reduce_max_sync(~0u, max(most & 0xffff, most >> 16));
    if (lane == 0) largest[warp] = most;
    __syncthreads();
    unsigned before = __reduce_max_sync(~0u, lane < warp ? largest[lane] : 0);
    for (int step = first; step < last; ++step) {
        const uint4 keys = running_keys(packets[step * 32], before);
        const int64_t position = window.low + step * kRunStep + lane * 8;
        if (position < window.high) put(position, keys);
    }
}

struct CountedRuns {  // in shared memory
    alignas(16) uint16_t marks[kKeys];
    int2 listed[kSegments];  // a segment and its start
    int count;
};

// Writes this block's part of the output from the counts of all keys. Output: head, first_of(block, blocks), put(position, keys).
template <typename Output>
__device__ inline void write_counted(const Output& out, const KeyCounts* work, CountedRuns& shared) {
    constexpr int kAtOnce = 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned segment = work->segment[threadIdx.x], before = block_scan(segment).before;
    const int64_t begin = out.first_of(blockIdx.x, kCountBlocks), end = out.first_of(blockIdx.x + 1, kCountBlocks);
    for (int64_t low = begin; low < end; low += kKeys) {
        const KeyWindow window = {low, min(low + kKeys, end), shared.marks};
        window.clear();
        if (threadIdx.x == 0) shared.count = 0;
        __syncthreads();
        const int64_t from = int64_t(before) + out.head;
        const bool here = segment > 0 && from < window.high && from + segment > window.low;
        append(here, make_int2(threadIdx.x, before), shared.listed, &shared.count, kSegments);
        __syncthreads();
        for (int next = warp; next < shared.count; next += kAtOnce * kCountWarps) {
            uint2 count[kAtOnce] = {};
            int2 which[kAtOnce] = {};
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {  // all loads first
                if (next + u * kCountWarps >= shared.count) continue;
                which[u] = shared.listed[next + u * kCountWarps];
                count[u] = reinterpret_cast<const uint2*>(work->total)[which[u].x * 32 + lane];
            }
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const unsigned both = count[u].x + count[u].y, key = which[u].x * kSegmentKeys + 2 * lane;
                const int64_t start = int64_t(which[u].y) + out.head + warp_inclusive(both) - both;
                if (count[u].x > 0) window.mark(start, count[u].x, key);
                if (count[u].y > 0) window.mark(start + count[u].x, count[u].y, key + 1);
            }
        }
        __syncthreads();
        for_each_run_packet(window, [&](int64_t position, uint4 keys) { out.put(position, keys); });
        __syncthreads();
    }
}

}  // namespace msbench
