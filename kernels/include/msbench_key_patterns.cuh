// Entries of a mask that count, for rows by fours: each window of keys sorted by which of the four rows count them.
//
// A mask is the same for all heads and channels, so that it pays to sort keys once. Threads that go through a pattern's keys know at compile time
// which rows to add to: masked entries cost nothing, and there is neither a predicate nor a branch an entry.
#pragma once

#include "msbench.cuh"

namespace msbench::key_patterns {

constexpr int kRows = 4, kPatterns = 1 << kRows;  // bit r of a pattern: whether row r counts the key
constexpr int kSortThreads = 256;

// A window's keys, from the pattern of all rows down to pattern 1, each pattern's from a multiple of four on; what that leaves empty repeats a key
// of the pattern. Keys that no row counts are left out.
template <int kWindow>
struct List {
    static_assert(kWindow % 32 == 0 && kWindow <= 256, "a key is a byte");
    unsigned short counts[kPatterns];
    alignas(4) unsigned char keys[kWindow + 3 * kPatterns];
};

// How many lists there are for S rows of a batch: [row / kRows][key / kWindow].
template <int kWindow>
int64_t lists_of(int64_t S) {
    return ceil_div(S, kRows) * ceil_div(S, kWindow);
}

// A warp a list. An entry counts if its key is not behind its row and mask[b][row][key] is not above 0.5. Lists of windows that lie behind all of
// their rows are not written.
template <int kWindow>
__global__ void __launch_bounds__(kSortThreads) sort_keys(const float* mask, List<kWindow>* lists, int S, int count) {
    constexpr int kWords = kWindow / 32;
    const int index = (blockIdx.x * kSortThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
    cudaTriggerProgrammaticLaunchCompletion();
    const int windows = (S + kWindow - 1) / kWindow, fours = (S + kRows - 1) / kRows;
    const int first_row = index / windows % fours * kRows, first_key = index % windows * kWindow;
    if (index >= count || first_key >= first_row + kRows) return;
    const float* of_batch = mask + int64_t(index / windows / fours) * S * S;
    float masked[kWords][kRows];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            masked[w][r] = of_batch[int64_t(min(first_row + r, S - 1)) * S + min(first_key + w * 32 + lane, S - 1)];
        }
    }
    int pattern[kWords] = {};
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int row = first_row + r;
            if (row < S && first_key + w * 32 + lane <= row && !(masked[w][r] > 0.5f)) pattern[w] |= 1 << r;
        }
    }
    List<kWindow>& list = lists[index];
    int start = 0;
    for (int p = kPatterns - 1; p > 0; --p) {
        int end = start, any = 0;
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
            const unsigned found = __ballot_sync(0xffffffffu, pattern[w] == p);
            if (pattern[w] == p) list.keys[end + __popc(found & ((1u << lane) - 1))] = static_cast<unsigned char>(w * 32 + lane);
            end += __popc(found);
            if (found) any = w * 32 + __ffs(found) - 1;
        }
        if (lane == 0) list.counts[p] = static_cast<unsigned short>(end - start);
        start = (end + 3) / 4 * 4;
        if (end + lane < start) list.keys[end + lane] = static_cast<unsigned char>(any);
    }
}

}  // namespace msbench::key_patterns
