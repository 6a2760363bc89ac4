// C = A B in fp32 arithmetic (no tensor cores: their TF32 inputs would keep 10 of 23 bits).
//
// Idea: a block computes a 128 x 128 tile of C (64 x 128 where C is flat), a thread 8 x 8 of it in registers, so that
// sixteen floats read from shared memory feed 64 multiply-adds. Panels of A and B, 16 deep, arrive by cp.async while
// the previous ones are multiplied; A is transposed on the way, four bytes at a time, so that both are read back as
// conflict-free 16-byte vectors. Copies past an edge fill in zeros. Where C has too few tiles for the GPU, K is cut
// into slices whose partial products meet in a second launch, always in the same order.
//
// Bound: 2 M N K flops on the fp32 units; one launch, two for a small C.

#include "msbench.cuh"

namespace {

constexpr int TILE_N = 128, TILE_K = 16;
constexpr int THREAD_TILE = 8;      // a thread computes 2 x 2 squares of 4 x 4
constexpr int PAD = 4;              // floats after each row of the transposed panel of A: spreads its banks
constexpr int BLOCKS_WANTED = 264;  // two on each of 132 multiprocessors
constexpr int MAX_SLICES = 16, MIN_SLICE = 256;
constexpr int REDUCE_THREADS = 256;

// Copies SIZE bytes to shared memory without passing through registers; zeros, and nothing is read, where `inside` is
// false.
template <int SIZE>
__device__ void copy_async(float* shared, const float* global, bool inside) {
    const unsigned destination = unsigned(__cvta_generic_to_shared(shared));
    const int bytes = inside ? SIZE : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(destination), "l"(global), "n"(SIZE),
                 "r"(bytes)
                 : "memory");
}

__device__ void commit_copies() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

__device__ void wait_for_copies() {
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
}

template <int TILE_M>
struct Shape {
    static constexpr int THREADS = TILE_M * TILE_N / (THREAD_TILE * THREAD_TILE);
    static constexpr int STRIDE_A = TILE_M + PAD;
    static constexpr int PANEL_A = TILE_K * STRIDE_A, PANEL_B = TILE_K * TILE_N;
    static constexpr int STAGE = PANEL_A + PANEL_B;
    static constexpr int SHARED_BYTES = 2 * STAGE * int(sizeof(float));
};

// Starts the copies of A[row : row + TILE_M, k : k + TILE_K], transposed, and B[k : k + TILE_K, column : column +
// TILE_N].
template <int TILE_M, bool VECTORS>
__device__ void copy_panels(float* stage, const float* A, const float* B, int row, int column, int k, int end_k, int M,
                            int N, int K) {
    using S = Shape<TILE_M>;
    const int depth = min(end_k - k, TILE_K);
    {
        constexpr int STEP = S::THREADS / TILE_K;  // rows of A that the block copies at a time
        const int height = min(M - row, TILE_M);
        const int at_k = threadIdx.x % TILE_K, at_m = threadIdx.x / TILE_K;
        const float* from = A + (row + at_m) * K + k + at_k;
        float* to = stage + at_k * S::STRIDE_A + at_m;
#pragma unroll
        for (int i = 0; i < TILE_M; i += STEP) {
            copy_async<4>(to + i, from, at_k < depth && at_m + i < height);
            from += STEP * K;
        }
    }
    {
        constexpr int WIDTH = VECTORS ? 4 : 1;
        constexpr int STEP = S::THREADS * WIDTH / TILE_N;  // rows of B that the block copies at a time
        const int width = min(N - column, TILE_N);
        const int at_n = threadIdx.x % (TILE_N / WIDTH) * WIDTH, at_k = threadIdx.x / (TILE_N / WIDTH);
        const float* from = B + (k + at_k) * N + column + at_n;
        float* to = stage + S::PANEL_A + at_k * TILE_N + at_n;
#pragma unroll
        for (int i = 0; i < TILE_K; i += STEP) {
            copy_async<4 * WIDTH>(to + i * TILE_N, from, at_k + i < depth && at_n < width);
            from += STEP * N;
        }
    }
    commit_copies();
}

