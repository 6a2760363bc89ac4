// C[a,b,c] = sum over x, y of A[a,x,b,y] B[x,c,y]: the product of a matrix with rows (a, b) and one with columns c, both with k = (x, y).
//
// Idea: a row's elements lie in runs of y, and nothing has to be permuted: tensor cores may be given k in any order, a thread's 16-byte packet as it
// lies. Where runs are whole packets, small products come straight from registers (msbench_few_rows.cuh), and with K up to 512 and more, B
// stays in shared memory while A streams through registers: in bf16 by msbench_row_stream.cuh, in fp32 by msbench_split_stream.cuh.
//
// Longer K: in fp32 the split into two fp16 parts (msbench_split_product.cuh) reads runs from where they are; in bf16 TMA makes panels of them
// (`runs`): a box for each x, with rows of y, which wgmma reads in the swizzle of that size, so that the product is that of msbench_tiles.cuh.
// Other y than 16, 32, 64, and rows that make no whole boxes (`packed`): a first kernel writes rows one after another. What is small and
// has no packets is plain arithmetic in one launch (msbench_small_product.cuh).
//
// Measured (H100, 2026-11-26, cold; before): bf16 79.1 us (102) for 512 x 256 x 256, 16 x 32; 23.5 (35.0) for 256 x 256 x 128, 16 x 16, and 15.6 (17.1)
// with 8 x 8; fp32 307 (430), 50 to 54 (120), 30 to 31 (49.9). 64 x 32 x 48, 16 x 16: bf16 7.7 (8.4), fp32 10.8 (15.2). In fp32 plain arithmetic
// (msbench_short_sums.cuh) stays where K is 64 at most and products are few: 11.6 for 128 x 128 x 64, 8 x 8, streamed 12.4; 256 x 128 x 64: 17.7, 15.8.
//
// Bound (512 x 256 x 256, 16 x 32): bf16 201 MB, 47 us on an H200 and 67 on an H100, or 44 us of flops. fp32 402 MB, 94 and 133 us, or 129 us of
// flops, 6 for 2; each of four blocks splits all of A again for its 64 columns, which may be what is above that (not profiled).
#include "msbench_divisor.cuh"
#include "msbench_few_rows.cuh"
#include "msbench_small_product.cuh"
#if MSBENCH_BF16
#include "msbench_row_stream.cuh"
#include "msbench_tile_product.cuh"
#else
#include "msbench_short_sums.cuh"
#include "msbench_split_product.cuh"
#include "msbench_split_stream.cuh"
#endif

namespace {

using namespace msbench;
#if MSBENCH_BF16
namespace streaming = row_stream;
#else
namespace streaming = split_stream;
#endif

constexpr int64_t kSmall = int64_t(sizeof(scalar_t) == 2 ? 1 : 8) << 22;  // multiply-adds up to which plain arithmetic is faster
constexpr int64_t kFew = int64_t(1) << 25;                                // and those straight from registers

// Element (n, k) of either factor: n = (outer, inner), k = (x, y).
struct Factor {
    const scalar_t* data;
    int64_t outer_step, x_step;
    int count, K;
    Divisor inner, y;

    __device__ __forceinline__ const scalar_t* at(int n, int k) const {
        const int outer = int(inner.quotient(n)), x = int(y.quotient(k));
        return data + outer * outer_step + x * x_step + int64_t(n - outer * int(inner.d)) * y.d + (k - x * int(y.d));
    }
};

// The second factor of multiply_small, by (k, n).
struct Turned {
    Factor factor;
    __device__ __forceinline__ const scalar_t* at(int k, int n) const { return factor.at(n, k); }
};

#if MSBENCH_BF16

constexpr int kPackThreads = 256;

int64_t pitch_of(int64_t K) {
    return ceil_div(K, 8) * 8;
}

int64_t packed_bytes(int64_t count, int64_t K) {
    return ceil_div(count * pitch_of(K) * 2, 256) * 256;
}

// Writes the rows of both factors one after another, `row_packets` of 16 bytes each. kWhole: packets lie side by side in the factor, too.
template <bool kWhole>
__device__ __forceinline__ void pack_row(const Factor& f, Packet<scalar_t>* to, int64_t i, const Divisor& row_packets) {
    const int n = int(row_packets.quotient(unsigned(i))), k = int(i - int64_t(n) * row_packets.d) * 8;
    Packet<scalar_t> packet;
    if constexpr (kWhole) {
        packet = *reinterpret_cast<const Packet<scalar_t>*>(f.at(n, k));
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) packet.lane[j] = k + j < f.K ? *f.at(n, k + j) : scalar_t(0.0f);
    }
    to[i] = packet;
}

