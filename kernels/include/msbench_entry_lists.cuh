// A block's products of entries in no order, brought together in shared memory by who has their rows in the end.
//
// For each of up to 16 owners of as many rows each there is a list of (row, product), or, where that would be longer, the sums of all of its rows:
// so an owner's area is never longer than those, and full rows, whose additions one by one would have to wait for each other, are added up here.
#pragma once

#include "msbench_add_by_row.cuh"
#include "msbench_divisor.cuh"

namespace msbench {

struct EntryLists {
    static constexpr int kOwners = 16;
    static constexpr int kParts = 8;  // counters of an owner, which different lanes use
    static constexpr int kTries = 2;  // of an addition, before lanes add up by row
    static constexpr int kHead = kOwners * kParts + 4;

    int each, chunk;  // rows of an owner, a multiple of four, and entries of a block, a multiple of 32
    Divisor by_each;

    EntryLists(int rows_each, int64_t entries_each) : each(rows_each), chunk(int(ceil_div(entries_each, 32) * 32)), by_each(uint32_t(rows_each)) {}

    // Words of shared memory, from a multiple of 16 bytes on; areas are for pairs, two in 16 bytes.
    size_t words() const { return kHead + 2 * size_t(chunk) + 4 * kOwners; }
    __device__ int2* areas(int* shared) const { return reinterpret_cast<int2*>(shared + kHead); }
    __device__ int& any_sums(int* shared) const { return shared[kOwners * kParts]; }

    // What an owner gets: where that begins, in pairs, its bytes, and how many entries there are, -1 for sums.
    struct Area {
        int from, bytes, count;
    };
    struct Place {
        int part, rank;
    };

    // By all threads of a block, 128 at least, which meet before they rank.
    __device__ void clear(int* shared) const {
        if (int(threadIdx.x) < kOwners * kParts) shared[threadIdx.x] = 0;
    }
    __device__ Place rank(int* shared, int row) const {
        const int part = int(by_each.quotient(uint32_t(row))) * kParts + int(threadIdx.x) % kParts;
        return {part, atomicAdd(shared + part, 1)};
    }
    // By all threads, between ranking and placing: in lane 2o of the first warp, owner o's area, for which `tell(o, area)` is called at once.
    template <typename Tell>
    __device__ Area layout(int* shared, Tell tell) const {
        Area area = {0, 0, 0};
        __syncthreads();
        if (threadIdx.x < 32) {
            const int lane = threadIdx.x;
            int4* const four = reinterpret_cast<int4*>(shared) + lane;
            const int4 n = *four;
            const int own = n.x + n.y + n.z + n.w, other = __shfl_xor_sync(~0u, own, 1), all = own + other;
            const bool sums = 2 * all > each;
            const int places = sums ? each / 2 : (all + 1) / 2 * 2;
            int end = lane % 2 == 0 ? places : 0;
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const int before = __shfl_up_sync(~0u, end, d);
                if (lane >= d) end += before;
            }
            area = {end - places, places * 8, sums ? -1 : all};
            const int mark = -1 - area.from, first = area.from + (lane % 2 == 0 ? 0 : other);
            *four = sums ? int4{mark, mark, mark, mark} : int4{first, first + n.x, first + n.x + n.y, first + n.x + n.y + n.z};
            const bool any = __any_sync(~0u, sums);
            if (lane == 0) any_sums(shared) = any;
            if (lane % 2 == 0) tell(lane / 2, area);
        }
        __syncthreads();
        if (any_sums(shared) == 0) return area;
#pragma unroll 1
        for (int owner = 0; owner < kOwners; ++owner) {
            const int first = shared[owner * kParts];
            if (first >= 0) continue;
            float* const sums = reinterpret_cast<float*>(areas(shared) + (-1 - first));
            for (int i = threadIdx.x; i < each; i += blockDim.x) sums[i] = 0;
        }
        __syncthreads();
        return area;
    }
    // Called by whole warps; lanes with a row below 0 have nothing.
    __device__ void put(int* shared, const Place& place, int row, float product) const {
        int sum_row = -1;
        if (row >= 0) {
            const int first = shared[place.part], own = row - place.part / kParts * each;
            if (first >= 0) areas(shared)[first + place.rank] = int2{own, __float_as_int(product)};
            else sum_row = 2 * (-1 - first) + own;
        }
        if (any_sums(shared) != 0) add_to_shared<kTries>(reinterpret_cast<float*>(areas(shared)), sum_row, product);
    }
};

}  // namespace msbench
