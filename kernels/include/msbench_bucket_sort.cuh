// Sorting a bucket of keys in shared memory: keys that share their upper half by counting, others by where they ought to be.
#pragma once

#include "msbench_key_runs.cuh"
#include "msbench_ordered_keys.cuh"

namespace msbench {

constexpr int kCrowd = 48;  // keys at one place that are compared with each other

struct HeavyShared {
    alignas(16) uint16_t marks[kKeys];
    unsigned counters[16384];
};

struct HeavyOutput {  // y[begin, end) from lower halves of keys with the same upper half; packets of 8
    unsigned* y;
    int64_t begin, end;
    unsigned upper;
    int head;  // of position 0, a multiple of 16 bytes

    __device__ HeavyOutput(unsigned* y, int64_t n, unsigned upper)
        : y(y), begin(0), end(n), upper(upper << 16), head(int(reinterpret_cast<uintptr_t>(y) % 16 / 4)) {}
    __device__ int64_t first_of(int block, int blocks) const { return (head + end + 7) / 8 * block / blocks * 8; }
    __device__ void put(int64_t position, uint4 keys) const {
        const int64_t at = position - head;
        const unsigned word[4] = {keys.x, keys.y, keys.z, keys.w};
        unsigned value[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) value[e] = bits_of_ordered(upper | (e % 2 ? word[e / 2] >> 16 : word[e / 2] & 0xffff));
        if (at >= begin && at + 8 <= end) {
            __stcs(reinterpret_cast<uint4*>(y + at), make_uint4(value[0], value[1], value[2], value[3]));
            __stcs(reinterpret_cast<uint4*>(y + at) + 1, make_uint4(value[4], value[5], value[6], value[7]));
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                if (at + e >= begin && at + e < end) y[at + e] = value[e];
            }
        }
    }
};

// Sorts keys that differ in their lower halves only, with counters of kBits; false if one could not hold its count.
template <int kBits>
__device__ inline bool sort_heavy(const unsigned* from, HeavyOutput out, HeavyShared& shared) {
    constexpr int kPer = 32 / kBits, kValues = 16384 * kPer, kRows = 16384 / kCountThreads, kBatch = 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = int(out.end);
    const unsigned* const own = shared.counters + warp * kRows * 32 + lane;
    const auto counter = [](unsigned word, int i) { return unsigned(word >> i * kBits & ((1ull << kBits) - 1)); };
    const auto sum_of = [&](unsigned word) {
        unsigned sum = 0;
#pragma unroll
        for (int i = 0; i < kPer; ++i) sum += counter(word, i);
        return sum;
    };
    for (int lowest = 0; lowest < kKeys; lowest += kValues, out.begin = out.end) {
        clear_shared(shared.counters, sizeof shared.counters);
        __syncthreads();
        for (int start = threadIdx.x; start < count; start += kBatch * kCountThreads) {
            unsigned key[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) key[i] = from[min(start + i * kCountThreads, count - 1)];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const unsigned low = (key[i] & 0xffff) - lowest;
                if (start + i * kCountThreads < count && low < kValues) atomicAdd(&shared.counters[low / kPer], 1u << low % kPer * kBits);
            }
        }
        __syncthreads();
        unsigned sum = 0;
#pragma unroll 4
        for (int r = 0; r < kRows; ++r) sum += sum_of(own[r * 32]);
        const auto scan = block_scan(sum);
        if (kBits == 8 && int(scan.total) != count) return false;  // a carry into the next counter takes 255 from the sum
        const unsigned ahead = __shfl_sync(~0u, scan.before, 0);
        out.end = out.begin + scan.total;
        const int64_t first = out.begin + out.head, past = out.end + out.head;
        for (int64_t low = first / 8 * 8; low < past; low += kKeys) {
            const KeyWindow window = {low, min(low + kKeys, past), shared.marks};
            window.clear();
            __syncthreads();
            int64_t row = first + ahead;
            for (int r = 0; r < kRows; ++r) {
                const unsigned word = own[r * 32], mine = sum_of(word), through = warp_inclusive(mine);
                int64_t place = row + through - mine;
                row += __shfl_sync(~0u, through, 31);
#pragma unroll
                for (int i = 0; i < kPer; ++i) {
                    const unsigned number = counter(word, i);
                    if (number > 0) window.mark(place, number, lowest + ((warp * kRows + r) * 32 + lane) * kPer + i);
                    place += number;
                }
            }
            __syncthreads();
            for_each_run_packet(window, [&](int64_t position, uint4 keys) { out.put(position, keys); });
            __syncthreads();
        }
    }
    return true;
}

