// Running sums over the lanes of a warp and the threads of a block, and places in a list for those that have something to add.
#pragma once

#include <msbench.cuh>

namespace msbench {

// The sum over this lane and those before it. Called by whole warps.
template <typename T>
__device__ inline T warp_inclusive(T x) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const T before = __shfl_up_sync(0xffffffffu, x, distance);
        if (lane >= distance) x += before;
    }
    return x;
}

// Of all lanes before this one, and not inclusive - x, which would turn ∞ into NaN.
template <typename T>
__device__ inline T warp_before(T inclusive) {
    const T before = __shfl_up_sync(0xffffffffu, inclusive, 1);
    return threadIdx.x % 32 == 0 ? T(0) : before;
}

template <typename T>
struct BlockScan {
    T before;  // the sum over all threads before this one
    T total;   // and over all
};

// For one-dimensional blocks of whole warps; has two barriers.
template <typename T>
__device__ inline BlockScan<T> block_scan(T x) {
    __shared__ T of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const T inclusive = warp_inclusive(x);
    __syncthreads();  // of_warp may still be read by an earlier call
    if (lane == 31) of_warp[warp] = inclusive;
    __syncthreads();
    const T sums = warp_inclusive(lane < warps ? of_warp[lane] : T(0));
    const T earlier = __shfl_sync(0xffffffffu, sums, (warp + 31) % 32);
    return {(warp == 0 ? T(0) : earlier) + warp_before(inclusive), __shfl_sync(0xffffffffu, sums, 31)};
}

// Appends `item` to a list in shared memory where `wanted`; what finds no room is only counted. Called by whole warps.
template <typename T>
__device__ inline void append(bool wanted, T item, T* list, int* count, int room) {
    const unsigned who = __ballot_sync(0xffffffffu, wanted);
    if (who == 0) return;
    const int lane = threadIdx.x % 32;
    int at = 0;
    if (lane == 0) at = atomicAdd(count, __popc(who));
    at = __shfl_sync(0xffffffffu, at, 0) + __popc(who & ((1u << lane) - 1));
    if (wanted && at < room) list[at] = item;
}

}  // namespace msbench
