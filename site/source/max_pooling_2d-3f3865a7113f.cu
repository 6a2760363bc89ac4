// max_pooling_2d: every load before the first maximum, padding for nothing.
//
// Idea: bytes decide, so each element is loaded once or twice (from L1), and all loads of a thread precede its first maximum. Padding
// costs nothing: a row or column beyond the image is replaced by the nearest one within, which every window at an edge contains
// anyway, and taking an element twice changes no maximum. Four plans:
//   lanes  vectors of some rows a lane, and their neighbours by shuffles (msbench_pool_lanes.cuh): most aligned images.
//   rows   all columns of a few rows a block: an aligned vector a row and what windows need beside it. Outputs go through shared memory,
//          where rows of odd length become whole packets: large images where lanes would have to store by element. Directly, where
//          rows of y are whole vectors.
//   pool   V columns x R rows a thread, loads by element: any alignment.
//   any    a thread an output: other k and strides.
// Bound: each array once at copy speed, 240 and 120 us in the large case (64 x 64 x 224 x 224, k = 3, stride 2).
//
// Measured (H200, 2026-11-26), us cold, without the lanes behind: fp32 16x3x608x608 k 2: 37.2, k 3: 39.2 (padded 36.9) 43.7 (39.9), k 4 stride 2: 25.8 28;
// 4x3x224x224 k 2: 6.4 6.9, k 3: 6.4 7.4, k 4: 6.2 6.7. bf16: 21.9, 21.9 (20.7) 21.9 (24.2), 16.6 (15.8) 17.6 (16.9); 5.9 6.2, 5.7 6.2, 5.7 6.1.
// Lost: one output a lane in blocks of 64 threads (1.9 to 5 times as long); lanes for rows that they store by element at 24x512x512 and more
// (bf16: k 2 16 to 20 %, k 3 7 to 9 %; fp32: k 2 5 %); in rows and pool, -inf for padding.
#include "msbench_divisor.cuh"
#include "msbench_pool_lanes.cuh"
#include "msbench_window_pairs.cuh"

namespace {

using namespace msbench;

constexpr int kThreads = 256;
constexpr int kMostThreads = 512;      // of a block that has whole rows
constexpr int kMostShared = 48 << 10;  // without an attribute
constexpr int64_t kFew = 1 << 20, kSome = 1 << 21;  // outputs; fewer hang on latency (0.6 M are few, 1.6 M some, 6 M many)

struct Sizes {
    int H, W, rows, columns, padding;
    unsigned threads;  // of the grid, in pool
    Divisor groups;    // of V columns
    Divisor strips;    // of R rows of an image; in pool_rows, blocks of an image
};

// ---------------------------------------------------------------- pool
template <int K, int S, int V, int R>
__global__ void __launch_bounds__(kThreads) pool(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, Sizes z) {
    constexpr int kWide = (V - 1) * S + K, kHigh = (R - 1) * S + K;
    const unsigned thread = blockIdx.x * unsigned(kThreads) + threadIdx.x;
    if (thread >= z.threads) return;
    const unsigned rest = z.groups.quotient(thread), image = z.strips.quotient(rest);
    const int j = int(thread - rest * z.groups.d) * V, i = int(rest - image * z.strips.d) * R;
    const scalar_t* const from = x + int64_t(image) * z.H * z.W;
    int column[kWide];
#pragma unroll
    for (int b = 0; b < kWide; ++b) column[b] = min(max(j * S - z.padding + b, 0), z.W - 1);
    scalar_t in[kHigh][kWide];
#pragma unroll
    for (int a = 0; a < kHigh; ++a) {
        const int row = min(max(i * S - z.padding + a, 0), z.H - 1) * z.W;
#pragma unroll
        for (int b = 0; b < kWide; ++b) in[a][b] = from[row + column[b]];
    }
    scalar_t wide[kHigh][V];  // the largest of K in a row
#pragma unroll
    for (int a = 0; a < kHigh; ++a)
#pragma unroll
        for (int v = 0; v < V; ++v) {
            wide[a][v] = in[a][v * S];
#pragma unroll
            for (int b = 1; b < K; ++b) wide[a][v] = larger(wide[a][v], in[a][v * S + b]);
        }
    scalar_t* const to = y + int64_t(image) * z.rows * z.columns;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if (i + r >= z.rows) break;
#pragma unroll
        for (int v = 0; v < V; ++v) {
            scalar_t out = wide[r * S][v];
#pragma unroll
            for (int a = 1; a < K; ++a) out = larger(out, wide[r * S + a][v]);
            if (j + v < z.columns) to[(i + r) * z.columns + j + v] = out;
        }
    }
}

