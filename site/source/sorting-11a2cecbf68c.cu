// sorting, fp32: keys without a payload need no stable ranking, so the most significant digits come first, and ranks from atomics
// in shared memory.
//
// Plans:
//   rank_all       to 1024 elements: a block finds the places of 32 elements by comparing them with all; blocks do not talk.
//   rank_by_search to 81920: the same with 32 to 1024 elements in order, among which all others are looked up.
//   whole_grid     beyond, cooperative:
//     1. A histogram of upper halves, as for bf16, deals keys out to buckets of about 8192 keys, or of one upper half.
//     2. x is scattered into the buckets, through shared memory, so that it is written in runs.
//     3. A bucket of one upper half is sorted by counting lower halves: 8 bits a counter; where equal keys overflow them, 16 bits
//        in two passes; 32 in four. One of more than 2^19 keys is all blocks' work. In others a key's place is nearly
//        start(bin) + lower half / 2^16 · count(bin): keys are put there, and a few rounds of transposition do the rest; by
//        sort_small, two blocks a multiprocessor, in a launch behind. Keys of all magnitudes are all in such buckets.
//   Above 2^24: parts of 2^24 elements, then merges.
//
// Bound: 2^24 keys: 4 reads and 2 writes of 64 MiB are 94 us (H200); the additions to shared memory take longer.
// Measured (H200, 2026-11-24, cold): 1024 4.9, 4096 5.3, 8192 6.9, 16384 9.6, 32768 15.8, 65536 27, rank_by_search at 100003 45 us. Of 2^24
// keys of all magnitudes (H100, 2026-11-26) counting takes 34 us, adding up 9, making buckets 10, scattering 142, sort_small 104.
// Lost: comparing with all at 4096, 6.6 (at 2048 it is as fast); 16 runs exchanged within a cluster at 16384, 14.7; rank_by_search at
// 131072, 54 for 40 (H200). Of 2^24 keys, sort_small's buckets in whole_grid, one block a multiprocessor: of all magnitudes 480 for 361 us
// (H200). Ranking the few keys that meet by comparison, 165 us of sort_small's time; not fetching the next bucket, 122 (H100).

#include <cooperative_groups.h>

#include <algorithm>
#include <utility>

#include "msbench_bucket_sort.cuh"
#include "msbench_key_buckets.cuh"
#include "msbench_launch.cuh"
#include "msbench_light_sort.cuh"
#include "msbench_rank_by_search.cuh"

namespace {

constexpr int kThreads = 1024, kBlocks = msbench::kCountBlocks;
constexpr int kFew = kThreads, kSearched = 80 * 1024;
constexpr int64_t kLargest = int64_t(msbench::kIntervals) * msbench::kHeavy;

// ---------------------------------------------------------------- small

struct Keys {
    static __device__ unsigned key(unsigned bits) { return min(msbench::ordered_bits(bits), 0xfffffffeu); }  // not a missing key's
    static __device__ unsigned element(unsigned key) { return msbench::bits_of_ordered(key); }
};

__global__ void __launch_bounds__(kThreads) rank_all(const unsigned* x, unsigned* y, int n) {
    __shared__ alignas(16) unsigned keys[kFew];
    keys[threadIdx.x] = threadIdx.x < n ? Keys::key(x[threadIdx.x]) : msbench::kMissingKey;
    const unsigned place = msbench::rank_among(keys, n), index = blockIdx.x * 32 + threadIdx.x;
    if (threadIdx.x < 32 && index < n) y[place] = Keys::element(keys[index]);
}

// ---------------------------------------------------------------- whole_grid

struct Place {  // of 16 bits in ascending order: upper halves of floats, or lower halves of keys
    bool upper;
    __device__ int operator()(int bits) const { return !upper ? bits : bits < 0x8000 ? bits + 0x8000 : 0xffff - bits; }
};

using Large = msbench::LightShared<kThreads, 16>;
constexpr int kSmallThreads = 544, kSmallEach = 16;  // of half a multiprocessor
using Small = msbench::LightShared<kSmallThreads, kSmallEach>;
static_assert(msbench::kSmall <= kSmallEach * kSmallThreads);

__global__ void __launch_bounds__(kThreads, 1)
    whole_grid(const unsigned* x, unsigned* y, int n, int shift, msbench::KeyBuckets* work, unsigned* scattered) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    __shared__ int upcoming;
    unsigned* const histogram = reinterpret_cast<unsigned*>(raw_shared);
    msbench::BucketTable& table = *reinterpret_cast<msbench::BucketTable*>(raw_shared);
    const auto grid = cooperative_groups::this_grid();
    msbench::clear_buckets(work);
    msbench::count_part(x, n, [](unsigned bits) { return bits >> 16; }, histogram, &work->counts);
    msbench::publish_counts(histogram, &work->counts);
    grid.sync();
    msbench::add_up_counts(&work->counts, Place{true});
    grid.sync();
    msbench::draw_up_buckets(reinterpret_cast<unsigned(&)[msbench::kSegments]>(*table.staged), work, shift);
    grid.sync();
    msbench::make_table(table, work);
    grid.sync();
    msbench::scatter_keys(x, n, table, work, scattered);
    grid.sync();

