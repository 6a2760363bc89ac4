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
struct alignas(16) List {
    static_assert(kWindow % 32 == 0 && kWindow <= 256, "a key is a byte");
    unsigned short counts[kPatterns];
    unsigned counted[kRows][kWindow / 32];  // by each row, a bit a key
    unsigned char keys[kWindow + 3 * kPatterns];
};

// How many lists there are for S rows of a batch: [row / kRows][key / kWindow].
template <int kWindow>
int64_t lists_of(int64_t S) {
    return ceil_div(S, kRows) * ceil_div(S, kWindow);
}

// A warp a list. An entry counts if its key is not behind its row and mask[b][row][key] is not above 0.5. After a ballot a row and 32 keys all lanes
// know any pattern's keys; where patterns begin is a scan over as many lanes. Lists of windows that lie behind all of their rows are not written.
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
    unsigned rows[kWords][kRows];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            rows[w][r] = __ballot_sync(0xffffffffu, pattern[w] >> r & 1);
            if (lane == 0) list.counted[r][w] = rows[w][r];
        }
    }
    const auto of_pattern = [&](int w, int p) {
        unsigned all = 0xffffffffu;
#pragma unroll
        for (int r = 0; r < kRows; ++r) all &= p >> r & 1 ? rows[w][r] : ~rows[w][r];
        return all;
    };
    // A lane keeps count of the pattern of its number.
    const int own = lane % kPatterns;
    int count_of_own = 0, any = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
        const unsigned found = of_pattern(w, own);
        count_of_own += __popc(found);
        if (found) any = w * 32 + __ffs(found) - 1;
    }
    const int room = lane > 0 && lane < kPatterns ? (count_of_own + 3) / 4 * 4 : 0;
    int end = room;
#pragma unroll
    for (int step = 1; step < kPatterns; step *= 2) {
        const int before = __shfl_down_sync(0xffffffffu, end, step);
        if (lane + step < kPatterns) end += before;
    }
    int next = end - room;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
        const int at = __shfl_sync(0xffffffffu, next, pattern[w]) + __popc(of_pattern(w, pattern[w]) & ((1u << lane) - 1));
        if (pattern[w]) list.keys[at] = static_cast<unsigned char>(w * 32 + lane);
        next += __popc(of_pattern(w, own));
    }
    if (lane > 0 && lane < kPatterns) {
        list.counts[lane] = static_cast<unsigned short>(count_of_own);
        for (; next < end; ++next) list.keys[next] = static_cast<unsigned char>(any);
    }
}

}  // namespace msbench::key_patterns