// One tile of one slice of K. `C` has gridDim.z layers, one a slice. Dimensions are at most 2^14, so 32-bit offsets do.
template <int TILE_M, bool VECTORS>
__global__ void __launch_bounds__(Shape<TILE_M>::THREADS, TILE_M == 64 ? 3 : 2)
    multiply(const float* A, const float* B, float* C, int M, int N, int K, int slice) {
    using S = Shape<TILE_M>;
    extern __shared__ __align__(16) float stages[];
    const int column = blockIdx.x * TILE_N, row = blockIdx.y * TILE_M;
    const int first_k = blockIdx.z * slice, end_k = min(first_k + slice, K);

    // A warp covers 16 x 32 of each quadrant, a lane 4 x 4: its reads of A and of B are one 128-byte wavefront each.
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int at_m = warp / 2 * 16 + lane / 8 * 4, at_n = warp % 2 * 32 + lane % 8 * 4;

    float sums[THREAD_TILE][THREAD_TILE] = {};
    copy_panels<TILE_M, VECTORS>(stages, A, B, row, column, first_k, end_k, M, N, K);
    int current = 0;
    for (int k = first_k; k < end_k; k += TILE_K) {
        wait_for_copies();
        __syncthreads();
        const float* a_panel = stages + current * S::STAGE;
        const float* b_panel = a_panel + S::PANEL_A;
        current ^= 1;
        if (k + TILE_K < end_k) {
            copy_panels<TILE_M, VECTORS>(stages + current * S::STAGE, A, B, row, column, k + TILE_K, end_k, M, N, K);
        }
#pragma unroll
        for (int i = 0; i < TILE_K; ++i) {
            float a[THREAD_TILE], b[THREAD_TILE];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float4 a4 =
                    *reinterpret_cast<const float4*>(a_panel + i * S::STRIDE_A + half * (TILE_M / 2) + at_m);
                const float4 b4 = *reinterpret_cast<const float4*>(b_panel + i * TILE_N + half * (TILE_N / 2) + at_n);
                a[4 * half] = a4.x, a[4 * half + 1] = a4.y, a[4 * half + 2] = a4.z, a[4 * half + 3] = a4.w;
                b[4 * half] = b4.x, b[4 * half + 1] = b4.y, b[4 * half + 2] = b4.z, b[4 * half + 3] = b4.w;
            }
#pragma unroll
            for (int m = 0; m < THREAD_TILE; ++m) {
#pragma unroll
                for (int n = 0; n < THREAD_TILE; ++n) sums[m][n] = fmaf(a[m], b[n], sums[m][n]);
            }
        }
    }

    C += blockIdx.z * M * N;
#pragma unroll
    for (int m = 0; m < THREAD_TILE; ++m) {
        const int to_row = row + m / 4 * (TILE_M / 2) + at_m + m % 4;
        if (to_row >= M) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int to_column = column + half * (TILE_N / 2) + at_n;
            float* to = C + to_row * N + to_column;
            const float* from = sums[m] + 4 * half;
            if constexpr (VECTORS) {
                if (to_column < N)
                    __stcg(reinterpret_cast<float4*>(to), make_float4(from[0], from[1], from[2], from[3]));
            } else {
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    if (to_column + n < N) to[n] = from[n];
                }
            }
        }
    }
}

__global__ void __launch_bounds__(REDUCE_THREADS)
    add_slices(const float* partials, float* C, int64_t elements, int slices) {
    const int64_t i = int64_t(blockIdx.x) * REDUCE_THREADS + threadIdx.x;
    if (i >= elements) return;
    float sum = 0.0f;
#pragma unroll 4
    for (int s = 0; s < slices; ++s) sum += partials[s * elements + i];
    C[i] = sum;
}

int tile_rows(int64_t M) {
    return M <= 64 ? 64 : 128;
}

// Into how many slices K is cut.
int slice_count(int64_t M, int64_t N, int64_t K) {
    const int64_t tiles = msbench::ceil_div(M, tile_rows(M)) * msbench::ceil_div(N, TILE_N);
    int64_t slices = BLOCKS_WANTED / tiles;
    if (slices > K / MIN_SLICE) slices = K / MIN_SLICE;
    if (slices > MAX_SLICES) slices = MAX_SLICES;
    return slices > 1 ? int(slices) : 1;
}

template <int TILE_M, bool VECTORS>
void launch(const float* A, const float* B, float* C, int64_t M, int64_t N, int64_t K, int slices,
            cudaStream_t stream) {
    const int slice = int(msbench::ceil_div(msbench::ceil_div(K, slices), TILE_K)) * TILE_K;
    const dim3 blocks(unsigned(msbench::ceil_div(N, TILE_N)), unsigned(msbench::ceil_div(M, TILE_M)), unsigned(slices));
    multiply<TILE_M, VECTORS><<<blocks, Shape<TILE_M>::THREADS, Shape<TILE_M>::SHARED_BYTES, stream>>>(
        A, B, C, int(M), int(N), int(K), slice);
}

}  // namespace

extern "C" size_t matrix_mul_workspace(int64_t M, int64_t N, int64_t K) {
    const int slices = slice_count(M, N, K);
    return slices > 1 ? slices * M * N * sizeof(float) : 0;
}

extern "C" cudaError_t matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K,
                                  void* workspace, size_t, cudaStream_t stream) {
    const int slices = slice_count(M, N, K);
    float* product = slices > 1 ? static_cast<float*>(workspace) : C;
    const bool vectors = N % 4 == 0 && (uintptr_t(B) | uintptr_t(product)) % 16 == 0;
    if (tile_rows(M) == 64) {
        if (vectors) launch<64, true>(A, B, product, M, N, K, slices, stream);
        else launch<64, false>(A, B, product, M, N, K, slices, stream);
    } else {
        if (vectors) launch<128, true>(A, B, product, M, N, K, slices, stream);
        else launch<128, false>(A, B, product, M, N, K, slices, stream);
    }
    if (slices > 1) {
        const unsigned blocks = unsigned(msbench::ceil_div(M * N, REDUCE_THREADS));
        add_slices<<<blocks, REDUCE_THREADS, 0, stream>>>(product, C, M * N, slices);
    }
    return cudaGetLastError();
}
