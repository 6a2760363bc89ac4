// Sums of rows from several groups of blocks, by mail to the last group: a word is its own mark, as zero stands for none and a sum of 0 travels
// as -0. Who takes a word clears it: after a call all are what they were before. Blocks begin in the order of their numbers, and who waits has
// higher ones than those it waits for.
#pragma once

#include "msbench.cuh"

namespace msbench {

constexpr int kMailGroups = 8, kMailRows = 16384;  // all words together are less than the 1 MiB of variables that a version may have

// All zero between calls, which share it if they overlap: one stream at a time.
static __device__ unsigned row_mail[(kMailGroups - 1) * kMailRows];

struct RowMail {
    int rows, groups;

    // Has an address that a block will write to, or read from, translated in time.
    __device__ void expect(int row) const {
        if (groups > 1) asm volatile("prefetch.global.L2 [%0];" ::"l"(row_mail + row));
    }
    // By the last group, long before it takes: what it will have for `count` rows from `first` on comes to L2, where the others then write.
    __device__ void fetch(int first, int count) const {
        const int lines = (count + 31) / 32;
        for (int i = threadIdx.x; i < lines * (groups - 1); i += blockDim.x) {
            const int row = min(first + i % lines * 32, rows - 1);
            asm volatile("prefetch.global.L2 [%0];" ::"l"(row_mail + i / lines * rows + row));
        }
    }
    // By all groups but the last.
    __device__ void send(int group, int row, float sum) const {
        const unsigned bits = __float_as_uint(sum);
        static_cast<volatile unsigned*>(row_mail)[group * rows + row] = bits == 0 ? 0x80000000u : bits;
    }
    // By the last group: the sum of what the others send, which is asked for all at once.
    __device__ float take(int row) const {
        volatile unsigned* const mail = row_mail + row;
        unsigned bits[kMailGroups - 1];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int g = 0; g < kMailGroups - 1; ++g) bits[g] = g + 1 < groups ? mail[g * rows] : 0x80000000u;
#pragma unroll
            for (int g = 0; g < kMailGroups - 1; ++g) all = all && bits[g] != 0;
        } while (!all);
        float sum = 0;
#pragma unroll
        for (int g = 0; g < kMailGroups - 1; ++g) {
            sum += __uint_as_float(bits[g]);
            if (g + 1 < groups) mail[g * rows] = 0;
        }
        return sum;
    }
};

}  // namespace msbench
