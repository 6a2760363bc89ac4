// Sums by mail from groups of blocks to the last: a word is its own mark, as zero stands for none and a sum of 0 travels as -0. Who takes a word
// clears it, so that after a call all are what they were before. Blocks begin in the order of their numbers, and who waits has higher ones
// than those it waits for. Word `row` of group g is number g·rows + row.
#pragma once

#include "msbench.cuh"

namespace msbench {

__device__ inline void send_row(unsigned* words, int at, float sum) {
    const unsigned bits = __float_as_uint(sum);
    static_cast<volatile unsigned*>(words)[at] = bits == 0 ? 0x80000000u : bits;
}

// What all groups but the last, of up to kMost, have sent for a row, which is asked for all at once.
template <int kMost>
__device__ float take_row(unsigned* words, int row, int rows, int groups) {
    volatile unsigned* const mail = words + row;
    unsigned bits[kMost - 1];
    bool all;
    do {
        all = true;
#pragma unroll
        for (int g = 0; g < kMost - 1; ++g) bits[g] = g + 1 < groups ? mail[g * rows] : 0x80000000u;
#pragma unroll
        for (int g = 0; g < kMost - 1; ++g) all = all && bits[g] != 0;
    } while (!all);
    float sum = 0;
#pragma unroll
    for (int g = 0; g < kMost - 1; ++g) {
        sum += __uint_as_float(bits[g]);
        if (g + 1 < groups) mail[g * rows] = 0;
    }
    return sum;
}

}  // namespace msbench
