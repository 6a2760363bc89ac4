// Sums of products by row in clusters: no block waits for the whole grid.
//
// A cluster has a band of rows. Its blocks share all entries out, add up those of the band in their shared memory, and send each other what they
// have for the rows that are another's in the end. Entries are read from L2 once for every band, which costs less than a grid barrier as long
// as they are few; the parts of a band come by stores that an mbarrier counts, for which nobody needs a fence.
//
// With more entries several groups of clusters have a share of them each. All groups but the last send their sums to it by mail
// (msbench_mailed_rows.cuh).
//
// Measured (H200, 2026-11-26, own program, us; empty 4.4): spmv_csc with 20971, 41943, 83886, 167772 and 335544 entries in 2048 rows 8.3, 8.4, 8.9,
// 9.3 and 10.7, by sums of blocks behind a grid barrier (msbench_block_sums.cuh) 9.7, 9.6, 9.8, 10.4 and 11.1. An exchange by plain stores and a
// barrier of the cluster, whose release is a fence for the whole GPU, costs 0.3 more, clusters of 8 in place of 16 0.2 to 0.6. Gained nothing:
// less code, and a warp that runs through it before the others.
#pragma once

#include "msbench_add_by_row.cuh"
#include "msbench_launch.cuh"
#include "msbench_mailed_rows.cuh"

#ifdef __NVCC__
#include "msbench_async.cuh"
#include "msbench_cluster.cuh"
#endif

namespace msbench {

constexpr int kMostGroups = 8, kMostMailed = 4096;  // rows, if there are several groups

// All zero between calls, which share it if they overlap: one stream at a time.
static __device__ unsigned sums_by_mail[(kMostGroups - 1) * kMostMailed];

struct ClusterSums {
    static constexpr int kBarrier = 4;  // floats that hold an mbarrier
    static constexpr int kTries = 4;  // of an addition, before lanes add up by row
#ifdef __NVCC__
    static constexpr bool kClusters = true;
#else  // the processor's executor has none
    static constexpr bool kClusters = false;
#endif

    int rows, each, band;  // rows of a block, a multiple of four, and of a cluster
    int log_cluster, bands, groups, copies;  // `copies` of a band's sums are added up at the end: a power of two

    // log_cluster: 2 to 4. all_groups: up to kMostGroups.
    ClusterSums(int64_t all_rows, int log, int most_bands, int all_groups, int all_copies)
        : rows(int(all_rows)), log_cluster(kClusters ? log : 0), groups(all_groups), copies(all_copies) {
        each = int(ceil_div(all_rows, int64_t(4 * most_bands) << log_cluster)) * 4;
        band = each << log_cluster;
        bands = int(ceil_div(all_rows, band));
    }
    size_t shared_floats() const { return kBarrier + (1 + copies) * size_t(band); }
    int shares() const { return groups << log_cluster; }

    __device__ int first_row() const { return int(blockIdx.y) * band; }
    // Which of shares() parts of all entries a block has.
    __device__ int share() const { return (int(blockIdx.z) << log_cluster) + int(blockIdx.x); }

    // First of all, by all threads of a block. `shared`: shared_floats().
    __device__ void begin(float* shared) const {
        (void)shared;
#ifdef __NVCC__
        if (threadIdx.x == 0) {
            Barrier& arrived = *reinterpret_cast<Barrier*>(shared);
            arrived.init(1);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            arrived.expect(int(sizeof(float)) * band);
        }
        asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
    }
    // By all threads of a block, which meet before they add. Addresses that it will write to have been translated by then.
    template <typename T>
    __device__ void clear(float* shared, const T* y) const {
        if (threadIdx.x == 0) {
            const int row = min(first_row() + int(blockIdx.x) * each, rows - 1);
            asm volatile("prefetch.global.L2 [%0];" ::"l"(y + row));
            if (groups > 1) asm volatile("prefetch.global.L2 [%0];" ::"l"(sums_by_mail + row));
        }
        auto* const sums = reinterpret_cast<float4*>(shared + kBarrier + band);
#pragma unroll 1
        for (int i = threadIdx.x; i < copies * band / 4; i += blockDim.x) sums[i] = float4{0, 0, 0, 0};
    }
    // Called by whole warps. `row` counts from the band's first; lanes with one that is not the band's have nothing.
    __device__ bool has(int row) const { return unsigned(row) < unsigned(band); }
    __device__ void add(float* shared, int row, float product) const {
        add_to_shared<kTries>(shared + kBarrier + (1 + (int(threadIdx.x) / 32 & (copies - 1))) * band, has(row) ? row : -1, product);
    }
    // By all threads of the grid, when all is added: calls finish(row, sum) once a row.
    template <typename Finish>
    __device__ void collect(float* shared, Finish finish) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, to = warp & ((1 << log_cluster) - 1), here = blockIdx.x;
        float* const arrived = shared + kBarrier;
#ifdef __NVCC__
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // all have begun
#endif
        __syncthreads();
#pragma unroll 1
        for (int i = (warp >> log_cluster) * 128 + 4 * lane; i < each; i += int(blockDim.x) * 4 >> log_cluster) {
            float4 sum = {0, 0, 0, 0};
#pragma unroll 4
            for (int copy = 1; copy <= copies; ++copy) {
                const float4 more = *reinterpret_cast<const float4*>(arrived + copy * band + to * each + i);
                sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
            }
            send(arrived + here * each + i, shared, to, sum);
        }
#ifdef __NVCC__
        reinterpret_cast<Barrier*>(shared)->wait(0);
#else
        __syncthreads();
#endif
#pragma unroll 1
        for (int i = threadIdx.x; i < each; i += blockDim.x) {
            const int row = first_row() + here * each + i;
            if (row >= rows) return;
            float sum = 0;
#pragma unroll 1
            for (int k = 0; k < 1 << log_cluster; k += 4) {
                float part[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) part[j] = k + j < 1 << log_cluster ? arrived[(k + j) * each + i] : 0;
                sum += (part[0] + part[1]) + (part[2] + part[3]);
            }
            if (int(blockIdx.z) + 1 < groups) {
                send_row(sums_by_mail, int(blockIdx.z) * rows + row, sum);
            } else {
                finish(row, groups > 1 ? sum + take_row<kMostGroups>(sums_by_mail, row, rows, groups) : sum);
            }
        }
    }
    // Shared memory: shared_floats() and `more` bytes.
    template <typename... Parameter, typename... Argument>
    cudaError_t launch(int threads, size_t more, cudaStream_t stream, void (*kernel)(Parameter...), Argument&&... argument) const {
        Launch launch(dim3(1u << log_cluster, bands, groups), threads, stream);
        launch.shared(shared_floats() * sizeof(float) + more);
#ifdef __NVCC__
        return launch_clusters(1 << log_cluster, launch, kernel, std::forward<Argument>(argument)...);
#else
        return launch(kernel, std::forward<Argument>(argument)...);
#endif
    }

   private:
    // To the same place of block `to` of the cluster, whose mbarrier hears of it.
    __device__ static void send(float* at, float* barrier, int to, const float4& x) {
#ifdef __NVCC__
        asm volatile(
            "{\n.reg .b32 there, heard;\nmapa.shared::cluster.u32 there, %0, %2;\nmapa.shared::cluster.u32 heard, %1, %2;\n"
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, [heard];\n}" ::"r"(shared_address(at)),
            "r"(shared_address(barrier)), "r"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
            : "memory");
#else
        *reinterpret_cast<float4*>(at) = x;
#endif
    }
};

}  // namespace msbench
