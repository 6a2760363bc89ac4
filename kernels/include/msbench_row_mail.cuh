// Sums of rows from several groups of blocks, by mail to the last group (msbench_mailed_rows.cuh).
#pragma once

#include "msbench_mailed_rows.cuh"

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
    __device__ void send(int group, int row, float sum) const { send_row(row_mail, group * rows + row, sum); }
    // By the last group: the sum of what the others send.
    __device__ float take(int row) const { return take_row<kMailGroups>(row_mail, row, rows, groups); }
};

}  // namespace msbench
