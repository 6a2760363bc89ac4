// Banded matrices as in msbench_bands.cuh, multiplied by wgmma, for large images and filters.
//
// Without swizzle a K-major operand is 8 x 8 cores of 128 contiguous bytes, eight rows of 16: an image row in shared memory *is* such a core
// of 8 overlapping positions, and the core of the next 8 k starts 16 bytes later. M = 64 is eight strips of 64 columns below each other; N is 8
// columns of each of up to 16 output rows of a strip. For image row t the output rows i that it belongs to have filter rows t - i: bands
// stored with a descending are one B of 8 columns a row, its start depends on t, and D is a run of the accumulators. So no MMA is wasted
// at the ends of a strip: shapes from m64n8 to m64n128.
//
// Trap: wgmmas whose runs of accumulators overlap but differ race. ptxas waits between them if their shapes differ, but where the run
// slides (the same shape, one row on) it does not. So each change of the run waits.
#pragma once

#include "msbench.cuh"
#include "msbench_async.cuh"
#include "msbench_wgmma.cuh"

namespace msbench {

#define MSBENCH_O(k) "+f"(d[f + k][0]), "+f"(d[f + k][1]), "+f"(d[f + k][2]), "+f"(d[f + k][3])
#define MSBENCH_O1 MSBENCH_O(0)
#define MSBENCH_O2 MSBENCH_O1, MSBENCH_O(1)
#define MSBENCH_O3 MSBENCH_O2, MSBENCH_O(2)
#define MSBENCH_O4 MSBENCH_O3, MSBENCH_O(3)
#define MSBENCH_O5 MSBENCH_O4, MSBENCH_O(4)
#define MSBENCH_O6 MSBENCH_O5, MSBENCH_O(5)
#define MSBENCH_O7 MSBENCH_O6, MSBENCH_O(6)
#define MSBENCH_O8 MSBENCH_O7, MSBENCH_O(7)
#define MSBENCH_O9 MSBENCH_O8, MSBENCH_O(8)
#define MSBENCH_O10 MSBENCH_O9, MSBENCH_O(9)
#define MSBENCH_O11 MSBENCH_O10, MSBENCH_O(10)
#define MSBENCH_O12 MSBENCH_O11, MSBENCH_O(11)
#define MSBENCH_O13 MSBENCH_O12, MSBENCH_O(12)
#define MSBENCH_O14 MSBENCH_O13, MSBENCH_O(13)
#define MSBENCH_O15 MSBENCH_O14, MSBENCH_O(14)
#define MSBENCH_O16 MSBENCH_O15, MSBENCH_O(15)
#define MSBENCH_P1 "%0, %1, %2, %3"
#define MSBENCH_P2 MSBENCH_P1 ", %4, %5, %6, %7"
#define MSBENCH_P3 MSBENCH_P2 ", %8, %9, %10, %11"
#define MSBENCH_P4 MSBENCH_P3 ", %12, %13, %14, %15"
#define MSBENCH_P5 MSBENCH_P4 ", %16, %17, %18, %19"
#define MSBENCH_P6 MSBENCH_P5 ", %20, %21, %22, %23"
#define MSBENCH_P7 MSBENCH_P6 ", %24, %25, %26, %27"
#define MSBENCH_P8 MSBENCH_P7 ", %28, %29, %30, %31"
#define MSBENCH_P9 MSBENCH_P8 ", %32, %33, %34, %35"
#define MSBENCH_P10 MSBENCH_P9 ", %36, %37, %38, %39"
#define MSBENCH_P11 MSBENCH_P10 ", %40, %41, %42, %43"
#define MSBENCH_P12 MSBENCH_P11 ", %44, %45, %46, %47"
#define MSBENCH_P13 MSBENCH_P12 ", %48, %49, %50, %51"
#define MSBENCH_P14 MSBENCH_P13 ", %52, %53, %54, %55"
#define MSBENCH_P15 MSBENCH_P14 ", %56, %57, %58, %59"
#define MSBENCH_P16 MSBENCH_P15 ", %60, %61, %62, %63"
#define MSBENCH_SHAPE(n, N, A, B)                                                                                                        \
    if constexpr (count == n)                                                                                                            \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" MSBENCH_P##n "}, %" #A ", %" #B ", 1, 1, 1, 0, 0;" \
                     : MSBENCH_O##n                                                                                                  \
                     : "l"(a), "l"(b));