// ---------------------------------------------------------------- rows
// A block has all columns of `strips` times R rows, which lie together in y. A thread loads vectors of V S elements and their neighbours.
// Three blocks at least where nothing goes through shared memory: otherwise the compiler sinks loads to save registers it need not save
// (bf16 large 123 instead of 118 us); the others are faster with what it chooses.
template <int K, int S, int P, int V, int R, bool kDirect>
__global__ void __launch_bounds__(kMostThreads, kDirect && P == 1 ? 3 : 0)
    pool_rows(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, Sizes z, int strips) {
    constexpr int G = V * S, kHigh = (R - 1) * S + K, kRight = K - S - P, kPacket = msbench::Packet<scalar_t>::kSize;
    struct alignas(G * sizeof(scalar_t)) In {
        Pair pair[G / 2];
    };
    struct alignas(V * sizeof(scalar_t)) Out {
        Pair pair[V / 2];
    };
    extern __shared__ __align__(16) unsigned char shared[];
    scalar_t* const collected = reinterpret_cast<scalar_t*>(shared);
    const unsigned image = z.strips.quotient(blockIdx.x);
    const int top = int(blockIdx.x - image * z.strips.d) * strips * R, here = min(strips * R, z.rows - top);
    scalar_t* const to = y + (int64_t(image) * z.rows + top) * z.columns;
    const int shift = int(reinterpret_cast<uintptr_t>(to) / sizeof(scalar_t) % kPacket);  // packets in shared memory are those of y

    const int strip = int(z.groups.quotient(threadIdx.x)), i = strip * R, j = (int(threadIdx.x) - strip * int(z.groups.d)) * V;
    if (strip < strips && i < here) {
        const scalar_t* const from = x + int64_t(image) * z.H * z.W;
        const bool beyond = j * S >= z.W;  // only where a window has one element and then padding
        const int column = min(j * S, z.W - G), left = beyond ? z.W - 1 : max(j * S - 1, 0);
        const int right = min(j * S + G, z.W - (P ? 1 : 2));
        In in[kHigh];
        scalar_t before[kHigh];
        Pair after[kHigh];
#pragma unroll
        for (int a = 0; a < kHigh; ++a) {
            const scalar_t* const row = from + min(max((top + i) * S - P + a, 0), z.H - 1) * z.W;
            in[a] = *reinterpret_cast<const In*>(row + column);
            if (P) before[a] = row[left];
            if (kRight == 2) after[a] = *reinterpret_cast<const Pair*>(row + right);
            if (kRight == 1) after[a] = both(row[right]);
        }
        Pair wide[kHigh][V / 2];
#pragma unroll
        for (int a = 0; a < kHigh; ++a) {
            Pair w[G / 2 + 2];
#pragma unroll
            for (int e = 0; e < G / 2; ++e) w[e + 1] = in[a].pair[e];
            w[0] = P ? both(before[a]) : w[1];
            w[G / 2 + 1] = kRight > 0 ? after[a] : w[1];
            if (P && K == 2 && beyond) w[1] = w[0];
            across<K, S, P, V>(w, wide[a]);
        }
        const int at = i * z.columns + j;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            if (i + r >= here) break;
            Out out;
#pragma unroll
            for (int v = 0; v < V / 2; ++v) {
                out.pair[v] = wide[r * S][v];
#pragma unroll
                for (int a = 1; a < K; ++a) out.pair[v] = larger(out.pair[v], wide[r * S + a][v]);
                scalar_t* const place = collected + shift + at + r * z.columns + 2 * v;
                if (!kDirect && j + 2 * v < z.columns) place[0] = first(out.pair[v]);
                if (!kDirect && j + 2 * v + 1 < z.columns) place[1] = second(out.pair[v]);
            }
            if (kDirect) *reinterpret_cast<Out*>(to + at + r * z.columns) = out;
        }
    }
    if constexpr (!kDirect) {
        __syncthreads();
        const int end = shift + here * z.columns;
        for (int c = threadIdx.x * kPacket; c < end; c += blockDim.x * kPacket) {
            if (c >= shift && c + kPacket <= end)
                *reinterpret_cast<uint4*>(to - shift + c) = *reinterpret_cast<const uint4*>(collected + c);
            else
                for (int e = max(c, shift); e < min(c + kPacket, end); ++e) to[e - shift] = collected[e];
        }
    }
}

