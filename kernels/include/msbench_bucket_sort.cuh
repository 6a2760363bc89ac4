// Sorting a bucket of keys that share their upper half, in shared memory: by counting lower halves.
#pragma once

#include "msbench_key_runs.cuh"
#include "msbench_ordered_keys.cuh"

namespace msbench {

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

}  // namespace msbench
