// How blocks share bins of products (msbench_product_bins.cuh) when some have many more than others: of a skewed matrix one bin may have a
// third. Bins of up to kWhole pieces are their own blocks', kSplit each. Those that have more are cut into pieces of equal size: their own
// blocks take the first ones, and all blocks that are done with their bins take others. Every piece's sums are added to sums in memory, which
// the last one to arrive reads.
//
// An even matrix pays for it one trip to L2 in each block, for the bins' totals, and for sums that nobody needed to be cleared.
//
// Measured (H200, 2026-11-26, own program, us, fp32 and bf16, 2²⁵ products of a matrix whose rows and columns are skewed): spmv_csc 5895 and 5890
// by two blocks a bin, 639 and 648 when pieces were a 256th of all, eight lanes had a tile's part, and one block added up what others had
// stored; with twice as many pieces 579 and 596. spmv_coo 5820, 698. Filling bins takes 220 and 260 of these. Even matrices 268 and 271,
// 425 and 428. Sums of repeated rows without a first try took 723 and 707, with atomic additions alone 1213.
#pragma once

#include "msbench_add_quad.cuh"
#include "msbench_product_bins.cuh"

namespace msbench {

// How many blocks have read the totals, how many pieces have been taken, and of each bin how many have been left. Zero between calls, which
// share them if they overlap: one stream at a time.
static __device__ unsigned totals_read, pieces_taken, pieces_left[kProductBins];

// In shared memory. Its methods are called by all threads of a block.
struct BinShares {
    int first[kProductBins + 1];  // piece of each bin, of those that are cut
    int word;

    // Whether any bin is cut. Begins behind a barrier, and ends with one.
    template <typename Bins>
    __device__ bool read(const Bins& bins) {
        int pieces = 0;
        if (threadIdx.x < kProductBins) {
            const int total = __ldcg(bin_totals + threadIdx.x);
            if (total > Bins::kWhole * bins.piece) pieces = (total + bins.piece - 1) / bins.piece;
            first[threadIdx.x + 1] = pieces;
        }
        const bool any = __syncthreads_or(pieces);
        if (threadIdx.x == 0) {
            __threadfence();
            if (atomicInc(&totals_read, gridDim.x - 1) == gridDim.x - 1) {  // back to zero with the last one
                for (int i = 0; i < kProductBins; ++i) bin_totals[i] = 0;
            }
        }
        if (!any) return false;
        if (threadIdx.x < 32) {
            constexpr int kOwn = kProductBins / 32;
            int* const own = first + 1 + threadIdx.x * kOwn;
            int sum = 0;
            for (int i = 0; i < kOwn; ++i) sum += own[i];
            int before = warp_inclusive(sum) - sum;
            for (int i = 0; i < kOwn; ++i) own[i] = before += own[i];
            if (threadIdx.x == 0) first[0] = 0;
        }
        __syncthreads();
        return true;
    }
    __device__ int pieces(int bin) const { return first[bin + 1] - first[bin]; }
    // The next piece that nobody has taken, in `bin` and `piece`: false if there is none, after which a block takes no more.
    __device__ bool take(int& bin, int& piece, int split) {
        const int all = first[kProductBins];
        do {
            __syncthreads();
            if (threadIdx.x == 0) word = int(atomicInc(&pieces_taken, all + gridDim.x - 1));
            __syncthreads();
            if (word >= all) return false;
            int low = 0, high = kProductBins;  // first[low] <= word < first[high]
            while (high - low > 1) {
                const int middle = (low + high) / 2;
                (first[middle] <= word ? low : high) = middle;
            }
            bin = low, piece = word - first[low];
        } while (piece < split);  // those are the bin's own blocks'
        return true;
    }
    // Adds a piece's sums to those in memory, and calls finish(row of the bin, sum) if it was the last.
    template <typename Bins, typename Finish>
    __device__ void leave(const Bins& bins, int bin, const float* sums, Finish finish) {
        const int quads = bins.height() / 4, count = pieces(bin);
        float4* const all = bins.sums + int64_t(bin) * quads;
        for (int i = threadIdx.x; i < quads; i += blockDim.x) AddQuad()(all + i, reinterpret_cast<const float4*>(sums)[i]);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            word = atomicInc(pieces_left + bin, count - 1) == unsigned(count - 1);  // back to zero with the last one
            __threadfence();
        }
        __syncthreads();
        if (!word) return;
        for (int i = threadIdx.x; i < quads; i += blockDim.x) {
            const float4 sum = __ldcg(all + i);
            finish(4 * i, sum.x), finish(4 * i + 1, sum.y), finish(4 * i + 2, sum.z), finish(4 * i + 3, sum.w);
        }
    }
};

}  // namespace msbench
