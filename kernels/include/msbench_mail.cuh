// Sums over a whole grid in one launch, in an order that is always the same.
//
// What blocks find goes to the last block by mail: one 64-bit word a block holds the sum and a mark that it is there, so that no
// fence, no counter and no memset is needed. The last block takes each word as soon as it is there and clears it: after a call the
// mailbox is what it was before. The others wait for nothing, so the last block may wait for them.
#pragma once

#include "msbench_reduce.cuh"

namespace msbench {

constexpr int kMostSenders = 1024;

// All zero before and after a kernel. Calls that overlap would share it: one stream at a time.
static __device__ unsigned long long mailbox[kMostSenders];

// Has a block's word at hand when its sum is there, since its address and where that lies come from memory, too: 0.1 us of a cold call (H200).
// By all threads, behind the first loads of numbers; ahead of them it would cost more.
__device__ inline void prepare_mail(int block) {
    if (threadIdx.x == 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(mailbox + block));
}

__device__ inline void send_sum(int block, float sum) {
    constexpr unsigned long long kMark = 1ull << 32;
    *static_cast<volatile unsigned long long*>(mailbox + block) = kMark | __float_as_uint(sum);
}

__device__ inline float take_sum(int block) {
    volatile unsigned long long* const box = mailbox + block;
    unsigned long long mail;
    do mail = *box;
    while (mail == 0);
    *box = 0;
    return __uint_as_float(static_cast<unsigned>(mail));
}

// The sum of what blocks 0 to senders - 1 send, by a warp that has nothing else to do. The first round only looks: then code and mailbox,
// which come from memory, are at hand when the mail is there.
__device__ inline float take_all_sums(int senders) {
    constexpr int kEach = 8;
    const int lane = threadIdx.x % 32;
    int rounds = 2;
    asm volatile("" : "+r"(rounds));  // the compiler is to leave the loop as it is
    float sum = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        sum = 0;
#pragma unroll 1
        for (int first = lane; first - lane < senders; first += 32 * kEach) {
            unsigned long long mail[kEach];
            bool all;
            do {
                all = true;
#pragma unroll
                for (int i = 0; i < kEach; ++i) {
                    const int block = first + 32 * i;
                    mail[i] = block < senders ? *static_cast<volatile unsigned long long*>(mailbox + block) : 1ull << 32;
                }
#pragma unroll
                for (int i = 0; i < kEach; ++i) all = all && mail[i] != 0;
            } while (round > 0 && !all);
#pragma unroll
            for (int i = 0; i < kEach; ++i) {
                sum += __uint_as_float(static_cast<unsigned>(mail[i]));
                if (round > 0 && first + 32 * i < senders) *static_cast<volatile unsigned long long*>(mailbox + first + 32 * i) = 0;
            }
        }
        sum = warp_reduce(sum, Sum());
    }
    return sum;
}

// Calls finish(the sum of `x` over all threads of a one-dimensional grid), in one thread. At most kMostSenders + 1 blocks of
// kThreads; every thread calls this once, and no other kernel that does runs at the same time.
template <int kThreads, typename Finish>
__device__ void grid_sum(float x, Finish finish) {
    const int senders = static_cast<int>(gridDim.x) - 1, block = static_cast<int>(blockIdx.x);
    float sum = block_sum<kThreads>(x);
    if (block < senders) {
        if (threadIdx.x == 0) send_sum(block, sum);
        return;
    }
    if (senders > 0) {
        float taken = threadIdx.x == 0 ? sum : 0.0f;
        for (int i = threadIdx.x; i < senders; i += kThreads) taken += take_sum(i);
        sum = block_sum<kThreads>(taken);
    }
    if (threadIdx.x == 0) finish(sum);
}

}  // namespace msbench
