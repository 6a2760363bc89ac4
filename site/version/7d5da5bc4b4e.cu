// C = A B: bf16 in and out, fp32 sums on the tensor cores (mma.sync m16n8k16).
//
// Idea: panels of A and B, 64 deep, run through a ring of shared-memory stages by cp.async, three ahead of the one
// being multiplied. A warp computes 64 x 64 (64 x 32 where C is small) from fragments that ldmatrix reads, B transposed
// on the way. Each 16-byte chunk of a panel row is stored at its place xor (row mod 8), so that the eight rows of an
// ldmatrix lie in different banks. Where C has too few tiles for the GPU, tiles are smaller and K is cut into slices
// whose partial products meet in a second launch, always in the same order. Matrices whose rows don't start on 16 bytes
// fill the same stages element by element.
//
// Bound: 2 M N K flops on the tensor cores, whose full rate on Hopper only wgmma reaches. One launch, two for a small C.

#include "msbench.cuh"

namespace {

constexpr int TILE_K = 64, STAGES = 4;
constexpr int CHUNK = 8;  // elements of a 16-byte chunk
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;
constexpr int64_t MULTIPROCESSORS = 132;
constexpr int64_t MAX_SLICES = 16, MIN_SLICE = 256;
constexpr int REDUCE_THREADS = 256;

template <int TILE_M_, int TILE_N_, int WARPS_M_, int WARPS_N_>
struct Shape {
    static constexpr int TILE_M = TILE_M_, TILE_N = TILE_N_;
    static constexpr int WARPS_N = WARPS_N_, THREADS = 32 * WARPS_M_ * WARPS_N_;
    static constexpr int WARP_M = TILE_M / WARPS_M_, WARP_N = TILE_N / WARPS_N_;
    static constexpr int PANEL_A = TILE_M * TILE_K, PANEL_B = TILE_K * TILE_N;
    static constexpr int STAGE = PANEL_A + PANEL_B;
    static constexpr int SHARED_BYTES = STAGES * STAGE * int(sizeof(scalar_t));
};
using Large = Shape<128, 256, 2, 4>;
using Small = Shape<64, 128, 1, 4>;

__device__ unsigned shared_address(const void* p) {
    return unsigned(__cvta_generic_to_shared(p));
}

// Copies 16 bytes to shared memory without passing through registers; zeros, and nothing is read, where `inside` is
// false.
__device__ void copy_async(scalar_t* shared, const scalar_t* global, bool inside) {
    const int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared_address(shared)), "l"(global), "n"(16),
                 "r"(bytes)
                 : "memory");
}

__device__ void commit_copies() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until at most STAGES - 2 groups of copies are under way: the oldest stage is there.
__device__ void wait_for_stage() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(STAGES - 2) : "memory");
}

// Four 8 x 8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ void load_matrices(unsigned (&r)[4], const scalar_t* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ void load_matrices_transposed(unsigned (&r)[4], const scalar_t* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Where chunk `chunk` of row `row` lies in a panel with rows of WIDTH elements.
template <int WIDTH>
__device__ int at(int row, int chunk) {
    return row * WIDTH + (chunk ^ (row % 8)) * CHUNK;
}

// Fills a HEIGHT x WIDTH panel from `from`, a matrix with `stride` elements a row, of which `rows` x `columns` may be
// read.
template <int HEIGHT, int WIDTH, int THREADS, bool VECTORS>
__device__ void fill_panel(scalar_t* panel, const scalar_t* from, int stride, int rows, int columns) {
    constexpr int CHUNKS = WIDTH / CHUNK;
    static_assert(HEIGHT * CHUNKS % THREADS == 0 && THREADS % CHUNKS == 0);
    const int chunk = threadIdx.x % CHUNKS;
#pragma unroll
    for (int i = 0; i < HEIGHT * CHUNKS / THREADS; ++i) {
        const int row = threadIdx.x / CHUNKS + i * (THREADS / CHUNKS);
        scalar_t* to = panel + at<WIDTH>(row, chunk);
        const scalar_t* source = from + int64_t(row) * stride + chunk * CHUNK;
        if constexpr (VECTORS) {
            copy_async(to, source, row < rows && chunk * CHUNK < columns);
        } else {
#pragma unroll
            for (int k = 0; k < CHUNK; ++k) {
                const bool inside = row < rows && chunk * CHUNK + k < columns;
                to[k] = inside ? source[k] : __float2bfloat16_rn(0.0f);
            }
        }
    }
}

