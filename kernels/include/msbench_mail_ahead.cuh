// What all blocks before a block have found, added up: running sums over a grid in one launch, in an order that is always the same.
//
// A block sends its sum to every block behind it by mail, as msbench_mail.cuh does: a 64-bit word holds the sum and a mark that it is there,
// so no fence, no counter and no memset is needed, and one trip through L2 is all that is waited for. Who takes a word clears it: after
// a call all are what they were before. Blocks wait only for those before them, which have started.
#pragma once

#include "msbench.cuh"

namespace msbench {

constexpr int kMostInLine = 128;

// Row b is for block b, a word for each block before it. All zero before and after a kernel: one stream at a time.
static __device__ unsigned long long mail_rows[kMostInLine * kMostInLine];

// Has the words that the block will read fetched from memory. By all threads, early.
__device__ inline void expect_sums() {
    constexpr int kLine = 128 / sizeof(unsigned long long);
    const int first = static_cast<int>(threadIdx.x) * kLine;
    if (first <= static_cast<int>(blockIdx.x)) asm volatile("prefetch.global.L2 [%0];" ::"l"(mail_rows + blockIdx.x * kMostInLine + first));
}

// The sum of `sum` over all blocks before this one, in every thread; `sum` is the same in all of the block's threads. Blocks have
// kMostInLine threads at least, and a grid as many blocks at most; every thread calls this once.
__device__ inline float sum_of_blocks_before(float sum) {
    constexpr int kWarps = kMostInLine / 32;
    __shared__ float part[kWarps];
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x), t = static_cast<int>(threadIdx.x);
    const auto word = [](int to, int from) { return static_cast<volatile unsigned long long*>(mail_rows) + to * kMostInLine + from; };
    if (block + 1 + t < blocks) *word(block + 1 + t, block) = 1ull << 32 | __float_as_uint(sum);
    if (t < kMostInLine) {
        float taken = 0;
        if (t < block) {
            unsigned long long mail;
            do mail = *word(block, t);
            while (mail == 0);
            *word(block, t) = 0;
            taken = __uint_as_float(static_cast<unsigned>(mail));
        }
        taken = warp_reduce(taken, Sum());
        if (t % 32 == 0) part[t / 32] = taken;
    }
    __syncthreads();
    return (part[0] + part[1]) + (part[2] + part[3]);
}

}  // namespace msbench