template <bool kWhole>
__global__ void __launch_bounds__(kPackThreads)
    pack_rows(const Factor left, const Factor right, Packet<scalar_t>* packed_left, Packet<scalar_t>* packed_right, const Divisor row_packets) {
    cudaTriggerProgrammaticLaunchCompletion();
    const int64_t i = int64_t(blockIdx.x) * kPackThreads + threadIdx.x, lefts = int64_t(left.count) * row_packets.d;
    if (i < lefts) pack_row<kWhole>(left, packed_left, i, row_packets);
    else if (i < lefts + int64_t(right.count) * row_packets.d) pack_row<kWhole>(right, packed_right, i - lefts, row_packets);
}

cudaError_t multiply_packed(const Factor& left, const Factor& right, scalar_t* C, void* workspace, cudaStream_t stream) {
    const int64_t M = left.count, N = right.count, K = left.K, packets = pitch_of(K) / 8;
    char* base = static_cast<char*>(workspace);
    auto* packed_left = reinterpret_cast<Packet<scalar_t>*>(base);
    auto* packed_right = reinterpret_cast<Packet<scalar_t>*>(base + packed_bytes(M, K));
    const bool whole = left.y.d % 8 == 0 && packets_allowed(left.data, right.data);
    const cudaError_t status = Launch(dim3(unsigned(ceil_div((M + N) * packets, kPackThreads))), dim3(kPackThreads), stream)(
        whole ? pack_rows<true> : pack_rows<false>, left, right, packed_left, packed_right, Divisor(uint32_t(packets)));
    if (status != cudaSuccess) return status;
    return multiply_tiles<false>({packed_left->lane, M, K, pitch_of(K)}, {packed_right->lane, N, K, pitch_of(K)}, C, N,
                                 base + packed_bytes(M, K) + packed_bytes(N, K), true, stream);
}

size_t product_bytes(int64_t M, int64_t N, int64_t K) {
    return size_t(packed_bytes(M, K) + packed_bytes(N, K)) + multiply_tiles_bytes<false>(M, N, K);
}

// Panels straight from the arrays: one box for each x, rows of kY elements, in the swizzle of that size. `b`: rows of A's inner index.
template <class T, int kY>
struct Runs {
    static constexpr bool kNFastest = false;
    static constexpr int kRowBytes = kY * 2;

    static __device__ __forceinline__ void copy(unsigned char* to_a, unsigned char* to_b, const CUtensorMap* a_map, const CUtensorMap* b_map,
                                                Barrier& filled, int row, int column, int k, int b) {
#pragma unroll
        for (int i = 0; i < tile_product::kTileK / kY; ++i) {
            copy_box(to_a + i * T::kTileM * kRowBytes, a_map, filled, 0, row % b, k / kY + i, row / b);
            copy_box(to_b + i * T::kTileN * kRowBytes, b_map, filled, 0, column, k / kY + i, 0);
        }
    }
    static __device__ __forceinline__ uint64_t start(SharedAddress at, int rows) {
        constexpr uint64_t kSwizzle = kY == 64 ? 1 : kY == 32 ? 2 : 3;
        return kSwizzle << 62 | descriptor_cores(at, rows * kRowBytes, 8 * kRowBytes);
    }
    static __device__ __forceinline__ uint64_t a_start(SharedAddress at) { return start(at, T::kTileM); }
    static __device__ __forceinline__ uint64_t b_start(SharedAddress at) { return start(at, T::kTileN); }
    static constexpr int offset(int step, int rows) { return step * kMmaK / kY * rows * kRowBytes + step * kMmaK % kY * 2; }
    static constexpr int a_offset(int step) { return offset(step, T::kTileM); }
    static constexpr int b_offset(int step) { return offset(step, T::kTileN); }
};

// Tiles of rows of A have to be whole boxes.
bool fits(const Factor& left, const Factor& right, int tile_m) {
    const int b = int(left.inner.d), y = int(left.y.d);
    const bool run = y == 16 || y == 32 || y == 64, box = b % tile_m == 0 || tile_m % b == 0;
    return run && box && packets_allowed(left.data, right.data);
}

