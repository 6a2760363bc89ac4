// What fp32 attention in one pass (msbench_flash_split.cuh) does with a tile of scores: weights from them, a product with weights in
// registers, and a row by the definition, where two scaled fp16 parts can't hold its numbers.
#pragma once

#include "msbench_math.cuh"
#include "msbench_split.cuh"
#include "msbench_wgmma.cuh"

namespace msbench::flash_split {

constexpr int kQueries = 128, kKeys = 64, kWidth = 128, kStages = 2, kThreads = 3 * kGroupThreads;
constexpr int kPanels = kWidth / kPanelK, kKeyPanels = kKeys / kPanelK;                     // of a query or a key; of a tile's values
constexpr int kQueryBytes = kQueries * kPanelRowBytes, kKeyBytes = kKeys * kPanelRowBytes;  // a plane of a panel
constexpr int kValueBytes = kWidth * kPanelRowBytes;
constexpr int kQ = kPanels * kPlanes * kQueryBytes, kK = kPanels * kPlanes * kKeyBytes, kV = kKeyPanels * kPlanes * kValueBytes;
constexpr int kUnscales = kKeys * 4, kExchange = 17;  // float4 of a thread's row sums, when halves meet
constexpr int kSharedBytes = kQ + kStages * (kK + kV + kUnscales) + kExchange * 16 * kGroupThreads;
constexpr float kSlack = 1.0f, kTop = 14.0f;  // how far, to base 2, a score may exceed what is subtracted; the exponent of a weight then
constexpr float kHarmless = 0.125f;           // see `matters`

struct Shape {
    int queries, keys, width, columns, splits;  // width of Q and K, columns of V; splits: blocks of a cluster, which share the keys
    float scale;                                // of scores, so that weights are powers of two
    bool pairs;                                 // of y are aligned
};

// d = A B, or d += A B where `keep`: 64 x 16 from registers in the order of mma's A, and 16 x 128 with K fastest.
__device__ __forceinline__ void multiply_weights(float (&d)[64], const unsigned* a, uint64_t b, bool keep) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(keep)));
}

// What is subtracted from the scaled scores of a thread's two rows, -inf before the first that is not, and this thread's sums of weights.
struct State {
    float shift[2] = {-INFINITY, -INFINITY}, sum[2] = {};

    // Scores to weights, of which `left` count; `factor` is what older sums must be multiplied by. Whether that is not 1.
    template <bool kTail>
    __device__ __forceinline__ bool weigh(float (&s)[32], float (&factor)[2], const float (&scale)[2], int left, int lane) {
        float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            if (kTail && i / 4 * 8 + lane % 4 * 2 + i % 2 >= left) s[i] = -INFINITY;
            largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], s[i]);
        }
        bool moves = false;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 1));
            largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 2)) * scale[h];
            factor[h] = 1.0f;
            if (largest[h] > shift[h] + kSlack) {
                factor[h] = exp2_fast(shift[h] - largest[h]);
                shift[h] = largest[h];
                moves = true;
            }
        }
        const float origin[2] = {(shift[0] == -INFINITY ? 0.0f : shift[0]) - kTop, (shift[1] == -INFINITY ? 0.0f : shift[1]) - kTop};
        float sums[2][2] = {};
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            s[i] = exp2_fast(fmaf(s[i], scale[i / 2 % 2], -origin[i / 2 % 2]));
            sums[i / 2 % 2][i % 2] += s[i];
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) sum[h] = fmaf(sum[h], factor[h], sums[h][0] + sums[h][1]);
        return moves;
    }
};

// An element of a marked line is off by 2^-36 of the line's unscale at most, which the other line's elements, below 2^15 of theirs, enlarge. Whether
// that may be 2^-23 of a score, which is to base 2.
__device__ __forceinline__ bool matters(float a, float b, const Shape& shape) {
    return !(fabsf(a) * fabsf(b) * float(shape.width) * shape.scale < kHarmless);
}

// A warp computes a row by the definition.
__device__ __noinline__ void row_by_definition(const float* q, const float* k, const float* v, float* y, const Shape& shape) {
    const int lane = threadIdx.x % 32;
    const auto score = [&](int key) {
        float total = 0;
        if (key >= shape.keys) return -INFINITY;
        for (int i = 0; i < shape.width; ++i) total = fmaf(q[i], k[int64_t(key) * shape.width + i], total);
        return total * shape.scale;
    };
    float largest = -INFINITY;
    for (int key = lane; key < shape.keys; key += 32) largest = fmaxf(largest, score(key));
    largest = warp_reduce(largest, Max());
    float sum = 0, out[kWidth / 32] = {}, run[kWidth / 32];
    for (int first = 0; first < shape.keys; first += 32) {
        const float weight = first + lane < shape.keys ? exp2_fast(score(first + lane) - largest) : 0.0f;
        sum += weight;
#pragma unroll
        for (int c = 0; c < kWidth / 32; ++c) run[c] = 0;
        for (int i = 0; i < min(32, shape.keys - first); ++i) {
            const float w = __shfl_sync(0xffffffffu, weight, i);
#pragma unroll
            for (int c = 0; c < kWidth / 32; ++c) {
                if (c * 32 + lane < shape.columns) run[c] = fmaf(w, v[int64_t(first + i) * shape.columns + c * 32 + lane], run[c]);
            }
        }
#pragma unroll
        for (int c = 0; c < kWidth / 32; ++c) out[c] += run[c];
    }
    sum = warp_reduce(sum, Sum());
    for (int c = 0; c < kWidth / 32; ++c) {
        if (c * 32 + lane < shape.columns) y[c * 32 + lane] = out[c] / sum;
    }
}

}  // namespace msbench::flash_split