// Accumulators f to f + count - 1 += 64 x 16 of A, 16 x 8 count of B.
template <int f, int count, int kRows>
__device__ __forceinline__ void multiply_add_run(float (&d)[kRows][4], uint64_t a, uint64_t b) {
    MSBENCH_SHAPE(1, 8, 4, 5)
    MSBENCH_SHAPE(2, 16, 8, 9)
    MSBENCH_SHAPE(3, 24, 12, 13)
    MSBENCH_SHAPE(4, 32, 16, 17)
    MSBENCH_SHAPE(5, 40, 20, 21)
    MSBENCH_SHAPE(6, 48, 24, 25)
    MSBENCH_SHAPE(7, 56, 28, 29)
    MSBENCH_SHAPE(8, 64, 32, 33)
    MSBENCH_SHAPE(9, 72, 36, 37)
    MSBENCH_SHAPE(10, 80, 40, 41)
    MSBENCH_SHAPE(11, 88, 44, 45)
    MSBENCH_SHAPE(12, 96, 48, 49)
    MSBENCH_SHAPE(13, 104, 52, 53)
    MSBENCH_SHAPE(14, 112, 56, 57)
    MSBENCH_SHAPE(15, 120, 60, 61)
    MSBENCH_SHAPE(16, 128, 64, 65)
}

#undef MSBENCH_SHAPE
#undef MSBENCH_P16
#undef MSBENCH_O16
#undef MSBENCH_P15
#undef MSBENCH_O15
#undef MSBENCH_P14
#undef MSBENCH_O14
#undef MSBENCH_P13
#undef MSBENCH_O13
#undef MSBENCH_P12
#undef MSBENCH_O12
#undef MSBENCH_P11
#undef MSBENCH_O11
#undef MSBENCH_P10
#undef MSBENCH_O10
#undef MSBENCH_P9
#undef MSBENCH_O9
#undef MSBENCH_P8
#undef MSBENCH_O8
#undef MSBENCH_P7
#undef MSBENCH_O7
#undef MSBENCH_P6
#undef MSBENCH_O6
#undef MSBENCH_P5
#undef MSBENCH_O5
#undef MSBENCH_P4
#undef MSBENCH_O4
#undef MSBENCH_P3
#undef MSBENCH_O3
#undef MSBENCH_P2
#undef MSBENCH_O2
#undef MSBENCH_P1
#undef MSBENCH_O1
#undef MSBENCH_O

// bf16. kFilterRows: KH rounded up. kBlocks: of a multiprocessor, of one warp group each, which fill the gaps.
template <int kBlocksK, int kFilterRows, int kBlocks_>
struct WideBands {
    static constexpr int kRows = 16, kStrips = 8, kTeams = 1, kThreads = kGroupThreads, kBlocks = kBlocks_;
    static constexpr int kTileRows = kRows * kStrips, kColumns = 64;
    static constexpr int kPitch = kColumns + 8 * kBlocksK - 8;
    static constexpr int kPairs = 1;  // of outputs of a lane, beside each other: a warp has two strips
    static constexpr int kEven = kBlocksK / 2 * 2;  // blocks that pair up within a row; the last one pairs up with that of the next row
    static_assert(kBlocksK % 2 == 1, "a last block is left");
    // For each filter row kEven cores of 8 columns x 8 k, then for each two of neighbouring rows.
    static constexpr int kBandBytes = kFilterRows * kEven * 128, kFilterBytes = kBandBytes + (kFilterRows + 1) * 256;

    __host__ __device__ static int image_rows(int) { return kTileRows + kFilterRows; }  // the last meets zeros of a band only
    __host__ __device__ static int filter_bytes(int) { return kFilterBytes; }
    __host__ __device__ static int image_bytes(int rows) { return rows * kPitch * 2; }
    __device__ __forceinline__ static int team() { return 0; }
    __device__ __forceinline__ static int first_row() { return int(threadIdx.x / 32) * 2 * kRows; }

    // The filter on its way to shared memory: loaded before anything is waited for.
    template <typename T>
    struct Filter {
        static constexpr int kHeld = 32 * 32 / kThreads;
        T element[kHeld];