template <typename S, bool VECTORS>
__device__ void fill_stage(scalar_t* stage, const scalar_t* A, const scalar_t* B, int row, int column, int k, int end_k,
                           int M, int N, int K) {
    if (k < end_k) {
        fill_panel<S::TILE_M, TILE_K, S::THREADS, VECTORS>(stage, A + int64_t(row) * K + k, K, M - row, end_k - k);
        fill_panel<TILE_K, S::TILE_N, S::THREADS, VECTORS>(stage + S::PANEL_A, B + int64_t(k) * N + column, N,
                                                           end_k - k, N - column);
    }
    commit_copies();  // an empty group beyond the end keeps the count of groups right
}

__device__ void store_pair(float* to, float x, float y) {
    __stcg(reinterpret_cast<float2*>(to), make_float2(x, y));
}

__device__ void store_pair(scalar_t* to, float x, float y) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    __stcg(reinterpret_cast<unsigned*>(to), reinterpret_cast<const unsigned&>(pair));
}

__device__ void store_one(float* to, float x) {
    *to = x;
}

__device__ void store_one(scalar_t* to, float x) {
    *to = __float2bfloat16_rn(x);
}

// One tile of one slice of K. `C` is the product itself, or has gridDim.y layers of fp32 partial products, one a slice.
template <typename S, bool VECTORS, typename Out>
__global__ void __launch_bounds__(S::THREADS, 1)
    multiply(const scalar_t* A, const scalar_t* B, Out* C, int M, int N, int K, int slice) {
    extern __shared__ __align__(128) scalar_t stages[];
    const int tiles_m = (M + S::TILE_M - 1) / S::TILE_M;
    const int row = blockIdx.x % tiles_m * S::TILE_M, column = blockIdx.x / tiles_m * S::TILE_N;
    const int first_k = blockIdx.y * slice, end_k = min(first_k + slice, K);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / S::WARPS_N * S::WARP_M, warp_n = warp % S::WARPS_N * S::WARP_N;

    float sums[S::WARP_M / MMA_M][S::WARP_N / MMA_N][4] = {};
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        fill_stage<S, VECTORS>(stages + i * S::STAGE, A, B, row, column, first_k + i * TILE_K, end_k, M, N, K);
    }
    int reading = 0, writing = STAGES - 1;
    for (int k = first_k; k < end_k; k += TILE_K) {
        wait_for_stage();
        __syncthreads();  // everyone's copies are there, and everyone has read the stage that is filled next
        fill_stage<S, VECTORS>(stages + writing * S::STAGE, A, B, row, column, k + (STAGES - 1) * TILE_K, end_k, M, N,
                               K);
        const scalar_t* a_panel = stages + reading * S::STAGE;
        const scalar_t* b_panel = a_panel + S::PANEL_A;
#pragma unroll
        for (int step = 0; step < TILE_K / MMA_K; ++step) {
            unsigned a[S::WARP_M / MMA_M][4], b[S::WARP_N / (2 * MMA_N)][4];
#pragma unroll
            for (int m = 0; m < S::WARP_M / MMA_M; ++m) {
                load_matrices(a[m], a_panel + at<TILE_K>(warp_m + m * MMA_M + lane % 16, step * 2 + lane / 16));
            }
#pragma unroll
            for (int n = 0; n < S::WARP_N / (2 * MMA_N); ++n) {
                load_matrices_transposed(
                    b[n], b_panel + at<S::TILE_N>(step * MMA_K + lane % 16, warp_n / CHUNK + n * 2 + lane / 16));
            }
#pragma unroll
            for (int m = 0; m < S::WARP_M / MMA_M; ++m) {
#pragma unroll
                for (int n = 0; n < S::WARP_N / MMA_N; ++n) {
                    multiply_add(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
                }
            }
        }
        reading = (reading + 1) % STAGES;
        writing = (writing + 1) % STAGES;
    }

    C += int64_t(blockIdx.y) * M * N;
#pragma unroll
    for (int m = 0; m < S::WARP_M / MMA_M; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int to_row = row + warp_m + m * MMA_M + half * 8 + lane / 4;
            if (to_row >= M) continue;
#pragma unroll
            for (int n = 0; n < S::WARP_N / MMA_N; ++n) {
                const int to_column = column + warp_n + n * MMA_N + lane % 4 * 2;
                Out* to = C + int64_t(to_row) * N + to_column;
                if constexpr (VECTORS) {
                    if (to_column < N) store_pair(to, sums[m][n][2 * half], sums[m][n][2 * half + 1]);
                } else {
                    if (to_column < N) store_one(to, sums[m][n][2 * half]);
                    if (to_column + 1 < N) store_one(to + 1, sums[m][n][2 * half + 1]);
                }
            }
        }
    }
}

