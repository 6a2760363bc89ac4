// Shuffles, votes, matches, reductions, cooperative groups.
#include "testing.cuh"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;
constexpr unsigned full = 0xffffffffu;

__global__ void shuffles(int* out) {
    int l = threadIdx.x % 32, *o = out + threadIdx.x * 8;
    o[0] = __shfl_sync(full, l * 10, 3);
    o[1] = __shfl_sync(full, l, 35);
    o[2] = __shfl_up_sync(full, l, 2);
    o[3] = __shfl_down_sync(full, l, 5);
    o[4] = __shfl_xor_sync(full, l, 9);
    o[5] = __shfl_sync(full, l, 1, 8);
    o[6] = __shfl_up_sync(full, l, 1, 4);
    o[7] = __shfl_down_sync(full, l, 3, 16);
}
TEST(shuffle_sources) {
    Device<int> out(64 * 8);
    shuffles<<<1, 64>>>(out);
    EXPECT_OK();
    for (int i = 0; i < 64; ++i) {
        int l = i % 32, *o = out + i * 8;
        EXPECT_EQ(o[0], 30);
        EXPECT_EQ(o[1], 3);
        EXPECT_EQ(o[2], l < 2 ? l : l - 2);
        EXPECT_EQ(o[3], l > 26 ? l : l + 5);
        EXPECT_EQ(o[4], l ^ 9);
        EXPECT_EQ(o[5], l / 8 * 8 + 1);
        EXPECT_EQ(o[6], l % 4 == 0 ? l : l - 1);
        EXPECT_EQ(o[7], l % 16 > 12 ? l : l + 3);
    }
}

template <typename T>
__global__ void shuffle_type(T* out) {
    T mine = static_cast<T>(threadIdx.x + 0.5);
    out[threadIdx.x] = __shfl_xor_sync(full, mine, 1);
}
template <typename T>
bool shuffles_as(T) {
    Device<T> out(32);
    shuffle_type<T><<<1, 32>>>(out);
    for (int i = 0; i < 32; ++i)
        if (out[i] != static_cast<T>((i ^ 1) + 0.5)) return false;
    return true;
}
TEST(shuffle_types) {
    EXPECT(shuffles_as(int()) && shuffles_as(unsigned()) && shuffles_as(float()));
    EXPECT(shuffles_as(double()) && shuffles_as(0ll) && shuffles_as(0ull) && shuffles_as(0l));
}

__global__ void warp_votes(unsigned* out) {
    unsigned l = threadIdx.x, *o = out + l * 10;
    o[0] = __ballot_sync(full, l % 3 == 0);
    o[1] = __any_sync(full, l == 7) != 0;
    o[2] = __any_sync(full, l == 32) != 0;
    o[3] = __all_sync(full, l < 32) != 0;
    o[4] = __all_sync(full, l < 31) != 0;
    o[5] = __match_any_sync(full, l / 4);
    int equal = -1;
    o[6] = __match_all_sync(full, 5, &equal) == full && equal;
    o[7] = __match_all_sync(full, l, &equal) == 0 && !equal;
    o[8] = l < 8 ? __ballot_sync(0xffu, 1) : __ballot_sync(0xffffff00u, l % 2);
    o[9] = l % 2 ? __activemask() : 0;
}
TEST(votes_and_matches) {
    Device<unsigned> out(320);
    warp_votes<<<1, 32>>>(out);
    EXPECT_OK();
    for (unsigned l = 0; l < 32; ++l) {
        unsigned* o = out + l * 10;
        EXPECT_EQ(o[0], 0x49249249u);
        EXPECT(o[1] && !o[2] && o[3] && !o[4]);
        EXPECT_EQ(o[5], 0xfu << l / 4 * 4);
        EXPECT(o[6] && o[7]);
        EXPECT_EQ(o[8], l < 8 ? 0xffu : 0xaaaaaa00u);
        EXPECT_EQ(o[9], l % 2 ? 0xaaaaaaaau : 0u);
    }
}

__global__ void reductions(int* out) {
    int l = threadIdx.x, *o = out + l * 8;
    o[0] = __reduce_add_sync(full, l - 40);
    o[1] = __reduce_min_sync(full, 5 - l);
    o[2] = __reduce_max_sync(full, l * (l & 1));
    o[3] = __reduce_and_sync(full, 0xf0u | l);
    o[4] = __reduce_or_sync(full, 1u << (l % 5));
    o[5] = __reduce_xor_sync(full, unsigned(l));
    o[6] = l < 16 ? __reduce_add_sync(0xffffu, 1u) : __reduce_max_sync(0xffff0000u, unsigned(l));
    o[7] = __reduce_max_sync(full, 0x80000000u + l) == 0x8000001fu;
}
TEST(warp_reductions) {
    Device<int> out(256);
    reductions<<<1, 32>>>(out);
    for (int l = 0; l < 32; ++l) {
        int* o = out + l * 8;
        EXPECT_EQ(o[0], 496 - 40 * 32);
        EXPECT_EQ(o[1], -26);
        EXPECT_EQ(o[2], 31);
        EXPECT_EQ(o[3], 0xf0);
        EXPECT_EQ(o[4], 31);
        EXPECT_EQ(o[5], 0);
        EXPECT_EQ(o[6], l < 16 ? 16 : 31);
        EXPECT(o[7]);
    }
}