    for (int i = 0; i < work->giants; ++i) {
        const uint4 task = work->giant[i];
        msbench::count_part(scattered + task.x, task.y, [](unsigned key) { return key & 0xffff; }, histogram, &work->counts);
        msbench::publish_counts(histogram, &work->counts);
        grid.sync();
        msbench::add_up_counts(&work->counts, Place{false});
        grid.sync();
        const msbench::HeavyOutput out(y + task.x, task.y, task.z);
        msbench::write_counted(out, &work->counts, *reinterpret_cast<msbench::CountedRuns*>(raw_shared));
    }
    const int tasks = work->tasks;
    for (int i = blockIdx.x; i < tasks;) {
        const uint4 task = work->task[i];
        int next = 0;
        if (threadIdx.x == 0) next = kBlocks + atomicAdd(&work->next, 1);
        const unsigned* const from = scattered + task.x;
        if (!task.w) {
            msbench::sort_light(from, y + task.x, int(task.y), task.x, work->bin, *reinterpret_cast<Large*>(raw_shared), [] {});
        } else {
            const msbench::HeavyOutput out(y + task.x, task.y, task.z);
            msbench::HeavyShared& shared = *reinterpret_cast<msbench::HeavyShared*>(raw_shared);
            const bool done = task.y < 65536 && (msbench::sort_heavy<8>(from, out, shared) || msbench::sort_heavy<16>(from, out, shared));
            if (!done) msbench::sort_heavy<32>(from, out, shared);
        }
        if (threadIdx.x == 0) upcoming = next;
        __syncthreads();
        i = upcoming;
        __syncthreads();
    }
}

struct SmallShared {
    Small sorting;
    alignas(16) unsigned ahead[msbench::kSmall + 8];  // the next bucket's keys, on their way
    int upcoming;
};