// ---------------------------------------------------------------- any
__global__ void __launch_bounds__(kThreads) pool_any(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t outputs,
                                                     int H, int W, int rows, int columns, int k, int stride, int padding) {
    const int64_t at = blockIdx.x * int64_t(kThreads) + threadIdx.x;
    if (at >= outputs) return;
    const int64_t line = at / columns, image = line / rows;
    const int j = int(at - line * columns) * stride - padding, i = int(line - image * rows) * stride - padding;
    const scalar_t* const from = x + image * H * W;
    const int top = max(i, 0), bottom = min(i + k, H), left = max(j, 0), right = min(j + k, W);
    scalar_t out = from[top * W + left];
    for (int a = top; a < bottom; ++a)
        for (int b = left; b < right; ++b) out = larger(out, from[a * W + b]);
    y[at] = out;
}

// ---------------------------------------------------------------- plans
struct Problem {
    const scalar_t* x;
    scalar_t* y;
    int64_t images;
    int H, W, rows, columns, padding;
    cudaStream_t stream;

    static bool aligned(const void* p, int elements) {
        return reinterpret_cast<uintptr_t>(p) % (elements * sizeof(scalar_t)) == 0;
    }

    // These return whether the plan takes the problem.
    template <int K, int S, int V, int R>
    bool elements() const {
        const unsigned groups = unsigned(columns + V - 1) / V, strips = unsigned(rows + R - 1) / R;
        const int64_t threads = images * groups * strips;
        if (threads >= int64_t(1) << 31) return false;
        const Sizes sizes{H, W, rows, columns, padding, unsigned(threads), Divisor(groups), Divisor(strips)};
        pool<K, S, V, R><<<unsigned(msbench::ceil_div(threads, kThreads)), kThreads, 0, stream>>>(x, y, sizes);
        return true;
    }
    template <int K, int S, int P, int V, int R>
    bool whole_rows() const {
        const int groups = (columns + V - 1) / V, strips = groups < kThreads ? kThreads / groups : 1, chunk = strips * R;
        const int64_t chunks = msbench::ceil_div(rows, chunk), blocks = images * chunks;
        const bool direct = K == 3 && S == 2 && columns % V == 0 && aligned(y, V);
        const size_t bytes = direct ? 0 : (size_t(chunk) * columns + 16) * sizeof(scalar_t);
        if (padding != P || W % (V * S) != 0 || !aligned(x, V * S)) return false;
        if (groups > kMostThreads || bytes > kMostShared || blocks >= int64_t(1) << 31) return false;
        const Sizes sizes{H, W, rows, columns, padding, 0, Divisor(unsigned(groups)), Divisor(unsigned(chunks))};
        const auto kernel = direct ? pool_rows<K, S, P, V, R, K == 3 && S == 2> : pool_rows<K, S, P, V, R, false>;
        kernel<<<unsigned(blocks), unsigned(groups * strips + 31) / 32 * 32, bytes, stream>>>(x, y, sizes, strips);
        return true;
    }
    template <int K, int S, int V, int R>
    bool vectors() const {
        return whole_rows<K, S, 0, V, R>() || whole_rows<K, S, 1, V, R>();
    }
    template <int K, int S, int V, int R>
    bool lanes() const {
        const PoolShape shape{int(images), H, W, rows, columns};
        if (padding == 0) return pool_by_lanes<LanePlan<K, S, 0, V, R>>(x, y, shape, stream);
        return padding == 1 && pool_by_lanes<LanePlan<K, S, 1, V, R>>(x, y, shape, stream);
    }
    template <int K, int S, int V, int R>
    bool padded_lanes() const {  // where rows of y are whole vectors
        return padding == 1 && pool_by_lanes<LanePlan<K, S, 1, V, R>, true>(x, y, {int(images), H, W, rows, columns}, stream);
    }