        __device__ __forceinline__ Filter(const T* w, int KH, int KW) {
#pragma unroll
            for (int k = 0; k < kHeld; ++k) {
                const int e = k * kThreads + threadIdx.x;
                element[k] = e < KH * KW ? w[e] : from_float<T>(0.0f);
            }
        }
        // Zeros for what lies around it.
        __device__ __forceinline__ void prepare(unsigned short* filter) const {
            for (int e = threadIdx.x; e < kFilterBytes / 16; e += kThreads) reinterpret_cast<uint4*>(filter)[e] = make_uint4(0, 0, 0, 0);
            __syncthreads();
        }
        // Element (n, k) of core c of filter row a is w[a][8 c + k - n].
        template <class Bits>
        __device__ __forceinline__ void place(unsigned short* filter, int KH, int KW, Bits bits) const {
            unsigned short* const pairs = filter + kBandBytes / 2;
#pragma unroll
            for (int i = 0; i < kHeld; ++i) {
                const int e = i * kThreads + threadIdx.x;
                if (e >= KH * KW) break;
                const int line = kFilterRows - 1 - e / KW, b = e % KW;
                const unsigned short value = static_cast<unsigned short>(bits(element[i]));
#pragma unroll
                for (int n = 0; n < 8; ++n) {
                    const int c = (b + n) / 8, at = n * 8 + (b + n) % 8;
                    if (c < kEven) filter[(line * kEven + c) * 64 + at] = value;
                    else pairs[line * 128 + at] = pairs[(line + 1) * 128 + 64 + at] = value;
                }
            }
            fence_shared_writes();
        }
    };

    struct Operands {
        uint64_t image, image_pair, bands, pairs;
    };

    // The run of output rows that image row t, or the pair of t and t + 1, belongs to.
    static constexpr int run_first(int t) { return t - kFilterRows + 1 > 0 ? t - kFilterRows + 1 : 0; }
    static constexpr int run_last(int t) { return t < kRows - 1 ? t : kRows - 1; }

    template <int first, int last, bool kChanged>
    __device__ __forceinline__ static void multiply(float (&sum)[kRows][4], uint64_t a, uint64_t b) {
        if constexpr (kChanged) mma_commit(), mma_wait<0>(), mma_fence();
        multiply_add_run<first, last - first + 1>(sum, a, b);
    }

    // Image row t of each strip, and all that follow it.
    template <int t>
    __device__ __forceinline__ static void multiply_rows(float (&sum)[kRows][4], const Operands& o) {
        if constexpr (t < kRows + kFilterRows - 1) {
            constexpr int first = run_first(t), last = run_last(t), pair_last = run_last(t + 1);
            constexpr int row = t * kPitch * 2 / 16, line = kFilterRows - 1 - t + first;  // descriptors count in 16 bytes
            constexpr bool kSlides = t > 0 && first != run_first(t - 1), kGrows = t % 2 == 0 && last != run_last(t - 1);
            multiply<first, last, kSlides || kGrows>(sum, o.image + row, o.bands + line * kEven * 8);
#pragma unroll
            for (int c = 2; c < kEven; c += 2) multiply<first, last, false>(sum, o.image + row + c, o.bands + (line * kEven + c) * 8);
            if constexpr (t % 2 == 0)
                multiply<first, pair_last, pair_last != last>(sum, o.image_pair + row + kEven, o.pairs + line * 16);
            multiply_rows<t + 1>(sum, o);
        }
    }

    // sum[i]: columns 2 l and 2 l + 1 of row i of the warp's first strip, then of its second, in lane l.
    __device__ __forceinline__ static void correlate(float (&sum)[kRows][4], char* tile, int, const unsigned short* filter, int) {
        const SharedAddress image = shared_address(tile), bands = shared_address(filter);
        const Operands o = {descriptor_cores(image, 16, kRows * kPitch * 2), descriptor_cores(image, kPitch * 2, kRows * kPitch * 2),
                            descriptor_cores(bands, 128, kEven * 128), descriptor_cores(bands + kBandBytes, 128, 256)};
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
            for (int k = 0; k < 4; ++k) sum[i][k] = 0;
        mma_fence();
        multiply_rows<0>(sum, o);
        mma_commit();
        mma_wait<0>();
#pragma unroll
        for (int i = 0; i < kRows; ++i) hold(sum[i]);
    }
};

}  // namespace msbench
