// A sorted bin of rows (msbench_sorted_bins.cuh) times a block of columns of X, by a block: rows of X come from L2.
//
// A group of 16 lanes has an equal share of the bin's entries, with kBinFlight rows of X under way that may belong to any rows of A;
// sums of rows that several groups have a part of meet in shared memory.
#pragma once

#include "msbench_sorted_bins.cuh"
#include "msbench_spmm_gather.cuh"

namespace msbench {

constexpr int kBinThreads = 512, kBinBlocks = 2, kMostInBin = 9216, kBinShift = 8;  // entries, and log2 of rows at most
constexpr int kBinGroup = 16, kBinGroups = kBinThreads / kBinGroup, kBinFlight = 6;
constexpr int kBinColumns = kBinGroup * kPiece;

struct BinScratch {
    uint2 items[kMostInBin + kBinFlight];
    float heads[kBinGroups][kBinColumns];  // of each group: what it has of the row that an earlier one began
    int ends[kBinThreads + 1];
};

// Multiplies a sorted bin by a block of columns, of which `x` is this lane's in row 0 of X. Calls store(row, sums).
template <typename Store>
__device__ __forceinline__ void multiply_bin(BinScratch& s, int count, const scalar_t* x, bool inside, int64_t K, Store store) {
    const int group = threadIdx.x / kBinGroup, lane = threadIdx.x % kBinGroup;
    const int from = count * group / kBinGroups, to = count * (group + 1) / kBinGroups;
    float sum[kPiece] = {};
    int row = from < to ? int(s.items[from].x >> kColumnBits) : -1;
    bool joins = row >= 0 && s.ends[row] < from;  // this row is an earlier group's
    const auto leave = [&] {
        if (!joins) return store(row, sum);
#pragma unroll
        for (int k = 0; k < kPiece; ++k) s.heads[group][lane * kPiece + k] = sum[k];
        joins = false;
    };
    for (int e = from; e < to; e += kBinFlight) {
        Part<kPiece> part[kBinFlight];
#pragma unroll
        for (int u = 0; u < kBinFlight; ++u) {
            if (e + u < to && inside) part[u].load(x + (s.items[e + u].x & kColumnMask) * unsigned(K));
        }
#pragma unroll
        for (int u = 0; u < kBinFlight; ++u) {
            if (e + u >= to) break;
            const uint2 item = s.items[e + u];
            const int next = item.x >> kColumnBits;
            if (next != row) {
                leave();
                row = next;
#pragma unroll
                for (int k = 0; k < kPiece; ++k) sum[k] = 0;
            }
            if (inside) part[u].add_to(sum, __uint_as_float(item.y));
        }
    }
    const bool goes_on = row >= 0 && !joins && s.ends[row + 1] > to;
    if (row >= 0 && !goes_on) leave();
    __syncthreads();
    if (!goes_on) return;
    for (int other = group + 1; count * other / kBinGroups < s.ends[row + 1]; ++other) {
        if (count * other / kBinGroups == count * (other + 1) / kBinGroups) continue;
#pragma unroll
        for (int k = 0; k < kPiece; ++k) sum[k] += s.heads[other][lane * kPiece + k];
    }
    store(row, sum);
}

}  // namespace msbench