__global__ void __launch_bounds__(REDUCE_THREADS)
    add_slices(const float* partials, scalar_t* C, int64_t elements, int slices) {
    const int64_t i = int64_t(blockIdx.x) * REDUCE_THREADS + threadIdx.x;
    if (i >= elements) return;
    float sum = 0.0f;
#pragma unroll 4
    for (int s = 0; s < slices; ++s) sum += partials[s * elements + i];
    C[i] = __float2bfloat16_rn(sum);
}

template <typename S>
int64_t tile_count(int64_t M, int64_t N) {
    return msbench::ceil_div(M, S::TILE_M) * msbench::ceil_div(N, S::TILE_N);
}

// Large tiles where they fill most of the GPU.
bool use_large(int64_t M, int64_t N) {
    return tile_count<Large>(M, N) * 10 >= MULTIPROCESSORS * 9;
}

// Into how many slices K is cut: small tiles, two blocks a multiprocessor.
int slice_count(int64_t M, int64_t N, int64_t K) {
    if (use_large(M, N)) return 1;
    int64_t slices = 2 * MULTIPROCESSORS / tile_count<Small>(M, N);
    if (slices > K / MIN_SLICE) slices = K / MIN_SLICE;
    if (slices > MAX_SLICES) slices = MAX_SLICES;
    return slices > 1 ? int(slices) : 1;
}

template <typename S, bool VECTORS, typename Out>
cudaError_t launch(const scalar_t* A, const scalar_t* B, Out* C, int64_t M, int64_t N, int64_t K, int slices,
                   cudaStream_t stream) {
    const auto kernel = multiply<S, VECTORS, Out>;
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES);
    if (error != cudaSuccess) return error;
    const int slice = int(msbench::ceil_div(msbench::ceil_div(K, slices), TILE_K)) * TILE_K;
    const dim3 blocks(unsigned(tile_count<S>(M, N)), unsigned(slices));
    kernel<<<blocks, S::THREADS, S::SHARED_BYTES, stream>>>(A, B, C, int(M), int(N), int(K), slice);
    return cudaGetLastError();
}

template <bool VECTORS>
cudaError_t multiply_all(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K,
                         float* partials, cudaStream_t stream) {
    if (use_large(M, N)) return launch<Large, VECTORS>(A, B, C, M, N, K, 1, stream);
    const int slices = slice_count(M, N, K);
    if (slices == 1) return launch<Small, VECTORS>(A, B, C, M, N, K, 1, stream);
    const cudaError_t error = launch<Small, VECTORS>(A, B, partials, M, N, K, slices, stream);
    if (error != cudaSuccess) return error;
    add_slices<<<unsigned(msbench::ceil_div(M * N, REDUCE_THREADS)), REDUCE_THREADS, 0, stream>>>(partials, C, M * N,
                                                                                                  slices);
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t matrix_mul_workspace(int64_t M, int64_t N, int64_t K) {
    const int slices = slice_count(M, N, K);
    return slices > 1 ? slices * M * N * sizeof(float) : 0;
}

extern "C" cudaError_t matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K,
                                  void* workspace, size_t, cudaStream_t stream) {
    const bool vectors = msbench::packets_allowed(A, B, C) && K % CHUNK == 0 && N % CHUNK == 0;
    float* partials = static_cast<float*>(workspace);
    return vectors ? multiply_all<true>(A, B, C, M, N, K, partials, stream)
                   : multiply_all<false>(A, B, C, M, N, K, partials, stream);
}
