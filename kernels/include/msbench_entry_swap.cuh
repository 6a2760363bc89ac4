// Products of entries in no order, added up by row in clusters whose blocks swap entries, not sums.
//
// A block of a cluster has a share of all entries and a share of all rows. It brings its products together by the block that has their row
// (msbench_entry_lists.cuh), and sends each of those its list by one bulk copy between shared memories. So nobody adds up rows that are another's,
// which takes room for all rows, and with many rows most of those sums would be zeros. Several groups of clusters have a share of the
// entries each; all but the last mail their sums of rows to it (msbench_row_mail.cuh).
#pragma once

#include <algorithm>

#include "msbench_entry_lists.cuh"
#include "msbench_launch.cuh"
#include "msbench_row_mail.cuh"

#ifdef __NVCC__
#include "msbench_async.cuh"
#include "msbench_cluster.cuh"
#endif

namespace msbench {

struct EntrySwap {
    static constexpr int kHead = 4 + EntryLists::kOwners;  // words: two mbarriers, and counts that arrive
#ifdef __NVCC__
    static constexpr bool kClusters = true;
#else  // the processor's executor has none
    static constexpr bool kClusters = false;
#endif

    int rows, log_cluster, copies;  // `copies` of a block's sums are added up at the end: a power of two
    RowMail mail;
    EntryLists lists;
    // log: of a cluster's blocks, up to 4.
    EntrySwap(int64_t all_rows, int64_t entries, int log, int groups, int all_copies)
        : rows(int(all_rows)), log_cluster(kClusters ? log : 0), copies(all_copies), mail{int(all_rows), groups},
          lists(int(ceil_div(all_rows, int64_t(4) << log_cluster)) * 4, ceil_div(entries, int64_t(groups) << log_cluster)) {}

    size_t shared_words() const { return kHead + lists.words() + (size_t(lists.each) << log_cluster) + size_t(copies) * lists.each; }
    __device__ int share() const { return (int(blockIdx.z) << log_cluster) + int(blockIdx.x); }
    __device__ int first_row() const { return int(blockIdx.x) * lists.each; }

    __device__ int* counts(int* shared) const { return shared + 4; }
    __device__ int* own_lists(int* shared) const { return shared + kHead; }
    __device__ float* arrived(int* shared) const {
        return reinterpret_cast<float*>(shared + kHead + EntryLists::kHead + 2 * lists.chunk + 4 * EntryLists::kOwners);
    }
    __device__ float* sums(int* shared) const { return arrived(shared) + (lists.each << log_cluster); }
    __device__ void* behind(int* shared) const { return sums(shared) + copies * lists.each; }

