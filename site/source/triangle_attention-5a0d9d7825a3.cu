// Triangle attention: a thread has one channel and some query rows, and every key and value is loaded once for all of them.
//
// Idea: nothing is subtracted from scores. Weights exp(score) need no maximum as long as no score to base 2 exceeds 60 in size, which
// every thread checks after its sums, for each row. What may have a larger score, or a result that is not finite, goes into a list of the
// block's, which is done again with maxima: a lane for each row and channel, wherever they lie, so that few of them cost little, and all
// warps share the keys. What is left is a product, an exponential, a sum and a multiply-add for each pair. Keys come in chunks of seven, as many
// predicates as one R2P sets from a row's bits, and the next chunk is loaded while one is computed. All threads of a block share rows
// and batch, so that predicates are uniform. Long rows come first, so that the last blocks to run are short.
//
// Plans, by tiles of four rows and 32 channels:
// - `few_tiles`, up to kFewTiles: as many warps share a tile's keys as the GPU has room for, because there a block's chunks
//   follow each other at a trip to memory each. Four rows and eight keys are 32 entries of the mask, which one ballot collects:
//   with a chunk a warp all loads are under way at once. The warps' sums are added in shared memory, in order.
// - `attention`, else: four rows a thread, or eight.
//
// Bound: MUFU, 16 exponentials a clock and multiprocessor, also for masked entries (one that is predicated off takes its slot):
// 8.6e9 causal pairs of the large case are 2.1 ms.
//
// Measured (H200, 2026-11-23, cold; 4,32,1024,128): 2406 us in fp32 (straightforward.cu: 3325), 2323 in bf16 (3498). 16 rows a thread, and
// polynomials in place of some exponentials, gained nothing; a branch for each key and four rows, so that masked entries cost no exponential,
// took 3942. With the list (2026-11-24; fp32): 2370 us, and 3330 where one query and one key in 64 are 128 times the size, which had taken 29400,
// as a thread did all its rows again; 16800 where nearly all results are done again. Small cases before there was `few_tiles`
// (2,3,77,64): 14.4 and 36.9 us: where D is not known, loads of bf16 behind a branch each, with their conversions, had been made to wait for
// each other. Now 6.1 us in both, and 6.8 for 4,8,32,128 (9.3).
#include "msbench_channel_rows.cuh"

#include <algorithm>
#include <cmath>

