// Triangle attention: a lane has one channel and four query rows, whose keys are sorted by which of the rows count them.
//
// Idea: exponentials decide, and an entry that is predicated off takes its slot among them all the same. All heads and channels share a mask, so a
// first kernel sorts the keys of every four rows by the rows that count them (msbench_key_patterns.cuh). A warp goes through a window's keys, which
// its block holds in shared memory for 32 channels, pattern by pattern, each with code of its own that computes what counts and nothing else
// (msbench_pattern_softmax.cuh). Nothing is subtracted from scores as long as the window's extreme keys promise that none, to base 2, exceeds 60 in
// size. Otherwise a warp looks for the largest scores of the rows concerned, with all lanes for one if few ask for it, and changes what it subtracts
// where it has to. Rows whose results are not finite are done again with maxima.
//
// Plans, by tiles of four rows and 32 channels:
// - `few_tiles`, up to kFewTiles, and for rows of up to kShortRows: as many warps share a tile's keys as the GPU has room for, because there a
//   block's chunks follow each other at a trip to memory each. Four rows and eight keys are 32 entries of the mask, which one ballot collects:
//   with a chunk a warp all loads are under way at once. The warps' sums are added in shared memory, in order.
// - `attention`, else.
//
// Bound: MUFU, 16 exponentials a clock and multiprocessor: three quarters of the large case's 8.6e9 causal pairs are 1.55 ms.
//
// Measured (H200, November 2026, cold; 4,32,1024,128): 1.89 ms in fp32 and 1.87 in bf16, and 2.01 and 1.98 where one query and one key in 64 are 256
// times the size; with all lanes looking for the largest scores of any 2.29, and with one list after another for a lane's 2.14. 1,96,256,128 in
// fp32: 112 us for 119 with lists that a lane sorts pattern by pattern, or that come behind the keys, and smaller groups. Windows of 256 keys, 16
// warps: 1.89 ms, but 10 % slower at 128 rows; of 128 keys 1.96, with five blocks a multiprocessor 1.92; 256 with three 1.95.
// The kernel before (H100), with all of seven keys' exponentials for eight rows: 2.72 and 4.68 in fp32, 2.32 and 2.68 in bf16, this then 1.89 and
// 2.23; rows handed to a function by address, which kept them in local memory, 2.37.
//
// Lost (H200): what is not exponentials hardly hides behind them. Two rows a thread, of three patterns in place of fifteen, take 2.15 ms, three 1.99;
// two rows of two channels 2.01, three 1.95, four (24 warps) 1.94; two or three rows of keys and values that are pairs of bf16 in shared memory 2.04
// and 1.92. One exponential in 16 or 8 by a polynomial: 1.92 and 1.93 (two rows of two channels: 1.99 and 2.00; in 5 or 4 2.10 and 2.27). Copies to
// shared memory that pass by registers: 2.11 for 2.01.
#include "msbench_channel_rows.cuh"
#include "msbench_launch.cuh"
#include "msbench_mma.cuh"  // shared_address
#include "msbench_pattern_softmax.cuh"

#include <algorithm>
#include <cmath>

namespace {

using namespace msbench;
using namespace key_patterns;

constexpr int kLanes = 32, kWarps = 8, kWindow = 192, kBlocks = 4;  // channels and warps of a block, keys of a window, blocks a multiprocessor
constexpr int kFlight = 8;                                          // keys and values that a thread has under way
constexpr float kLeast = 0x1p-64f;                                  // sums below have lost weights
constexpr int64_t kGroupBytes = 40 << 20;                           // of keys and values that stay in L2
constexpr unsigned kFirstBlocks = 132 * kBlocks;                    // may find lists unsorted: their keys and values don't wait for them
constexpr int kFewRows = 4, kFewKeys = 8;                           // 32 entries: a ballot
constexpr int kMostWarps = 16;                                      // that share a tile's keys
constexpr int64_t kResidentWarps = 132 * 32, kFewTiles = kResidentWarps / 2;
constexpr int64_t kShortRows = 64;  // 15.7 us for 19.8 at 8,16,64,64; at 4,32,128,128 57.6 for 57.8 (H100)

static_assert(kWindow % (kFlight * kWarps) == 0, "all that a thread has under way lies in the window");

// A window's keys and values of 32 channels, keys' extremes by the warps that brought them, and the warps' lists.
struct Memory {
    float2 window[kWindow][kLanes];
    float largest[kWarps][kLanes], least[kWarps][kLanes];
    List<kWindow> lists[kWarps];
};

// Starts copies of a list, 16 bytes a lane.
__device__ __forceinline__ void copy_list(List<kWindow>* to, const List<kWindow>* from, int lane) {
    constexpr int kPackets = sizeof(List<kWindow>) / 16;
    static_assert(kPackets <= kLanes, "a packet a lane");
    if (lane >= kPackets) return;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(reinterpret_cast<uint4*>(to) + lane)),
                 "l"(reinterpret_cast<const uint4*>(from) + lane)
                 : "memory");
}

