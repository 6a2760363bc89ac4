// Which of a block's items begin a row: a bit an item, in shared memory.
#pragma once

#include "msbench.cuh"

namespace msbench {

template <int kBits>
struct HeadBits {
    static constexpr int kWords = kBits / 32;
    unsigned word[kWords];

    __device__ bool is_head(int i) const { return word[i / 32] >> i % 32 & 1; }
    __device__ void mark(int i) { atomicOr(word + i / 32, 1u << i % 32); }
    __device__ int next(int i) const {  // the first one from i on; kBits if there is none
        for (int w = i / 32; w < kWords; ++w) {
            const unsigned bits = word[w] & (w == i / 32 ? ~0u << i % 32 : ~0u);
            if (bits) return 32 * w + __ffs(bits) - 1;
        }
        return kBits;
    }
    __device__ int last(int i) const {  // the last one up to i; -1 if there is none
        for (int w = i / 32; w >= 0; --w) {
            const unsigned bits = word[w] & (w == i / 32 ? ~0u >> (31 - i % 32) : ~0u);
            if (bits) return 32 * w + 31 - __clz(bits);
        }
        return -1;
    }
    __device__ int count(int i) const {  // in 1 ... i
        int sum = -int(word[0] & 1);
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
            if (w <= i / 32) sum += __popc(word[w] & (w == i / 32 ? ~0u >> (31 - i % 32) : ~0u));
        }
        return sum;
    }
};

}  // namespace msbench