__global__ void partial_warp(int* out) {
    int sum = threadIdx.x;
    for (int d = 16; d > 0; d /= 2) {
        int other = __shfl_down_sync(full, sum, d);
        if (threadIdx.x + d < blockDim.x) sum += other;
    }
    if (threadIdx.x == 0) *out = sum;
}
TEST(a_block_that_does_not_fill_its_warp) {
    Device<int> out(1);
    partial_warp<<<1, 21>>>(out);
    EXPECT_OK();
    EXPECT_EQ(out[0], 210);
}

__global__ void lanes_that_left(int* out) {
    if (threadIdx.x % 4 == 3) return;
    out[threadIdx.x] = __reduce_add_sync(full, 1u);
}
TEST(lanes_that_left_are_not_waited_for) {
    Device<int> out(32, -1);
    lanes_that_left<<<1, 32>>>(out);
    EXPECT_OK();
    EXPECT_EQ(out[0], 24);
    EXPECT_EQ(out[3], -1);
}

// ------------------------------------------------------------------ cooperative groups

__global__ void tiles(int* out) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto tile = cg::tiled_partition<8>(block);
    auto nested = cg::tiled_partition<4>(tile);
    auto runtime = cg::tiled_partition(block, 16);
    int r = block.thread_rank(), *o = out + r * 12;
    o[0] = cg::reduce(tile, r, cg::plus<int>());
    o[1] = cg::reduce(warp, r, cg::greater<int>());
    o[2] = tile.meta_group_rank() * 100 + tile.thread_rank();
    o[3] = tile.shfl(r, 5);
    o[4] = tile.shfl_down(r, 2);
    o[5] = nested.shfl_xor(r, 3);
    o[6] = tile.ballot(r % 2);
    o[7] = tile.any(r == 9) * 2 + tile.all(r < 8);
    o[8] = cg::inclusive_scan(tile, 1) * 100 + cg::exclusive_scan(tile, r, cg::plus<int>());
    o[9] = runtime.shfl(r, 15) + 1000 * runtime.size();
    o[10] = tile.shfl_up(r, 3);
    o[11] = block.num_threads() + block.group_index().x;
    block.sync();
    tile.sync();
}
TEST(cooperative_tiles) {
    Device<int> out(64 * 12);
    tiles<<<1, 64>>>(out);
    EXPECT_OK();
    for (int r = 0; r < 64; ++r) {
        int *o = out + r * 12, first = r / 8 * 8, t = r % 8;
        EXPECT_EQ(o[0], first * 8 + 28);
        EXPECT_EQ(o[1], r / 32 * 32 + 31);
        EXPECT_EQ(o[2], r / 8 * 100 + t);
        EXPECT_EQ(o[3], first + 5);
        EXPECT_EQ(o[4], t < 6 ? r + 2 : r);
        EXPECT_EQ(o[5], r ^ 3);
        EXPECT_EQ(o[6], 0xaa);
        EXPECT_EQ(o[7], (first == 8) * 2 + (first == 0));
        EXPECT_EQ(o[8], (t + 1) * 100 + first * t + t * (t - 1) / 2);
        EXPECT_EQ(o[9], r / 16 * 16 + 15 + 16000);
        EXPECT_EQ(o[10], t < 3 ? r : r - 3);
        EXPECT_EQ(o[11], 64);
    }
}

__global__ void coalesced(int* out) {
    int i = threadIdx.x;
    if (i % 3 == 1) {
        auto active = cg::coalesced_threads();
        auto halves = cg::labeled_partition(active, i < 16);
        out[i] = active.thread_rank() * 1000 + active.size() * 10 + (active.shfl(i, 2) == 7) + 100000 * halves.size();
    }
}
TEST(coalesced_groups) {
    Device<int> out(32, -1);
    coalesced<<<1, 32>>>(out);
    EXPECT_OK();
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 3 == 1 ? i / 3 * 1000 + 111 + (i < 16 ? 5 : 6) * 100000 - 10 + 10 : -1);
}

__global__ void whole_grid(int* counter, int* out, int rounds) {
    auto grid = cg::this_grid();
    for (int k = 1; k <= rounds; ++k) {
        atomicAdd(counter, 1);
        grid.sync();
        if (*counter != k * int(grid.size())) atomicAdd(out, 1);
        grid.sync();
    }
    if (grid.thread_rank() == grid.size() - 1) out[1] = grid.is_valid() * 1000 + grid.num_blocks();
}
TEST(cooperative_launch) {
    Device<int> counter(1), out(2);
    int *c = counter, *o = out, rounds = 5;
    void* arguments[] = {&c, &o, &rounds};
    EXPECT_EQ(int(cudaLaunchCooperativeKernel((void*)whole_grid, dim3(24), dim3(64), arguments, 0, nullptr)), 0);
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[1], 1024);
}