// A warp has four rows and 32 channels of a head, and a block's warps rows below each other. Heads and channels whose keys and values fit into L2
// follow each other; of these, long rows come first.
__global__ void __launch_bounds__(kLanes * kWarps, kBlocks)
    attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, const List<kWindow>* lists, const float* mask, scalar_t* y, int H,
              int S, int D, float scale, int columns, int together) {
    extern __shared__ __align__(16) unsigned char raw[];
    Memory& memory = *reinterpret_cast<Memory*>(raw);
    const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, channel_tiles = (D + kLanes - 1) / kLanes;
    const int row_tiles = (S + kRows * kWarps - 1) / (kRows * kWarps), fours = (S + kRows - 1) / kRows, windows = (S + kWindow - 1) / kWindow;
    const int group = int(blockIdx.x) / (together * row_tiles), in_group = int(blockIdx.x) % (together * row_tiles);
    const int width = min(together, columns - group * together), tile = row_tiles - 1 - in_group / width;
    const int column = group * together + in_group % width, head = column / channel_tiles;
    const int four = tile * kWarps + warp, first = four * kRows, last = min((tile + 1) * kWarps * kRows, S) - 1;
    const int channel = column % channel_tiles * kLanes + lane;
    const int64_t base = int64_t(head) * S * D + min(channel, D - 1);
    const Channel c{q + base, k + base, v + base, y + base, S, D, scale};
    const List<kWindow>* own_lists = lists + (int64_t(head / H) * fours + min(four, fours - 1)) * windows;
    const View<kWindow> view{reinterpret_cast<const unsigned char*>(memory.window), unsigned(lane * sizeof(float2)), &memory.lists[warp]};
    Rows s;
#pragma unroll
    for (int r = 0; r < kRows; ++r) s.query[r] = c.query(min(first + r, S - 1));
    int counted = 0;
    for (int start = 0; start <= last; start += kWindow) {
        const bool mine = start < min(first + kRows, S);
        const auto bring_list = [&] {
            cudaGridDependencySynchronize();
            if (mine) copy_list(&memory.lists[warp], own_lists + start / kWindow, lane);
        };
        const bool sorted = start > 0 || blockIdx.x >= kFirstBlocks;
        if (sorted) bring_list();
        float largest = -INFINITY, least = INFINITY;
#pragma unroll 1
        for (int begin = warp; begin < kWindow && start + begin <= last; begin += kFlight * kWarps) {
            scalar_t keys[kFlight], values[kFlight];
#pragma unroll
            for (int n = 0; n < kFlight; ++n) {  // without a condition: what comes twice does not matter
                const int64_t at = int64_t(min(start + begin + n * kWarps, last)) * D;
                keys[n] = c.k[at], values[n] = c.v[at];
            }
#pragma unroll
            for (int n = 0; n < kFlight; ++n) {
                const float key = to_float(keys[n]);
                memory.window[begin + n * kWarps][lane] = make_float2(key, to_float(values[n]));
                largest = fmaxf(largest, key), least = fminf(least, key);
            }
        }
        if (!sorted) bring_list();
        asm volatile("cp.async.wait_all;" ::: "memory");
        memory.largest[warp][lane] = largest;
        memory.least[warp][lane] = least;
        __syncthreads();
        if (mine) {
#pragma unroll
            for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, memory.largest[w][lane]), least = fminf(least, memory.least[w][lane]);
            move_origins(s, view, least, largest);
            add_patterns<kPatterns - 1>(s, view, view.list->keys, counted);
        }
        __syncthreads();
    }
    if (channel >= D) return;
    unsigned again = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        if (first + r >= S) continue;
        const bool any = counted >> r & 1;
        const float result = any ? s.weighted[r] / s.sum[r] : 0.0f;
        if (any && (!(s.sum[r] >= kLeast) || result * 0.0f != 0.0f)) again |= 1u << r;
        else c.store(first + r, result);
    }
    for (; again; again &= again - 1) {
        const int row = first + __ffs(again) - 1;
        const float* mask_of_row = mask + (int64_t(head / H) * S + row) * S;
        c.store(row, with_maximum(c, row, [&](int j) { return !(mask_of_row[j] > 0.5f); }));
    }
}

