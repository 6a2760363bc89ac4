// Triangle attention, the best straightforward kernel: each thread has one channel and eight query rows, for which every key and
// value is loaded once. Keys come in chunks of eight: a row's largest score of a chunk is found first, so that sums are rescaled
// once a chunk. All threads of a block share their rows and batch, so that masked entries cost a branch that nobody diverges at.
#include <msbench.cuh>

constexpr int kRows = 8;
constexpr int kKeys = 8;
constexpr int kChannels = 128;
constexpr int kMaxWords = 2048 / 32;  // of a row's mask; S is at most 2048

// 2^x, with results below 2^-126 flushed to zero.
__device__ inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__global__ void __launch_bounds__(kChannels)
    triangle_attention_kernel(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask, scalar_t* y,
                              int64_t H, int S, int D, int row_tiles, int channel_tiles) {
    // A bit for each entry that counts: unmasked, and not above the diagonal.
    __shared__ uint32_t counts[kRows][kMaxWords];
    // Long rows first, so that the last blocks to run are short ones.
    const int64_t heads_and_channels = gridDim.x / row_tiles;
    const int first = (row_tiles - 1 - static_cast<int>(blockIdx.x / heads_and_channels)) * kRows;
    const int64_t rest = blockIdx.x % heads_and_channels;
    const int64_t head = rest / channel_tiles;
    const int channel = static_cast<int>(rest % channel_tiles) * kChannels + static_cast<int>(threadIdx.x);
    const int last = min(first + kRows, S) - 1;
    const int words = last / 32 + 1;

    const float* mask_of_batch = mask + head / H * S * S;
    const int lane = threadIdx.x % 32;
    for (int task = threadIdx.x / 32; task < kRows * words; task += blockDim.x / 32) {
        const int row = first + task / words;
        const int j = task % words * 32 + lane;
        const bool counted = row < S && j <= row && !(mask_of_batch[static_cast<int64_t>(row) * S + j] > 0.5f);
        const uint32_t bits = __ballot_sync(0xffffffffu, counted);
        if (lane == 0) counts[task / words][task % words] = bits;
    }
    __syncthreads();
    if (channel >= D) return;

    const int64_t base = head * S * D + channel;
    const float scale = 1.44269504f / sqrtf(static_cast<float>(D));  // to base 2
    float query[kRows], largest[kRows], sum[kRows] = {}, weighted[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        query[r] = first + r < S ? msbench::to_float(q[base + static_cast<int64_t>(first + r) * D]) * scale : 0.0f;
        largest[r] = -INFINITY;
    }
    for (int j = 0; j <= last; j += kKeys) {
        float keys[kKeys], values[kKeys];
#pragma unroll
        for (int n = 0; n < kKeys; ++n) {
            const int64_t at = base + static_cast<int64_t>(min(j + n, last)) * D;
            keys[n] = msbench::to_float(k[at]);
            values[n] = msbench::to_float(v[at]);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const uint32_t bits = counts[r][j / 32] >> j % 32;
            if ((bits & ((1u << kKeys) - 1)) == 0) continue;
            float top = largest[r];
#pragma unroll
            for (int n = 0; n < kKeys; ++n) {
                if (bits >> n & 1) top = fmaxf(top, query[r] * keys[n]);
            }
            // Where every score so far is -∞ nothing is subtracted, so that later ones find sums of zero and not NaN.
            const float shift = top == -INFINITY ? 0.0f : top;
            const float shrink = power_of_two(largest[r] - shift);
            largest[r] = top;
            float chunk_sum = 0, chunk_weighted = 0;
#pragma unroll
            for (int n = 0; n < kKeys; ++n) {
                if (bits >> n & 1) {
                    const float weight = power_of_two(fmaf(query[r], keys[n], -shift));
                    chunk_sum += weight;
                    chunk_weighted = fmaf(weight, values[n], chunk_weighted);
                }
            }
            sum[r] = fmaf(sum[r], shrink, chunk_sum);
            weighted[r] = fmaf(weighted[r], shrink, chunk_weighted);
        }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        if (first + r >= S) break;
        bool empty = true;
        for (int word = 0; word < words; ++word) empty = empty && counts[r][word] == 0;
        const float result = empty ? 0.0f : weighted[r] / sum[r];
        y[base + static_cast<int64_t>(first + r) * D] = msbench::from_float<scalar_t>(result);
    }
}

extern "C" cudaError_t triangle_attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask,
                                          scalar_t* y, int64_t B, int64_t H, int64_t S, int64_t D, void* workspace,
                                          size_t workspace_bytes, cudaStream_t stream) {
    const int row_tiles = static_cast<int>(msbench::ceil_div(S, kRows));
    const int channel_tiles = static_cast<int>(msbench::ceil_div(D, kChannels));
    const int threads = static_cast<int>(D < kChannels ? msbench::ceil_div(D, 32) * 32 : kChannels);
    const int64_t blocks = B * H * row_tiles * channel_tiles;
    triangle_attention_kernel<<<blocks, threads, 0, stream>>>(q, k, v, mask, y, H, static_cast<int>(S),
                                                              static_cast<int>(D), row_tiles, channel_tiles);
    return cudaGetLastError();
}