// Light buckets of a usual size, by blocks of half a multiprocessor: one computes while the other waits. The next bucket is on its way.
__global__ void __launch_bounds__(kSmallThreads, 2) sort_small(unsigned* y, msbench::KeyBuckets* work, const unsigned* scattered) {
    extern __shared__ __align__(16) unsigned char raw_shared[];
    SmallShared& shared = *reinterpret_cast<SmallShared*>(raw_shared);
    cudaGridDependencySynchronize();
    const int smalls = work->smalls;
    const auto fetch = [&](uint4 task) {
        for (unsigned i = 4 * threadIdx.x; i < task.x % 4 + task.y; i += 4 * kSmallThreads) {
            const unsigned to = unsigned(__cvta_generic_to_shared(shared.ahead + i));
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(scattered + task.x / 4 * 4 + i) : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    const auto task_of = [&](int i) { return i < smalls ? work->task[msbench::kBuckets - 1 - i] : make_uint4(0, 0, 0, 0); };
    if (threadIdx.x == 0) shared.upcoming = int(gridDim.x) + atomicAdd(&work->next_small, 1);
    uint4 task = task_of(blockIdx.x);
    fetch(task);
    __syncthreads();
    while (task.y > 0) {
        const uint4 next = task_of(shared.upcoming);
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) shared.upcoming = int(gridDim.x) + atomicAdd(&work->next_small, 1);
        msbench::sort_light(shared.ahead + task.x % 4, y + task.x, int(task.y), task.x, work->bin, shared.sorting, [&] { fetch(next); });
        task = next;
    }
}

// Merges neighbouring sorted runs: each element looks up how many of the other run's precede it.
__global__ void __launch_bounds__(256) merge_runs(const unsigned* from, unsigned* to, int64_t length, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int64_t run = i / length, first = run / 2 * 2 * length, other = run % 2 ? first : first + length;
    const unsigned key = msbench::ordered_bits(from[i]), limit = key + (run % 2 && key != ~0u);  // equal ones of the first run precede
    int64_t low = min(other, n), high = min(other + length, n);
    const int64_t begin = low;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (msbench::ordered_bits(from[middle]) < limit || (run % 2 && key == ~0u)) low = middle + 1;
        else high = middle;
    }
    to[first + (i - run * length) + (low - begin)] = from[i];
}

cudaError_t sort_part(const unsigned* x, unsigned* y, int n, msbench::KeyBuckets* work, unsigned* scattered, cudaStream_t stream) {
    int shift = 9;
    while (shift < 13 && n >> shift > 512) ++shift;
    const size_t bytes = std::max({sizeof(msbench::BucketTable), sizeof(msbench::HeavyShared), sizeof(Large), sizeof(msbench::CountedRuns)});
    const cudaError_t error = msbench::Launch(kBlocks, kThreads, stream).shared(bytes).cooperative()(whole_grid, x, y, n, shift, work, scattered);
    if (error != cudaSuccess) return error;
    return msbench::Launch(2 * kBlocks, kSmallThreads, stream).shared(sizeof(SmallShared)).early()(sort_small, y, work, scattered);
}

constexpr size_t kWorkspace = (sizeof(msbench::KeyBuckets) + 255) / 256 * 256;

}  // namespace

// The counters and tables, the keys in their buckets, and, if there are more than kLargest, another array to merge from.
extern "C" size_t sorting_workspace(int64_t N) {
    return N <= kSearched ? 0 : kWorkspace + (N > kLargest ? kLargest + N : (N + 3) / 4 * 4) * sizeof(unsigned);
}

extern "C" cudaError_t sorting(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    const auto from = reinterpret_cast<const unsigned*>(x);
    auto to = reinterpret_cast<unsigned*>(y);
    if (N <= kFew) return msbench::Launch(unsigned(msbench::ceil_div(N, 32)), kThreads, stream)(rank_all, from, to, int(N));
    if (N <= kSearched) return msbench::sort_by_search<Keys, kSearched>(from, to, int(N), stream);
    auto work = static_cast<msbench::KeyBuckets*>(workspace);
    unsigned* const scattered = reinterpret_cast<unsigned*>(static_cast<char*>(workspace) + kWorkspace);
    if (N <= kLargest) return sort_part(from, to, int(N), work, scattered, stream);

    int merges = 0;
    while ((kLargest << merges) < N) ++merges;
    unsigned* other = scattered + kLargest;
    if (merges % 2) std::swap(to, other);  // two arrays take turns so that the last merge writes y
    for (int64_t first = 0; first < N; first += kLargest) {
        const int part = int(std::min(kLargest, N - first));
        const cudaError_t error = sort_part(from + first, to + first, part, work, scattered, stream);
        if (error != cudaSuccess) return error;
    }
    for (int merge = 0; merge < merges; ++merge) {
        merge_runs<<<unsigned(msbench::ceil_div(N, 256)), 256, 0, stream>>>(to, other, kLargest << merge, N);
        std::swap(to, other);
    }
    return cudaGetLastError();
}