// A block has kFewRows rows and 32 channels of a head, and its warps take chunks of keys in turn.
__global__ void __launch_bounds__(32 * kMostWarps, 2)
    few_tiles(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask, scalar_t* y, int S, int D, float scale,
              int channel_tiles) {
    extern __shared__ float sums[];  // [warps][kFewRows][32] of weights, and as many of weighted values
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int first = int(gridDim.z - 1 - blockIdx.z) * kFewRows, last = min(first + kFewRows, S) - 1;
    const int h = blockIdx.x / channel_tiles, channel = int(blockIdx.x - h * channel_tiles) * 32 + lane;
    const int head = blockIdx.y * (gridDim.x / channel_tiles) + h;
    const int64_t base = int64_t(head) * S * D + min(channel, D - 1);
    const Channel c{q + base, k + base, v + base, y + base, S, D, scale};

    const float* mask_of_batch = mask + int64_t(blockIdx.y) * S * S;
    const int mask_row = first + lane / kFewKeys, mask_key = lane % kFewKeys;  // a lane's entry of every ballot
    const float* own_mask = mask_of_batch + int64_t(min(mask_row, last)) * S;

    float sum[kFewRows] = {}, weighted[kFewRows] = {};
    bool safe = true;
    if (warp * kFewKeys <= last) {
        float keys[kFewKeys], values[kFewKeys], masked, query[kFewRows], largest_query = 0, largest_key = 0;
        const auto load = [&](int chunk) {  // without a condition: what comes twice does not count
            masked = own_mask[min(chunk + mask_key, last)];
#pragma unroll
            for (int n = 0; n < kFewKeys; ++n) {
                const int at = min(chunk + n, last) * D;
                keys[n] = to_float(c.k[at]);
                values[n] = to_float(c.v[at]);
            }
        };
        load(warp * kFewKeys);  // before the first use of a query: all are under way at once
#pragma unroll
        for (int r = 0; r < kFewRows; ++r) {
            query[r] = c.query(min(first + r, last));
            largest_query = fmaxf(largest_query, fabsf(query[r]));
        }
        for (int chunk = warp * kFewKeys;;) {
            const bool counted = mask_row <= last && chunk + mask_key <= mask_row && !(masked > 0.5f);
            const unsigned entries = __ballot_sync(0xffffffffu, counted);
#pragma unroll
            for (int n = 0; n < kFewKeys; ++n) largest_key = fmaxf(largest_key, fabsf(keys[n]));
#pragma unroll
            for (int r = 0; r < kFewRows; ++r) {
#pragma unroll
                for (int n = 0; n < kFewKeys; ++n) {
                    if (entries >> (r * kFewKeys + n) & 1) {
                        const float weight = exp2_fast(query[r] * keys[n]);
                        sum[r] += weight;
                        weighted[r] = fmaf(weight, values[n], weighted[r]);
                    }
                }
            }
            chunk += warps * kFewKeys;
            if (chunk > last) break;
            load(chunk);
        }
        safe = largest_key * largest_query <= kSafe;
    }
    const int values_at = warps * kFewRows * 32;
#pragma unroll
    for (int r = 0; r < kFewRows; ++r) {
        const int at = (warp * kFewRows + r) * 32 + lane;
        sums[at] = safe ? sum[r] : NAN;
        sums[values_at + at] = weighted[r];
    }
    __syncthreads();
    for (int r = warp; first + r <= last; r += warps) {
        float all = 0, all_weighted = 0;
        for (int at = r * 32 + lane; at < values_at; at += kFewRows * 32) {
            all += sums[at];
            all_weighted += sums[values_at + at];
        }
        float result = all == 0.0f ? 0.0f : all_weighted / all;  // 0: no entry counts
        if (channel >= D) continue;
        if (result * 0.0f != 0.0f) {
            const float* mask_of_row = mask_of_batch + int64_t(first + r) * S;
            result = with_maximum(c, first + r, [&](int j) { return !(mask_of_row[j] > 0.5f); });
        }
        c.store(first + r, result);
    }
}

}  // namespace

extern "C" size_t triangle_attention_workspace(int64_t B, int64_t, int64_t S, int64_t) {
    return size_t(B * lists_of<kWindow>(S)) * sizeof(List<kWindow>);
}

extern "C" cudaError_t triangle_attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask, scalar_t* y,
                                          int64_t B, int64_t H, int64_t S, int64_t D, void* workspace, size_t, cudaStream_t stream) {
    const float scale = kLog2e / std::sqrt(float(D));
    const int64_t channel_tiles = ceil_div(D, kLanes), few_rows = ceil_div(S, kFewRows), tiles = B * H * few_rows * channel_tiles;
    if (tiles <= kFewTiles || S <= kShortRows) {
        const int warps = int(std::min({int64_t(kMostWarps), ceil_div(S, kFewKeys), std::max<int64_t>(kResidentWarps / tiles, 1)}));
        const dim3 grid(unsigned(H * channel_tiles), unsigned(B), unsigned(few_rows));
        few_tiles<<<grid, 32 * warps, warps * kFewRows * 32 * 2 * sizeof(float), stream>>>(q, k, v, mask, y, int(S), int(D), scale,
                                                                                           int(channel_tiles));
        return cudaGetLastError();
    }
    auto* lists = static_cast<List<kWindow>*>(workspace);
    const int64_t count = B * lists_of<kWindow>(S), columns = B * H * channel_tiles;
    const int64_t together = std::clamp<int64_t>(kGroupBytes / (2 * S * kLanes * int64_t(sizeof(scalar_t))), 1, columns);
    const cudaError_t status = Launch(dim3(unsigned(ceil_div(count * 32, kSortThreads))), dim3(kSortThreads), stream)(
        sort_keys<kWindow>, mask, lists, int(S), int(count));
    if (status != cudaSuccess) return status;
    return Launch(dim3(unsigned(columns * ceil_div(S, kRows * kWarps))), dim3(kLanes * kWarps), stream)
        .shared(sizeof(Memory))
        .early()(attention, q, k, v, static_cast<const List<kWindow>*>(lists), mask, y, int(H), int(S), int(D), scale, int(columns),
                 int(together));
}
