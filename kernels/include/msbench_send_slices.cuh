// Slices of a tile's sums, each in the registers of a cluster's block, added up as in msbench_few_tiles.cuh: a warp sends its own to the block that
// adds up its rows, where they have room behind the stages.
//
// A plan P says how many slices there are (kSlices), of how many warps a block adds up the rows (kOwned), how many times four sums a lane has
// (kQuads), how many bytes a warp's are (kPartBytes) and the stages (kStageBytes). The whole block has called few_tiles::start_in_cluster(); warps
// that have no sums call follow_slices().
#pragma once

#include "msbench_few_tiles.cuh"

namespace msbench {

// Bytes of shared memory behind the stages.
template <class P>
constexpr int sent_bytes() {
    return (P::kSlices - 1) * P::kOwned * P::kPartBytes;
}

template <class P>
__device__ __forceinline__ void follow_slices() {
    if constexpr (P::kSlices > 1) few_tiles::wait_for_cluster(), few_tiles::arrive_in_cluster();
}

// Adds up all slices of the sums of warp `warp`, in a fixed order. False: its rows are another block's.
template <class P>
__device__ __forceinline__ bool add_slices(float (&sums)[4 * P::kQuads], unsigned char* stages, int slice, int warp, int lane) {
    if constexpr (P::kSlices > 1) {
        const int owner = warp / P::kOwned;
        few_tiles::wait_for_cluster();  // all its blocks have started
        if (owner != slice) {
            const int part = (slice - (slice > owner)) * P::kOwned + warp % P::kOwned;
            const SharedAddress to = shared_address(stages) + P::kStageBytes + part * P::kPartBytes + lane * 16;
#pragma unroll
            for (int j = 0; j < P::kQuads; ++j) {
                few_tiles::send(to + j * 512, owner, sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
            }
        }
        few_tiles::arrive_in_cluster();
        if (owner != slice) return false;
        few_tiles::wait_for_cluster();
#pragma unroll
        for (int s = 0; s < P::kSlices - 1; ++s) {
            const float4* from =
                reinterpret_cast<const float4*>(stages + P::kStageBytes + (s * P::kOwned + warp % P::kOwned) * P::kPartBytes) + lane;
#pragma unroll
            for (int j = 0; j < P::kQuads; ++j) {
                const float4 x = from[j * 32];
                sums[4 * j] += x.x, sums[4 * j + 1] += x.y, sums[4 * j + 2] += x.z, sums[4 * j + 3] += x.w;
            }
        }
    }
    return true;
}

}  // namespace msbench