// Of a block with kThreads that sorts kEach keys a thread.
template <int kThreads, int kEach>
struct LightShared {
    static constexpr int kRows = (kEach + 3) / 4;
    alignas(16) unsigned place[kRows * 4 * kThreads + 4], staged[kRows * 4 * kThreads];
};

// Keys of any bins: where a key would be if the keys of its bin were spread evenly is nearly its place.
template <int kThreads, int kEach>
__device__ inline void sort_light(const unsigned* from, unsigned* y, int count, unsigned first, const uint2* bin,
                                  LightShared<kThreads, kEach>& shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int rows = (count + 4 * kThreads - 1) / (4 * kThreads);  // of 32 times four counters, for each warp
    for (int r = 0; r < rows; ++r) reinterpret_cast<uint4*>(shared.place)[r * kThreads + threadIdx.x] = make_uint4(0, 0, 0, 0);
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
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (has(i)) place[i] = place[i] << 16 | atomicAdd(&shared.place[place[i]], 1);
    }
    __syncthreads();
    uint4* const own = reinterpret_cast<uint4*>(shared.place) + warp * rows * 32 + lane;
    unsigned sum = 0, most = 0;
    for (int r = 0; r < rows; ++r) sum += own[r * 32].x + own[r * 32].y + own[r * 32].z + own[r * 32].w;
    unsigned at = __shfl_sync(~0u, block_scan(sum).before, 0);
    for (int r = 0; r < rows; ++r) {
        const uint4 number = own[r * 32];
        const unsigned mine = number.x + number.y + number.z + number.w, through = warp_inclusive(mine);
        const unsigned start = at + through - mine;
        own[r * 32] = make_uint4(start, start + number.x, start + number.x + number.y, start + mine - number.w);
        at += __shfl_sync(~0u, through, 31);
        most = max(max(most, max(number.x, number.y)), max(number.z, number.w));
    }
    if (threadIdx.x == 0) shared.place[rows * 4 * kThreads] = count;
    const bool crowded = __syncthreads_or(most > kCrowd);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (has(i)) shared.staged[shared.place[place[i] >> 16] + (place[i] & 0xffff)] = key[i];
    }
    __syncthreads();
    if (!crowded) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            if (!has(i)) continue;
            const unsigned start = shared.place[place[i] >> 16], end = shared.place[(place[i] >> 16) + 1], self = start + (place[i] & 0xffff);
            place[i] = start;
            for (unsigned j = start; j < end; ++j) {
                const unsigned other = shared.staged[j];
                place[i] += other < key[i] || (other == key[i] && j < self);
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            if (has(i)) shared.staged[place[i]] = key[i];
        }
        __syncthreads();
    } else {  // bitonic, whose first step of each length is mirrored, so that what is behind the end would stay there
        const int size = count <= 1 ? 1 : 1 << (32 - __clz(count - 1));
        for (int length = 2; length <= size; length *= 2) {
            for (int d = length / 2; d > 0; d /= 2) {
                for (int i = threadIdx.x; i < size / 2; i += kThreads) {
                    const int begin = i / d * 2 * d, a = begin + i % d, b = 2 * d == length ? begin + length - 1 - i % d : a + d;
                    if (b >= count) continue;
                    const unsigned low = shared.staged[a], high = shared.staged[b];
                    if (low > high) shared.staged[a] = high, shared.staged[b] = low;
                }
                __syncthreads();
            }
        }
    }
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += kThreads) y[i] = bits_of_ordered(shared.staged[i]);
    __syncthreads();
}

}  // namespace msbench