namespace {

using namespace msbench::channel_rows;

constexpr int kKeys = 7;  // of a chunk
constexpr int kMaxChunks = 2048 / kKeys + 1;
constexpr int64_t kFewElements = 1 << 20;  // below, four rows a thread instead of eight: more blocks
constexpr float kSafe = 60.0f;             // size of scores to base 2 up to which nothing is subtracted
constexpr int kMaskFlight = 4;             // words of the mask that a warp has under way; 8 cost bf16 eight registers
constexpr int kFewRows = 4, kFewKeys = 8;  // 32 entries: a ballot
constexpr int kMostWarps = 16;             // that share a tile's keys
constexpr int64_t kResidentWarps = 132 * 32, kFewTiles = kResidentWarps / 2;

// A block does kRows rows and up to kChannels channels of a head. kD: D, if known.
template <int kD, int kRows>
__global__ void __launch_bounds__(kChannels, kRows == 8 ? 6 : 8)
    attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask, scalar_t* y, int H, int S, int any_D,
              int row_tiles, int channel_tiles) {
    const int D = kD ? kD : any_D;
    __shared__ uint32_t counts[kRows][kMaxWords + 1];
    __shared__ alignas(16) unsigned char chunk_bits[kMaxChunks][kRows];
    __shared__ Again<kRows> again;
    const int columns = int(gridDim.x) / row_tiles, column = int(blockIdx.x) % columns, head = column / channel_tiles;
    const int first = (row_tiles - 1 - int(blockIdx.x) / columns) * kRows, last = min(first + kRows, S) - 1, words = last / 32 + 1;
    const int channel = column % channel_tiles * kChannels + int(threadIdx.x), lane = threadIdx.x % 32;

    if (threadIdx.x == 0) again.count = 0;
    const float* mask_of_batch = mask + int64_t(head / H) * S * S;
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int begin = warp; begin < kRows * words; begin += kMaskFlight * warps) {
        float masked[kMaskFlight];
#pragma unroll
        for (int i = 0; i < kMaskFlight; ++i) {  // without a condition: the nearest entry, so that none waits for another
            const int task = begin + i * warps, row = min(first + task % kRows, S - 1), j = task / kRows * 32 + lane;
            masked[i] = mask_of_batch[int64_t(row) * S + min(j, row)];
        }
#pragma unroll
        for (int i = 0; i < kMaskFlight; ++i) {
            const int task = begin + i * warps, row = first + task % kRows, j = task / kRows * 32 + lane;
            const uint32_t bits = __ballot_sync(0xffffffffu, row < S && j <= row && !(masked[i] > 0.5f));
            if (lane == 0 && task < kRows * words) counts[task % kRows][task / kRows] = bits;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kRows * (last / kKeys + 1); i += blockDim.x) {
        const int r = i % kRows, j = i / kRows * kKeys;
        const uint32_t low = counts[r][j / 32], high = j / 32 + 1 < words ? counts[r][j / 32 + 1] : 0;
        chunk_bits[i / kRows][r] = static_cast<unsigned char>(__funnelshift_r(low, high, j % 32) & ((1 << kKeys) - 1));
    }
    __syncthreads();

    const int64_t base = int64_t(head) * S * D + min(channel, D - 1);  // threads without a channel stay, for what is done again
    const Channel c{q + base, k + base, v + base, y + base, S, D, 1.44269504f / sqrtf(float(D))};
    float query[kRows], sum[kRows] = {}, weighted[kRows] = {}, largest_key = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) query[r] = first + r < S ? c.query(first + r) : 0.0f;
    float keys[kKeys], values[kKeys], next_keys[kKeys], next_values[kKeys];
    const auto load = [&](int j, float (&a)[kKeys], float (&b)[kKeys]) {
#pragma unroll
        for (int n = 0; n < kKeys; ++n) {
            if constexpr (kD == 0) {  // no condition that a branch could be made of; what comes twice does not count
                a[n] = c.key(min(j + n, last));
                b[n] = c.value(min(j + n, last));
            } else {
                const bool there = j + n <= last;
                a[n] = there ? c.key(j + n) : 0.0f;
                b[n] = there ? c.value(j + n) : 0.0f;
            }
        }
    };
    load(0, keys, values);
    for (int j = 0; j <= last; j += kKeys) {
        load(j + kKeys, next_keys, next_values);
        const unsigned* patterns = reinterpret_cast<const unsigned*>(chunk_bits[j / kKeys]);
#pragma unroll
        for (int n = 0; n < kKeys; ++n) largest_key = fmaxf(largest_key, fabsf(keys[n]));
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const unsigned pattern = patterns[r / 4] >> r % 4 * 8;
#pragma unroll
            for (int n = 0; n < kKeys; ++n) {
                if (pattern >> n & 1) {
                    const float weight = power_of_two(query[r] * keys[n]);
                    sum[r] += weight;
                    weighted[r] = fmaf(weight, values[n], weighted[r]);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < kKeys; ++n) keys[n] = next_keys[n], values[n] = next_values[n];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const float result = sum[r] == 0.0f ? 0.0f : weighted[r] / sum[r];  // 0: no entry counts
        if (first + r >= S || channel >= D) continue;
        if (largest_key * fabsf(query[r]) <= kSafe && result * 0.0f == 0.0f) {
            c.store(first + r, result);
        } else {
            again.results[atomicAdd(&again.count, 1)] = static_cast<unsigned short>(r * kChannels + threadIdx.x);
        }
    }
    __syncthreads();
    if (again.count == 0) return;
    const int64_t start = int64_t(head) * S * D + column % channel_tiles * kChannels;
    redo<kRows>({q + start, k + start, v + start, y + start, S, D, c.scale}, counts, first, last, again);
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
                keys[n] = msbench::to_float(c.k[at]);
                values[n] = msbench::to_float(c.v[at]);
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
                        const float weight = power_of_two(query[r] * keys[n]);
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

template <int kRows>
cudaError_t launch(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask, scalar_t* y, int64_t B, int64_t H,
                   int64_t S, int64_t D, cudaStream_t stream) {
    const int row_tiles = int(msbench::ceil_div(S, kRows)), channel_tiles = int(msbench::ceil_div(D, kChannels));
    const int threads = int(D < kChannels ? msbench::ceil_div(D, 32) * 32 : kChannels);
    const auto kernel = D == kChannels       ? attention<kChannels, kRows>
                        : D == 2 * kChannels ? attention<2 * kChannels, kRows>
                                             : attention<0, kRows>;
    kernel<<<unsigned(B * H * row_tiles * channel_tiles), threads, 0, stream>>>(q, k, v, mask, y, int(H), int(S), int(D), row_tiles,
                                                                                channel_tiles);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t triangle_attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask, scalar_t* y,
                                          int64_t B, int64_t H, int64_t S, int64_t D, void*, size_t, cudaStream_t stream) {
    const int64_t row_tiles = msbench::ceil_div(S, kFewRows), channel_tiles = msbench::ceil_div(D, 32);
    const int64_t tiles = B * H * row_tiles * channel_tiles;
    if (tiles <= kFewTiles) {
        const int warps = int(std::min({int64_t(kMostWarps), msbench::ceil_div(S, kFewKeys), kResidentWarps / tiles}));
        const dim3 grid(unsigned(H * channel_tiles), unsigned(B), unsigned(row_tiles));
        few_tiles<<<grid, 32 * warps, warps * kFewRows * 32 * 2 * sizeof(float), stream>>>(
            q, k, v, mask, y, int(S), int(D), 1.44269504f / std::sqrt(float(D)), int(channel_tiles));
        return cudaGetLastError();
    }
    const auto plan = B * H * S * D < kFewElements ? launch<4> : launch<8>;
    return plan(q, k, v, mask, y, B, H, S, D, stream);
}
