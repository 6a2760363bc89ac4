// Asynchronous copies: cuda::pipeline of a thread and of a block, cuda::barrier, and those of cooperative groups.
#include "testing.cuh"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;

// ------------------------------------------------------------------ of a thread

__global__ void early_and_late(const int* from, int* out) {
    __shared__ int tile[32];
    tile[threadIdx.x] = -1;
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&tile[threadIdx.x], from + threadIdx.x, sizeof(int), pipe);
    pipe.producer_commit();
    out[threadIdx.x] = tile[threadIdx.x];
    pipe.consumer_wait();
    out[32 + threadIdx.x] = tile[threadIdx.x];
    pipe.consumer_release();
}

TEST(a_copy_is_there_when_it_was_waited_for) {
    Device<int> from(32), out(64);
    for (int i = 0; i < 32; ++i) from[i] = 10 + i;
    early_and_late<<<1, 32>>>(from, out);
    EXPECT_OK();
    for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(out[i], -1);
        EXPECT_EQ(out[32 + i], 10 + i);
    }
}

__global__ void doubled(const float4* from, float4* to, int n) {
    constexpr int kStages = 3;
    __shared__ float4 tile[kStages][64];
    auto pipe = cuda::make_pipeline();
    const auto fetch = [&](int i) {
        pipe.producer_acquire();
        const cuda::aligned_size_t<16> bytes(sizeof(float4));
        if (i < n) cuda::memcpy_async(&tile[i / 64 % kStages][threadIdx.x], from + i, bytes, pipe);
        pipe.producer_commit();
    };
    for (int stage = 0; stage < kStages - 1; ++stage) fetch(threadIdx.x + 64 * stage);
    for (int i = threadIdx.x; i < n; i += 64) {
        fetch(i + 64 * (kStages - 1));
        cuda::pipeline_consumer_wait_prior<kStages - 1>(pipe);
        const float4 v = tile[i / 64 % kStages][threadIdx.x];
        to[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
        pipe.consumer_release();
    }
}

TEST(a_threads_pipeline_has_the_last_stages_under_way) {
    Device<float4> from(1000), to(1000);
    for (int i = 0; i < 1000; ++i) from[i] = make_float4(i, i + 1, i + 2, i + 3);
    doubled<<<1, 64>>>(from, to, 1000);
    EXPECT_OK();
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(to[i].w, 2.0f * (i + 3));
}

// ------------------------------------------------------------------ of a block

template <bool together>
__global__ void reversed(const int* from, int* to, int tiles) {
    constexpr int kStages = 2, kTile = 96;
    __shared__ int tile[kStages][kTile];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const auto fetch = [&](int number) {
        pipe.producer_acquire();
        if (together) {
            cuda::memcpy_async(block, tile[number % kStages], from + number * kTile, sizeof(int) * kTile, pipe);
        } else {
            cuda::memcpy_async(&tile[number % kStages][threadIdx.x], from + number * kTile + threadIdx.x, sizeof(int), pipe);
        }
        pipe.producer_commit();
    };
    fetch(0);
    for (int number = 0; number < tiles; ++number) {
        if (number + 1 < tiles) fetch(number + 1);
        pipe.consumer_wait();
        to[number * kTile + threadIdx.x] = tile[number % kStages][kTile - 1 - threadIdx.x];
        pipe.consumer_release();
    }
}

TEST(a_blocks_pipeline_waits_for_all_threads) {
    Device<int> from(7 * 96), one(7 * 96), all(7 * 96);
    for (int i = 0; i < 7 * 96; ++i) from[i] = i;
    reversed<false><<<1, 96>>>(from, one, 7);
    reversed<true><<<1, 96>>>(from, all, 7);
    EXPECT_OK();
    for (int i = 0; i < 7 * 96; ++i) {
        EXPECT_EQ(one[i], i / 96 * 96 + 95 - i % 96);
        EXPECT_EQ(all[i], one[i]);
    }
}

// ------------------------------------------------------------------ of cooperative groups

__global__ void by_groups(const int* from, int* to) {
    __shared__ int tile[64], more[40];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, from, sizeof(int) * 64);
    cg::memcpy_async(block, more, 40, from + 64, 36);
    cg::wait(block);
    to[threadIdx.x] = tile[63 - threadIdx.x] + (threadIdx.x < 36 ? more[threadIdx.x] : 0);
}

