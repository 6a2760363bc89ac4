// Sums of products by row, for up to 32768 rows: every block of a cooperative grid adds up in its shared memory. Up to 4096 rows blocks
// store their sums, and behind a grid barrier each block adds up a few rows of all blocks; more rows are added, four at a time, to sums in
// global memory that are zero between calls. Nothing has to be cleared first.
//
// Additions of floats in shared memory are tries, repeated until nobody came between. A row that most warps have at once would make them
// wait for each other (H100: 71 us), so lanes whose first tries failed add up by row before they go on. To do that before the first try is no
// good: __match_any_sync takes as long as a warp has different rows, together 4.7 of 24.4 us for 671,088 products. More tries and more copies
// of all sums are better where rows are even and few, but lose on full rows.
//
// Measured (H100, November 2026, own program, us; 8192, 16384, 32768 rows, and 32768 skewed): added in memory 12.1, 14.5, 18.7, 19.6;
// stored 12.4, 15.1, 20.7, 22.8. At 2048 and 4096 rows storing is 0.3 us faster. Lost: sums of a cluster's blocks added up in their shared
// memory first, 34 us for 32768 rows and 16 for 2048, where half of the time goes to reading others' sums and to the last block's ticket.
#pragma once

#include "msbench_groups.cuh"

#include <algorithm>

#include "msbench_add_by_row.cuh"
#include "msbench_launch.cuh"

namespace msbench {

// A pointer that the compiler keeps in registers: else it computes addresses anew for each load that has a condition.
template <typename T>
__device__ inline const T* kept(const T* pointer) {
    asm("" : "+l"(pointer));
    return pointer;
}

// All zero between calls, which share it if they overlap: one stream at a time.
static __device__ float4 sums_in_memory[32768 / 4];

struct BlockSums {
    static constexpr int kThreads = 1024, kWarps = kThreads / 32;
    static constexpr int kMostRows = 32768, kMostStored = 4096, kMostBlocks = 128;
    static constexpr int kPlaces = 24576;   // copies of all sums in shared memory, if there is more than one
    static constexpr int kMostBits = 5;     // a block adds up 2^bits quads of rows at a time
    static constexpr int kLeastWork = 128;  // entries, or rows, that are worth a block

    float4* partial;  // [blocks][quads]
    int rows, quads, copies, bits;
    unsigned blocks;

    static bool stored(int64_t rows) { return rows <= kMostStored; }
    static size_t bytes(int64_t rows) { return stored(rows) ? kMostBlocks * ceil_div(rows, 4) * sizeof(float4) : 0; }

    // `workspace`: bytes(rows), aligned to 16 bytes. `most`: blocks that can run at once.
    BlockSums(void* workspace, int64_t all_rows, int64_t entries, int most = multiprocessors(), int most_copies = 2)
        : partial(static_cast<float4*>(workspace)), rows(int(all_rows)), quads(int(ceil_div(all_rows, 4))), bits(0) {
        copies = std::clamp(kPlaces / (4 * quads), 1, most_copies);
        const int64_t worth = ceil_div(std::max(entries, all_rows), kLeastWork);
        blocks = unsigned(std::min<int64_t>({worth, kMostBlocks, most}));
        while (bits < kMostBits && int64_t(blocks) << bits < quads) ++bits;
    }
    // Floats of shared memory: the copies, and later a quad of each warp for each of a share.
    size_t shared_floats() const { return 4 * size_t(std::max(copies * quads, kWarps << bits)); }
    Launch launch(cudaStream_t stream, size_t more_floats) const {
        Launch launch(blocks, kThreads, stream);
        launch.shared((shared_floats() + more_floats) * sizeof(float)).cooperative();
        return launch;
    }

    // By all threads of a block, which meet before they add.
    __device__ void clear(float* shared) const {
#pragma unroll 1
        for (int i = threadIdx.x; i < copies * quads; i += kThreads) reinterpret_cast<float4*>(shared)[i] = float4{0, 0, 0, 0};
    }
    // Where this warp adds.
    __device__ float* own(float* shared) const { return shared + int(threadIdx.x) / 32 % copies * quads * 4; }
    // Called by whole warps; lanes with a row below 0 have nothing. kTries: of an addition, before lanes add up by row.
    template <int kTries = 1>
    __device__ static void add(float* own, int row, float product) {
        add_to_shared<kTries>(own, row, product);
    }
    // By all threads of the grid, as early as they can: what will be added to is fetched from memory, and a part of `y` [rows], which will be
    // written, so that its address has been translated.
    template <typename T>
    __device__ void fetch(const T* y) const {
        const int line = blockIdx.x + threadIdx.x * gridDim.x;
        if (line * 8 < quads) asm volatile("prefetch.global.L2 [%0];" ::"l"(sums_in_memory + line * 8));
        if (threadIdx.x == 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(y + min(int(blockIdx.x) * (rows / int(gridDim.x) + 1), rows - 1)));
    }
    // By all threads of the grid, when all is added: calls finish(row, sum) once a row. kStored: as stored(rows) says; if not,
    // add_quad(address, sums) is called for additions in memory.
    template <bool kStored, typename AddQuad, typename Finish>
    __device__ void collect(float* shared, AddQuad add_quad, Finish finish) const {
        if constexpr (kStored) collect_stored(shared, finish);
        else collect_added(shared, add_quad, finish);
    }