    bool specialised(int k, int s) const {
        const int64_t outputs = images * rows * columns;
        const bool few = outputs < kFew, some = outputs < kSome;
#if MSBENCH_FP32
        if (k == 2 && s == 1) return (some && lanes<2, 1, 4, 2>()) || (!few && vectors<2, 1, 2, 4>()) || elements<2, 1, 2, 2>();
        if (k == 3 && s == 1) return lanes<3, 1, 4, 2>() || elements<3, 1, 2, 2>();
        if (k == 4 && s == 2) return (few ? lanes<4, 2, 2, 1>() : lanes<4, 2, 2, 2>()) || elements<4, 2, 1, 2>();
        if (k == 3 && s == 2) return vectors<3, 2, 2, 4>() || elements<3, 2, 1, 2>();
#else
        if (k == 3 && s == 1 && (padded_lanes<3, 1, 8, 4>() || padded_lanes<3, 1, 4, 4>())) return true;
        if (k == 4 && s == 2 && !some && padded_lanes<4, 2, 4, 2>()) return true;
        if (k == 2 && s == 1 && some && (few ? lanes<2, 1, 2, 4>() : lanes<2, 1, 2, 8>())) return true;
        if (k == 3 && s == 1 && some && (few ? lanes<3, 1, 2, 4>() : lanes<3, 1, 2, 8>())) return true;
        if (k == 2 && s == 1) return vectors<2, 1, 4, 4>() || elements<2, 1, 2, 2>();
        if (k == 3 && s == 1) return vectors<3, 1, 4, 4>() || elements<3, 1, 2, 2>();
        if (k == 4 && s == 2) return lanes<4, 2, 2, 2>() || elements<4, 2, 2, 2>();
        if (k == 3 && s == 2) return vectors<3, 2, 4, 4>() || vectors<3, 2, 2, 2>() || elements<3, 2, 2, 2>();
#endif
        return false;
    }
};

}  // namespace

extern "C" cudaError_t max_pooling_2d(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, int64_t H, int64_t W, int64_t k,
                                      int64_t stride, int64_t padding, void*, size_t, cudaStream_t stream) {
    const int64_t rows = (H + 2 * padding - k) / stride + 1, columns = (W + 2 * padding - k) / stride + 1;
    const int64_t outputs = N * C * rows * columns;
    const Problem problem{x, y, N * C, int(H), int(W), int(rows), int(columns), int(padding), stream};
    if (!problem.specialised(int(k), int(stride))) {
        pool_any<<<unsigned(msbench::ceil_div(outputs, kThreads)), kThreads, 0, stream>>>(
            x, y, outputs, int(H), int(W), int(rows), int(columns), int(k), int(stride), int(padding));
    }
    return cudaGetLastError();
}