template <class T, int kY>
cudaError_t multiply_runs(const Factor& left, const Factor& right, scalar_t* C, cudaStream_t stream) {
    const int64_t M = left.count, N = right.count, K = left.K, b = left.inner.d, x = K / kY;
    const TensorMaps maps;
    CUtensorMap a_map, b_map;
    const auto describe = [&](CUtensorMap* map, const scalar_t* data, int64_t rows, int64_t outer, int64_t box_rows, int64_t box_outer) {
        return maps.describe<4>(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, data, {kY, cuuint64_t(rows), cuuint64_t(x), cuuint64_t(outer)},
                                {kY * 2, cuuint64_t(rows * kY * 2), cuuint64_t(x * rows * kY * 2)}, {kY, cuuint32_t(box_rows), 1, cuuint32_t(box_outer)},
                                kY == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                : kY == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                           : CU_TENSOR_MAP_SWIZZLE_32B);
    };
    const int64_t box_rows = std::min<int64_t>(b, T::kTileM);
    cudaError_t status = describe(&a_map, left.data, b, M / b, box_rows, T::kTileM / box_rows);
    if (status == cudaSuccess) status = describe(&b_map, right.data, N, 1, T::kTileN, 1);
    if (status != cudaSuccess) return status;
    const tile_product::Shape shape{int(M), int(N), int(K), int(K), 1, N, N % 8 == 0 && packets_allowed(C)};
    return tile_product::launch<T, Runs<T, kY>, false>(a_map, b_map, C, shape, int(b), false, stream);
}

template <class T>
cudaError_t multiply_runs(const Factor& left, const Factor& right, scalar_t* C, cudaStream_t stream) {
    switch (left.y.d) {
        case 16: return multiply_runs<T, 16>(left, right, C, stream);
        case 32: return multiply_runs<T, 32>(left, right, C, stream);
        default: return multiply_runs<T, 64>(left, right, C, stream);
    }
}

cudaError_t multiply(const Factor& left, const Factor& right, scalar_t* C, void* workspace, cudaStream_t stream) {
    using tile_product::Tile;
    const bool wide = right.count > 64 && int64_t(left.count) * right.count >= 132 * 128 * 128;
    if (!fits(left, right, wide ? 128 : 64)) return multiply_packed(left, right, C, workspace, stream);
    if (wide && right.count > 128) return multiply_runs<Tile<2, 256, 4>>(left, right, C, stream);
    return wide ? multiply_runs<Tile<2, 128, 6>>(left, right, C, stream) : multiply_runs<Tile<1, 64, 8>>(left, right, C, stream);
}

#else

bool short_sums_pay(const Factor& left, const Factor& right) {
    return left.K <= 64 && int64_t(left.count) * right.count * left.K <= int64_t(1) << 26;
}

cudaError_t multiply(const Factor& left, const Factor& right, scalar_t* C, void* workspace, cudaStream_t stream) {
    const auto lines = [](const Factor& f) {
        return Lines{f.data, f.count, f.K, int(f.inner.d), int(f.y.d), f.outer_step, f.y.d, f.x_step, 1};
    };
    return multiply_split(lines(left), lines(right), C, right.count, workspace, false, stream);
}

size_t product_bytes(int64_t M, int64_t N, int64_t K) {
    return split_product_bytes(M, N, K);
}

#endif

// Whether lines are runs of whole packets, which need no copy.
bool in_packets(const Factor& left, const Factor& right) {
    return left.y.d % Packet<scalar_t>::kSize == 0 && packets_allowed(left.data, right.data);
}

RunFactor<scalar_t> runs_of(const Factor& f) {
    constexpr int kPacket = Packet<scalar_t>::kSize;
    return {f.data, f.outer_step, int(f.x_step), f.count, f.K / kPacket, f.inner, Divisor(f.y.d / kPacket)};
}

bool small(int64_t a, int64_t b, int64_t c, int64_t x, int64_t y) {
    return c <= 16 || a * b * c * x * y <= kSmall;
}

}  // namespace

extern "C" size_t high_order_contraction_workspace(int64_t a, int64_t b, int64_t c, int64_t x, int64_t y) {
    return small(a, b, c, x, y) ? 0 : product_bytes(a * b, c, x * y);
}

extern "C" cudaError_t high_order_contraction(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t a, int64_t b, int64_t c, int64_t x,
                                              int64_t y, void* workspace, size_t, cudaStream_t stream) {
    const Factor left{A, x * b * y, b * y, int(a * b), int(x * y), Divisor(uint32_t(b)), Divisor(uint32_t(y))};
    const Factor right{B, 0, c * y, int(c), int(x * y), Divisor(uint32_t(c)), Divisor(uint32_t(y))};
    if (in_packets(left, right)) {
        const RunFactor<scalar_t> l = runs_of(left), r = runs_of(right);
        if (a * b * c * x * y <= kFew) return few_rows::launch(l, r, C, stream);
#if !MSBENCH_BF16
        if (short_sums_pay(left, right)) return short_sums::launch(left, right, C, stream);
#endif
        if (streaming::fits(l, r)) return streaming::launch(l, r, C, stream);
    }
    if (small(a, b, c, x, y)) return multiply_small(left, Turned{right}, C, c, a * b, c, x * y, false, stream);
    return multiply(left, right, C, workspace, stream);
}