   private:
    template <typename AddQuad, typename Finish>
    __device__ void collect_added(const float* shared, AddQuad add_quad, Finish finish) const {
        __syncthreads();
        const auto* const sums = reinterpret_cast<const float4*>(shared);
        for (int i = threadIdx.x; i < quads; i += kThreads) {
            float4 sum = sums[i];
            for (int copy = 1; copy < copies; ++copy) add_to(sum, sums[copy * quads + i]);
            if (sum.x != 0 || sum.y != 0 || sum.z != 0 || sum.w != 0) add_quad(sums_in_memory + i, sum);
        }
        cooperative_groups::this_grid().sync();
        for (int i = blockIdx.x * kThreads + threadIdx.x; i < quads; i += gridDim.x * kThreads) {
            const float4 sum = __ldcg(sums_in_memory + i);
            sums_in_memory[i] = float4{0, 0, 0, 0};
            const float of_rows[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (4 * i + k < rows) finish(4 * i + k, of_rows[k]);
            }
        }
    }
    template <typename Finish>
    __device__ void collect_stored(float* shared, Finish finish) const {
        __syncthreads();
        const auto* const sums = reinterpret_cast<const float4*>(shared);
        for (int i = threadIdx.x; i < quads; i += kThreads) {
            float4 sum = sums[i];
#pragma unroll 4
            for (int copy = 1; copy < copies; ++copy) add_to(sum, sums[copy * quads + i]);
            partial[int64_t(blockIdx.x) * quads + i] = sum;
        }
        cooperative_groups::this_grid().sync();
        // Threads next to each other have quads next to each other, and every group of `share` threads some of the blocks.
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = 1 << bits, groups = kThreads >> bits;
        const int warps = min(kWarps, int((gridDim.x << bits) + 31) / 32);  // those that have a block
        for (int begin = blockIdx.x * share; begin < quads; begin += gridDim.x * share) {
            const int quad = min(begin + (int(threadIdx.x) & (share - 1)), quads - 1);
            if (warp < warps) {
                float4 sum = groups >= int(gridDim.x)       ? of_blocks<1>(quad)
                             : 2 * groups >= int(gridDim.x) ? of_blocks<2>(quad)
                                                            : of_blocks<4>(quad);
                for (int distance = share; distance < 32; distance *= 2) {
                    add_to(sum, float4{__shfl_xor_sync(~0u, sum.x, distance), __shfl_xor_sync(~0u, sum.y, distance),
                                       __shfl_xor_sync(~0u, sum.z, distance), __shfl_xor_sync(~0u, sum.w, distance)});
                }
                if (lane < share) reinterpret_cast<float4*>(shared)[warp * share + lane] = sum;
            }
            __syncthreads();
            const int row = 4 * begin + int(threadIdx.x);
            if (int(threadIdx.x) < 4 * share && row < rows) {
                float total = 0;
#pragma unroll 8
                for (int i = 0; i < warps; ++i) total += shared[i * 4 * share + int(threadIdx.x)];
                finish(row, total);
            }
            __syncthreads();  // before the next share
        }
    }

    __device__ static void add_to(float4& sum, const float4& other) {
        sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
    }
    // What this thread's blocks have, of which kEach loads without a condition are under way.
    template <int kEach>
    __device__ float4 of_blocks(int quad) const {
        const int groups = kThreads >> bits, count = int(gridDim.x);
        float4 sum = {0, 0, 0, 0};
        for (int block = int(threadIdx.x) >> bits; block < count; block += kEach * groups) {
            float4 part[kEach];
#pragma unroll
            for (int i = 0; i < kEach; ++i) part[i] = __ldcg(partial + int64_t(min(block + i * groups, count - 1)) * quads + quad);
#pragma unroll
            for (int i = 0; i < kEach; ++i) {
                if (block + i * groups < count) add_to(sum, part[i]);
            }
        }
        return sum;
    }
};

}  // namespace msbench
