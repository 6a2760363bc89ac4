// Sorting keys of any upper halves in shared memory: where a key would be if the keys of its bin were spread evenly is nearly its place.
//
// Idea: keys are counted at such places and put there, so that those that meet are neighbours and all others are in order. As many
// rounds of odd-even transposition as keys meet put them in order, in registers: a thread has kChunk neighbouring keys and kReach more
// on either side, which are enough for kReach rounds. There are 6 or 7 rounds where about as many places are as keys.
#pragma once

#include "msbench_ordered_keys.cuh"
#include "msbench_scan.cuh"

namespace msbench {

constexpr int kReach = 8, kChunk = 16;
constexpr int kCrowd = 48;  // if more keys meet, the bucket is sorted otherwise

// Where key i lies: rows of kChunk keys, the first of which has only kReach, with gaps against bank conflicts. A thread's window is a
// row and the next one.
__host__ __device__ constexpr unsigned spot(unsigned i) {
    return (i + kReach) + (i + kReach) / kChunk * 4;
}

// Of a block with kThreads that sorts kEach keys a thread.
template <int kThreads, int kEach>
struct LightShared {
    static constexpr int kRows = (kEach + 3) / 4;
    static_assert(kEach <= kChunk);
    alignas(16) unsigned place[kRows * 4 * kThreads + 4];
    alignas(16) unsigned keys[spot(kThreads * kChunk + 2 * kChunk)];  // before and behind all are the least and the largest
    unsigned most;
};

// Calls taken() when all threads have read their keys.
template <int kThreads, int kEach, class Taken>
__device__ inline void sort_light(const unsigned* from, unsigned* y, int count, unsigned first, const uint2* bin,
                                  LightShared<kThreads, kEach>& shared, Taken taken) {
    constexpr int kWindow = 2 * kChunk;
    static_assert(kWindow == kChunk + 2 * kReach);
    const auto staged = [&](int i) -> unsigned& { return shared.keys[spot(i)]; };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int rows = (count + 4 * kThreads - 1) / (4 * kThreads);  // of 32 times four counters, for each warp
    for (int r = 0; r < rows; ++r) reinterpret_cast<uint4*>(shared.place)[r * kThreads + threadIdx.x] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < kReach) shared.keys[threadIdx.x] = 0;
    if (threadIdx.x < kWindow) staged(count + threadIdx.x) = ~0u;
    if (threadIdx.x == 0) shared.most = 0;
    unsigned key[kEach], place[kEach];
    const auto has = [&](int i) { return i * kThreads + int(threadIdx.x) < count; };
#pragma unroll
    for (int i = 0; i < kEach; ++i) key[i] = has(i) ? from[i * kThreads + threadIdx.x] : 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const uint2 own = has(i) ? bin[key[i] >> 16] : make_uint2(first, 0);
        place[i] = own.x - first + ((key[i] & 0xffff) * own.y >> 16);
    }
    __syncthreads();
    taken();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (has(i)) place[i] = place[i] << 16 | atomicAdd(&shared.place[place[i]], 1);
    }
    __syncthreads();
    uint4* const own = reinterpret_cast<uint4*>(shared.place) + warp * rows * 32 + lane;
    unsigned sum = 0, most = 0;
    for (int r = 0; r < rows; ++r) {
        const uint4 number = own[r * 32];
        sum += number.x + number.y + number.z + number.w;
        most = max(max(most, max(number.x, number.y)), max(number.z, number.w));
    }
    most = __reduce_max_sync(~0u, most);
    if (lane == 0) atomicMax(&shared.most, most);
    unsigned at = __shfl_sync(~0u, block_scan(sum).before, 0);
    for (int r = 0; r < rows; ++r) {
        const uint4 number = own[r * 32];
        const unsigned mine = number.x + number.y + number.z + number.w, through = warp_inclusive(mine);
        const unsigned start = at + through - mine;
        own[r * 32] = make_uint4(start, start + number.x, start + number.x + number.y, start + mine - number.w);
        at += __shfl_sync(~0u, through, 31);
    }
    if (threadIdx.x == 0) shared.place[rows * 4 * kThreads] = count;
    __syncthreads();
    most = shared.most;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (has(i)) staged(shared.place[place[i] >> 16] + (place[i] & 0xffff)) = key[i];
    }
    __syncthreads();
    if (most <= kCrowd) {
        // Odd-even transposition in registers: each round brings keys one position nearer to their own, and makes one more of the
        // window's at either end wrong, which are other threads'.
        const bool mine = int(threadIdx.x) * kChunk < count;
        uint4* const window = reinterpret_cast<uint4*>(shared.keys + threadIdx.x * (kChunk + 4));
        for (int left = int(most); left > 0; left -= kReach) {
            unsigned w[kWindow];
            if (mine) {
#pragma unroll
                for (int i = 0; i < kWindow; i += 4) reinterpret_cast<uint4&>(w[i]) = window[i / 4 + i / kChunk];
                const auto order = [&](int i) {
                    const unsigned low = min(w[i], w[i + 1]), high = max(w[i], w[i + 1]);
                    w[i] = low, w[i + 1] = high;
                };
#pragma unroll 1
                for (int round = 0; round < min(left, kReach); round += 2) {
#pragma unroll
                    for (int i = 0; i + 1 < kWindow; i += 2) order(i);
#pragma unroll
                    for (int i = 1; i + 1 < kWindow; i += 2) order(i);
                }
            }
            __syncthreads();
            if (mine) {
#pragma unroll
                for (int i = kReach; i < kReach + kChunk; i += 4) window[i / 4 + i / kChunk] = reinterpret_cast<const uint4&>(w[i]);
            }
            __syncthreads();
        }
    } else {  // bitonic, whose first step of each length is mirrored, so that what is behind the end would stay there
        const int size = count <= 1 ? 1 : 1 << (32 - __clz(count - 1));
        for (int length = 2; length <= size; length *= 2) {
            for (int d = length / 2; d > 0; d /= 2) {
                for (int i = threadIdx.x; i < size / 2; i += kThreads) {
                    const int begin = i / d * 2 * d, a = begin + i % d, b = 2 * d == length ? begin + length - 1 - i % d : a + d;
                    if (b >= count) continue;
                    const unsigned low = staged(a), high = staged(b);
                    if (low > high) staged(a) = high, staged(b) = low;
                }
                __syncthreads();
            }
        }
    }
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += kThreads) y[i] = bits_of_ordered(staged(i));
    __syncthreads();
}

}  // namespace msbench