TEST(a_groups_copies_are_there_for_all) {
    Device<int> from(100), to(64);
    for (int i = 0; i < 100; ++i) from[i] = i;
    by_groups<<<1, 64>>>(from, to);
    EXPECT_OK();
    for (int i = 0; i < 64; ++i) EXPECT_EQ(to[i], 63 - i + (i < 36 ? 64 + i : 0));
}

// ------------------------------------------------------------------ cuda::barrier

__global__ void handed_over(const int* from, int* to, int tiles) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ int tile[2][64];
    __shared__ barrier filled[2], emptied[2];
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; ++i) {
            init(&filled[i], blockDim.x);
            init(&emptied[i], blockDim.x);
        }
    __syncthreads();
    const bool producer = threadIdx.x >= 64;
    for (int number = 0; number < tiles; ++number) {
        const int at = number % 2;
        if (producer) {
            if (number > 1) emptied[at].arrive_and_wait();
            for (int i = threadIdx.x - 64; i < 64; i += 32) cuda::memcpy_async(&tile[at][i], from + number * 64 + i, sizeof(int), filled[at]);
            (void)filled[at].arrive();
        } else {
            filled[at].arrive_and_wait();
            to[number * 64 + threadIdx.x] = tile[at][63 - threadIdx.x];
            if (number + 2 < tiles) (void)emptied[at].arrive();
        }
    }
}

TEST(a_barrier_hands_tiles_from_one_warp_to_two) {
    Device<int> from(9 * 64), to(9 * 64);
    for (int i = 0; i < 9 * 64; ++i) from[i] = i;
    handed_over<<<1, 96>>>(from, to, 9);
    EXPECT_OK();
    for (int i = 0; i < 9 * 64; ++i) EXPECT_EQ(to[i], i / 64 * 64 + 63 - i % 64);
}

__global__ void by_transactions(const int* from, int* to) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ alignas(16) int tile[64];
    __shared__ barrier filled;
    if (threadIdx.x == 0) init(&filled, blockDim.x);
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(tile, from, cuda::aligned_size_t<16>(sizeof(tile)), filled);
        token = cuda::device::barrier_arrive_tx(filled, 1, sizeof(tile));
    } else {
        token = filled.arrive();
    }
    filled.wait(std::move(token));
    to[threadIdx.x] = tile[63 - threadIdx.x];
}

TEST(a_barrier_waits_for_bytes) {
    Device<int> from(64), to(64);
    for (int i = 0; i < 64; ++i) from[i] = i;
    by_transactions<<<1, 64>>>(from, to);
    EXPECT_OK();
    for (int i = 0; i < 64; ++i) EXPECT_EQ(to[i], 63 - i);
}

__global__ void by_parity(int* out) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ barrier turn;
    __shared__ int sum;
    if (threadIdx.x == 0) {
        init(&turn, blockDim.x);
        sum = 0;
    }
    __syncthreads();
    turn.wait_parity(true);  // of the phase before the first, which has ended
    atomicAdd(&sum, 1);
    (void)turn.arrive();
    turn.wait_parity(false);
    if (threadIdx.x % 2) {
        turn.arrive_and_drop();
        return;
    }
    out[threadIdx.x / 2] = sum;
    turn.arrive_and_wait();
    turn.arrive_and_wait();  // without those that dropped out
}

TEST(a_barrier_has_phases_and_those_who_drop_out) {
    Device<int> out(32);
    by_parity<<<1, 64>>>(out);
    EXPECT_OK();
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 64);
}