    // First of all, by all threads of a block.
    __device__ void begin(int* shared) const {
        (void)shared;
#ifdef __NVCC__
        if (threadIdx.x == 0) {
            Barrier* const barrier = reinterpret_cast<Barrier*>(shared);
            barrier[0].init(1), barrier[1].init(1);
            fence_barriers();
            barrier[0].expect(4 << log_cluster);
        }
        asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
    }
    // By all threads, behind their first loads; they meet before they rank.
    template <typename T>
    __device__ void clear(int* shared, const T* y) const {
        if (threadIdx.x == 0) {
            const int row = min(first_row(), rows - 1);
            asm volatile("prefetch.global.L2 [%0];" ::"l"(y + row));
            mail.expect(row);
        }
        if (int(blockIdx.z) + 1 == mail.groups) mail.fetch(first_row(), lists.each);
        lists.clear(own_lists(shared));
        auto* const mine = reinterpret_cast<float4*>(sums(shared));
#pragma unroll 1
        for (int i = threadIdx.x; i < copies * lists.each / 4; i += blockDim.x) mine[i] = float4{0, 0, 0, 0};
    }
    __device__ EntryLists::Place rank(int* shared, int row) const { return lists.rank(own_lists(shared), row); }
    // By all threads, between ranking and placing. What it gives is for collect().
    __device__ EntryLists::Area layout(int* shared) const {
#ifdef __NVCC__
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // all have begun
#endif
        return lists.layout(own_lists(shared), [&](int owner, const EntryLists::Area& area) {
            if (owner < 1 << log_cluster) send_count(shared, owner, area.count);
        });
    }
    __device__ void put(int* shared, const EntryLists::Place& place, int row, float product) const {
        lists.put(own_lists(shared), place, row, product);
    }
    // By all threads of the grid, when all is placed: calls finish(row, sum) once a row.
    template <typename Finish>
    __device__ void collect(int* shared, const EntryLists::Area& area, Finish finish) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, blocks = 1 << log_cluster, each = lists.each;
        const int2* const areas = lists.areas(own_lists(shared));
        const int* const count_of = counts(shared);
#ifdef __NVCC__
        fence_shared_writes();
        __syncthreads();
        if (warp == 0 && lane % 2 == 0 && lane / 2 < blocks && area.bytes > 0) send(shared, lane / 2, areas + area.from, area.bytes);
        Barrier* const barrier = reinterpret_cast<Barrier*>(shared);
        barrier[0].wait(0);
        const int count_of_lane = lane < blocks ? count_of[lane] : 0;
        const bool any_sums = __any_sync(~0u, count_of_lane < 0);
        if (warp == 0) {
            const int all = __reduce_add_sync(~0u, count_of_lane < 0 ? 4 * each : (count_of_lane + 1) / 2 * 16);
            if (lane == 0) barrier[1].expect(all);
        }
        barrier[1].wait(0);
        asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#else
        __syncthreads();
        const bool any_sums = count_of[0] < 0;
        auto* const to = reinterpret_cast<int2*>(arrived(shared));
        for (int i = threadIdx.x; i < (any_sums ? each / 2 : count_of[0]); i += blockDim.x) to[i] = areas[i];
        __syncthreads();
        (void)area;
#endif
        float *const sum_of = sums(shared), *const own = sum_of + (warp & (copies - 1)) * each;
        if (any_sums) {
#pragma unroll 1
            for (int b = 0; b < blocks; ++b) {
                if (count_of[b] >= 0) continue;
                for (int i = threadIdx.x; i < each; i += blockDim.x) sum_of[i] += arrived(shared)[b * each + i];
            }
            __syncthreads();
        }
        const int sender = warp & (blocks - 1), count = count_of[sender];
        const auto* const list = reinterpret_cast<const int2*>(arrived(shared) + sender * each);
#pragma unroll 1
        for (int i = (warp >> log_cluster) * 32 + lane; i - lane < count; i += (warps >> log_cluster) * 32) {
            const int2 entry = i < count ? list[i] : int2{-1, 0};
            add_to_shared<EntryLists::kTries + 1>(own, entry.x, __int_as_float(entry.y));
        }
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < each && first_row() + i < rows; i += blockDim.x) {
            float sum = sum_of[i];
            for (int copy = 1; copy < copies; ++copy) sum += sum_of[copy * each + i];
            if (int(blockIdx.z) + 1 < mail.groups) mail.send(blockIdx.z, first_row() + i, sum);
            else finish(first_row() + i, mail.groups > 1 ? sum + mail.take(first_row() + i) : sum);
        }
#ifdef __NVCC__
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // what this block has sent is out of its shared memory
#endif
    }
    // Shared memory: shared_words() and `more` bytes.
    template <typename... Parameter, typename... Argument>
    cudaError_t launch(int threads, size_t more, cudaStream_t stream, void (*kernel)(Parameter...), Argument&&... argument) const {
        Launch launch(dim3(1u << log_cluster, 1, mail.groups), threads, stream);
        launch.shared(shared_words() * sizeof(int) + more);
#ifdef __NVCC__
        return launch_clusters(1 << log_cluster, launch, kernel, std::forward<Argument>(argument)...);
#else
        return launch(kernel, std::forward<Argument>(argument)...);
#endif
    }

   private:
    __device__ void send_count(int* shared, int to, int count) const {
#ifdef __NVCC__
        asm volatile(
            "{\n.reg .b32 there, heard;\nmapa.shared::cluster.u32 there, %0, %2;\nmapa.shared::cluster.u32 heard, %1, %2;\n"
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %3, [heard];\n}" ::"r"(shared_address(counts(shared) + blockIdx.x)),
            "r"(shared_address(shared)), "r"(to), "r"(count)
            : "memory");
#else
        counts(shared)[to] = count;
#endif
    }
#ifdef __NVCC__
    __device__ void send(int* shared, int to, const void* what, int bytes) const {
        const unsigned place = shared_address(arrived(shared) + first_row());
        asm volatile(
            "{\n.reg .b32 there, heard;\nmapa.shared::cluster.u32 there, %0, %2;\nmapa.shared::cluster.u32 heard, %1, %2;\n"
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%3], %4, [heard];\n}" ::"r"(place),
            "r"(shared_address(shared + 2)), "r"(to), "r"(shared_address(what)), "r"(bytes)
            : "memory");
    }
#endif
};

}  // namespace msbench
