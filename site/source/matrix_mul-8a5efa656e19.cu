// C = A B: bf16 in and out, fp32 sums on the tensor cores through wgmma.
//
// Idea: one block a multiprocessor walks over tiles of C. One warp group feeds a ring of shared-memory stages by TMA
// (panels of A and B, 64 deep, in the 128-byte swizzle that wgmma reads); one or two warp groups multiply, 64 rows of the
// tile each, and hand a stage back when the next one is under way. Copies run on into the next tile while results are
// stored. B stays as it is in memory: wgmma takes it with N running fastest. Tiles are walked in groups of 16 tile rows,
// so that what runs at a time shares its panels in L2. Tile size and the slices of K are chosen by a small model of the
// time; partial products of slices meet in a second launch, always in the same order.
//
// TMA needs rows that start on 16 bytes: other matrices are first copied into the workspace with padded rows.
//
// Bound: 2 M N K flops on the tensor cores; one launch, two for a small C, one more to pad.

#include <cuda.h>

#include "msbench.cuh"

namespace {

constexpr int TILE_K = 64;  // a row of TILE_K bf16 is the swizzle's 128 bytes
constexpr int BOX_N = 64;   // columns of B that one TMA brings, 128 bytes a row as well
constexpr int CHUNK = 8;    // elements of 16 bytes
constexpr int GROUP_THREADS = 128, GROUP_M = 64;  // a warp group, and the rows of its wgmma
constexpr int MMA_K = 16;
constexpr int TILE_ROWS = 16;  // tile rows walked together
constexpr int MULTIPROCESSORS = 132;
constexpr int MAP_THREADS = 256;

template <int CONSUMERS_, int TILE_N_, int STAGES_>
struct Shape {
    static constexpr int CONSUMERS = CONSUMERS_, STAGES = STAGES_;
    static constexpr int TILE_M = CONSUMERS * GROUP_M, TILE_N = TILE_N_;
    static constexpr int THREADS = (1 + CONSUMERS) * GROUP_THREADS;
    static constexpr int BYTES_A = TILE_M * TILE_K * 2, BYTES_B = TILE_K * TILE_N * 2, STAGE_BYTES = BYTES_A + BYTES_B;
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024;  // stages start on 1024 bytes
    static constexpr int SUMS = TILE_N / 2;                           // of a consumer's thread
    static constexpr bool MOVES_REGISTERS = CONSUMERS == 2 && TILE_N == 256;
};
using Large = Shape<2, 256, 4>;
using Medium = Shape<2, 128, 6>;
using Small = Shape<1, 128, 8>;

// ---------------------------------------------------------------- barriers, copies, wgmma

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return unsigned(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and the cluster.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\n" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and lets the phase end only after so many bytes have been copied.
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Waits until the barrier's phase of this parity has ended. A fresh barrier is in phase 0: a wait for parity 1 passes.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, int parity) {
    unsigned done;
    do {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}\n"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    } while (!done);
}

__device__ __forceinline__ void prefetch(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

// Starts the copy of a box of a matrix to shared memory; `barrier` counts its bytes. x runs along rows. Zeros stand for
// what lies outside of the matrix, and count.
__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap* map, uint64_t* barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
        "[%2];\n" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
        : "memory");
}

// A wgmma matrix descriptor for the 128-byte swizzle, which counts in 16 bytes: its lower half has the start and the
// leading offset; its upper half is the stride of 1024 bytes, the same for both operands. A, K fastest: the leading
// offset does not matter, the stride leads to the next eight rows. B, N fastest: the leading offset leads to the next
// 64 columns, the stride to the next eight k.
__device__ __forceinline__ unsigned descriptor_start(const void* p, int leading_bytes) {
    return (shared_address(p) & 0x3ffff) >> 4 | unsigned(leading_bytes >> 4) << 16;
}

__device__ __forceinline__ uint64_t descriptor(unsigned start) {
    constexpr uint64_t STRIDE = 1024 >> 4, SWIZZLE_128 = 1;
    return SWIZZLE_128 << 62 | STRIDE << 32 | start;
}

__device__ __forceinline__ void mma_fence() {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void mma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(PENDING) : "memory");
}

// d += A B for 64 x 16 of A, K fastest, and 16 x N of B, N fastest. Of its warp's 16 rows and of columns 8 j to 8 j + 7 a
// thread has d[4 j + 2 h + e]: row 8 h + lane / 4, column 8 j + 2 (lane % 4) + e.
__device__ __forceinline__ void multiply_add(float (&d)[128], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, 1, 1, 1, 0, 1;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
          "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
          "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),
          "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]),
          "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),
          "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]),
          "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]),
          "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]),
          "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]),
          "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]),
          "+f"(d[126]), "+f"(d[127])
        : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_add(float (&d)[64], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 1;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
          "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
          "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b));
}

// ---------------------------------------------------------------- the product

// A tile of C and a slice of K. Work number i is done by block i % gridDim.x.
struct Work {
    int row, column, slice;
};

template <typename S>
__device__ __forceinline__ Work work(int i, int tiles_m, int tiles_n) {
    const int tiles = tiles_m * tiles_n;
    const int slice = i / tiles, tile = i % tiles;
    const int group = tile / (TILE_ROWS * tiles_n), in_group = tile % (TILE_ROWS * tiles_n);
    const int height = min(TILE_ROWS, tiles_m - group * TILE_ROWS);
    return {(group * TILE_ROWS + in_group % height) * S::TILE_M, in_group / height * S::TILE_N, slice};
}

__device__ __forceinline__ unsigned pack(float x, float y) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return reinterpret_cast<const unsigned&>(pair);
}

// Four neighbouring lanes have word number `lane % 4` of four chunks each; afterwards each has one whole chunk, number
// `lane % 4`.
__device__ __forceinline__ void gather_chunk(unsigned (&w)[4], int lane) {
    const bool odd = lane & 1, upper = lane & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned got = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? got : w[i];
        w[i + 1] = odd ? w[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned got = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + 2], 2);
        w[i] = upper ? got : w[i];
        w[i + 2] = upper ? w[i + 2] : got;
    }
}

// Stores a warp's 16 rows of C, from `row` and `column` on. `vectors`: C's rows start on 16 bytes.
template <int COUNT>
__device__ __forceinline__ void store_rows(const float (&sums)[COUNT], scalar_t* C, int row, int column, int M, int N,
                                           bool vectors, int lane) {
    constexpr int CHUNKS = COUNT / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int to_row = row + half * 8 + lane / 4;
        scalar_t* to = C + int64_t(to_row) * N;
        if (vectors) {
#pragma unroll
            for (int j = 0; j < CHUNKS; j += 4) {
                unsigned w[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    w[i] = pack(sums[4 * (j + i) + 2 * half], sums[4 * (j + i) + 2 * half + 1]);
                }
                gather_chunk(w, lane);
                const int to_column = column + (j + lane % 4) * CHUNK;
                if (to_row < M && to_column < N) {
                    *reinterpret_cast<uint4*>(to + to_column) = make_uint4(w[0], w[1], w[2], w[3]);
                }
            }
        } else if (to_row < M) {
#pragma unroll
            for (int j = 0; j < CHUNKS; ++j) {
                const int to_column = column + j * CHUNK + lane % 4 * 2;
                if (to_column < N) to[to_column] = __float2bfloat16_rn(sums[4 * j + 2 * half]);
                if (to_column + 1 < N) to[to_column + 1] = __float2bfloat16_rn(sums[4 * j + 2 * half + 1]);
            }
        }
    }
}

// The same in fp32, for partial products.
template <int COUNT>
__device__ __forceinline__ void store_rows(const float (&sums)[COUNT], float* C, int row, int column, int M, int N,
                                           bool vectors, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int to_row = row + half * 8 + lane / 4;
        if (to_row >= M) continue;
#pragma unroll
        for (int j = 0; j < COUNT / 4; ++j) {
            const int to_column = column + j * CHUNK + lane % 4 * 2;
            float* to = C + int64_t(to_row) * N + to_column;
            const float x = sums[4 * j + 2 * half], y = sums[4 * j + 2 * half + 1];
            if (vectors) {
                if (to_column < N) *reinterpret_cast<float2*>(to) = make_float2(x, y);
            } else {
                if (to_column < N) to[0] = x;
                if (to_column + 1 < N) to[1] = y;
            }
        }
    }
}

// `C` is the product itself, or has a layer of fp32 partial products for each slice of `slice_k`. `vectors`: C's rows
// start on 16 bytes.
template <typename S, typename Out>
__global__ void __launch_bounds__(S::THREADS, 1)
    multiply(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, Out* C, int M, int N,
             int K, int slice_k, int slices, bool vectors) {
    extern __shared__ unsigned char raw[];
    __shared__ uint64_t filled[S::STAGES], emptied[S::STAGES];
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int tiles_m = (M + S::TILE_M - 1) / S::TILE_M, tiles_n = (N + S::TILE_N - 1) / S::TILE_N;
    const int works = tiles_m * tiles_n * slices;
    if (threadIdx.x == 0) {
        prefetch(&a_map);
        prefetch(&b_map);
        for (int s = 0; s < S::STAGES; ++s) {
            barrier_init(&filled[s], 1);
            barrier_init(&emptied[s], S::CONSUMERS * 4);  // each warp
        }
        barrier_init_fence();
    }
    __syncthreads();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP_THREADS, 0);  // known to be the same in a warp
    int stage = 0, parity = 0;  // the ring's position, the same walk in every warp group
    if (group == 0) {
        if constexpr (S::MOVES_REGISTERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
        if (threadIdx.x == 0) {
            for (int i = blockIdx.x; i < works; i += gridDim.x) {
                const Work w = work<S>(i, tiles_m, tiles_n);
                const int end_k = min((w.slice + 1) * slice_k, K);
                for (int k = w.slice * slice_k; k < end_k; k += TILE_K) {
                    barrier_wait(&emptied[stage], parity ^ 1);  // the first round passes
                    barrier_expect(&filled[stage], S::STAGE_BYTES);
                    unsigned char* panel = stages + stage * S::STAGE_BYTES;
                    copy_box(panel, &a_map, &filled[stage], k, w.row);
#pragma unroll
                    for (int n = 0; n < S::TILE_N; n += BOX_N) {
                        copy_box(panel + S::BYTES_A + n * TILE_K * 2, &b_map, &filled[stage], w.column + n, k);
                    }
                    if (++stage == S::STAGES) stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        if constexpr (S::MOVES_REGISTERS) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        const int first_row = (group - 1) * GROUP_M;
        const unsigned a_start = descriptor_start(stages + first_row * TILE_K * 2, 16);
        const unsigned b_start = descriptor_start(stages + S::BYTES_A, BOX_N * TILE_K * 2);
        for (int i = blockIdx.x; i < works; i += gridDim.x) {
            const Work w = work<S>(i, tiles_m, tiles_n);
            const int first_k = w.slice * slice_k, end_k = min(first_k + slice_k, K);
            float sums[S::SUMS];
#pragma unroll
            for (int j = 0; j < S::SUMS; ++j) sums[j] = 0.0f;
            int previous = -1;
            for (int k = first_k; k < end_k; k += TILE_K) {
                barrier_wait(&filled[stage], parity);
                const unsigned offset = unsigned(stage * S::STAGE_BYTES) >> 4;
                mma_fence();
#pragma unroll
                for (int step = 0; step < TILE_K / MMA_K; ++step) {
                    multiply_add(sums, descriptor(a_start + offset + step * (MMA_K * 2 >> 4)),
                                 descriptor(b_start + offset + step * (MMA_K * BOX_N * 2 >> 4)));
                }
                mma_commit();
                mma_wait<1>();  // the previous stage has been read
                if (previous >= 0 && lane == 0) barrier_arrive(&emptied[previous]);
                previous = stage;
                if (++stage == S::STAGES) stage = 0, parity ^= 1;
            }
            mma_wait<0>();
            if (previous >= 0 && lane == 0) barrier_arrive(&emptied[previous]);
            store_rows(sums, C + int64_t(w.slice) * M * N, w.row + first_row + warp * 16, w.column, M, N, vectors, lane);
        }
    }
}

// Adds up the slices' partial products, WIDTH neighbours a thread.
template <int WIDTH>
__global__ void __launch_bounds__(MAP_THREADS)
    add_slices(const float* partials, scalar_t* C, int64_t elements, int slices) {
    const int64_t i = (int64_t(blockIdx.x) * MAP_THREADS + threadIdx.x) * WIDTH;
    if (i >= elements) return;
    if constexpr (WIDTH == 4) {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
        for (int s = 0; s < slices; ++s) {
            const float4 x = *reinterpret_cast<const float4*>(partials + s * elements + i);
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        *reinterpret_cast<uint2*>(C + i) = make_uint2(pack(sum.x, sum.y), pack(sum.z, sum.w));
    } else {
        float sum = 0.0f;
#pragma unroll 8
        for (int s = 0; s < slices; ++s) sum += partials[s * elements + i];
        C[i] = __float2bfloat16_rn(sum);
    }
}

// A matrix and its copy with rows that start on 16 bytes; no packets where no copy is needed.
struct Padding {
    const scalar_t* from;
    scalar_t* to;
    int64_t packets;
    int columns, packets_a_row;
};

__device__ __forceinline__ void pad_packet(const Padding& p, int64_t i) {
    const int64_t row = i / p.packets_a_row;
    const int column = int(i % p.packets_a_row) * CHUNK;
    const scalar_t* from = p.from + row * p.columns + column;
    msbench::Packet<scalar_t> packet;
#pragma unroll
    for (int k = 0; k < CHUNK; ++k) packet.lane[k] = column + k < p.columns ? from[k] : __float2bfloat16_rn(0.0f);
    msbench::store_packet(p.to, i, packet);
}

__global__ void __launch_bounds__(MAP_THREADS) pad_rows(const Padding a, const Padding b) {
    const int64_t i = int64_t(blockIdx.x) * MAP_THREADS + threadIdx.x;
    if (i < a.packets) {
        pad_packet(a, i);
    } else if (i < a.packets + b.packets) {
        pad_packet(b, i - a.packets);
    }
}

// ---------------------------------------------------------------- launch

int64_t round_up(int64_t a, int64_t multiple) {
    return msbench::ceil_div(a, multiple) * multiple;
}

int64_t padded_bytes(int64_t rows, int64_t columns) {
    return round_up(rows * round_up(columns, CHUNK) * int64_t(sizeof(scalar_t)), 256);
}

Padding padding(const scalar_t* matrix, void* copy, int64_t rows, int64_t columns) {
    const int64_t packets_a_row = msbench::ceil_div(columns, CHUNK);
    const bool fits = columns % CHUNK == 0 && msbench::packets_allowed(matrix);
    return {matrix, static_cast<scalar_t*>(copy), fits ? 0 : rows * packets_a_row, int(columns), int(packets_a_row)};
}

using Encode = decltype(&cuTensorMapEncodeTiled);

cudaError_t find_encode(Encode* encode) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    *encode = reinterpret_cast<Encode>(found);
    return error != cudaSuccess ? error : found ? cudaSuccess : cudaErrorNotSupported;
}

// How TMA reads boxes of 64 columns and `box_rows` rows of the matrix or its copy, in the 128-byte swizzle.
bool describe(Encode encode, CUtensorMap* map, const Padding& p, int64_t rows, int box_rows) {
    const scalar_t* matrix = p.packets ? p.to : p.from;
    const cuuint64_t sizes[2] = {cuuint64_t(p.columns), cuuint64_t(rows)},
                     strides[1] = {cuuint64_t(p.packets_a_row) * CHUNK * sizeof(scalar_t)};
    const cuuint32_t box[2] = {BOX_N, cuuint32_t(box_rows)}, steps[2] = {1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<scalar_t*>(matrix), sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

enum class Size { large, medium, small };

struct Plan {
    Size size;
    int slices;
};

// Estimated H200 cycles, fitted to its times, for all waves of works on all multiprocessors, and for the second launch of a sliced K.
int64_t estimate(int64_t M, int64_t N, int64_t K, int tile_m, int tile_n, int step_cycles, int store_cycles, int slices) {
    const int64_t works = msbench::ceil_div(M, tile_m) * msbench::ceil_div(N, tile_n) * slices;
    const int64_t steps = msbench::ceil_div(msbench::ceil_div(K, TILE_K), slices);
    const int64_t second = slices > 1 ? 6000 + slices * M * N / 350 : 0;
    return msbench::ceil_div(works, MULTIPROCESSORS) * (steps * step_cycles + store_cycles) + second;
}

Plan choose(int64_t M, int64_t N, int64_t K) {
    Plan best{};
    int64_t least = INT64_MAX;
    for (int slices = 1; slices <= 16 && (slices == 1 || slices * 4 * TILE_K <= K); ++slices) {
        const auto consider = [&](Size size, int64_t cycles) {
            if (cycles < least) least = cycles, best = {size, slices};
        };
        consider(Size::large, estimate(M, N, K, Large::TILE_M, Large::TILE_N, 1150, 1500, slices));
        consider(Size::medium, estimate(M, N, K, Medium::TILE_M, Medium::TILE_N, 620, 1000, slices));
        consider(Size::small, estimate(M, N, K, Small::TILE_M, Small::TILE_N, 370, 800, slices));
    }
    return best;
}

template <typename S, typename Out>
cudaError_t launch(Encode encode, const Padding& a, const Padding& b, Out* C, int64_t M, int64_t N, int64_t K,
                   int slices, cudaStream_t stream) {
    CUtensorMap a_map, b_map;
    if (!describe(encode, &a_map, a, M, S::TILE_M) || !describe(encode, &b_map, b, K, TILE_K)) {
        return cudaErrorInvalidValue;
    }
    const auto kernel = multiply<S, Out>;
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES);
    if (error != cudaSuccess) return error;
    const int slice_k = int(round_up(msbench::ceil_div(K, slices), TILE_K));
    const int64_t works = msbench::ceil_div(M, S::TILE_M) * msbench::ceil_div(N, S::TILE_N) * slices;
    const unsigned blocks = unsigned(works < MULTIPROCESSORS ? works : MULTIPROCESSORS);
    const bool vectors = N % CHUNK == 0 && msbench::packets_allowed(C);
    kernel<<<blocks, S::THREADS, S::SHARED_BYTES, stream>>>(a_map, b_map, C, int(M), int(N), int(K), slice_k, slices,
                                                            vectors);
    return cudaGetLastError();
}

template <typename Out>
cudaError_t launch(Size size, Encode encode, const Padding& a, const Padding& b, Out* C, int64_t M, int64_t N,
                   int64_t K, int slices, cudaStream_t stream) {
    switch (size) {
        case Size::large: return launch<Large>(encode, a, b, C, M, N, K, slices, stream);
        case Size::medium: return launch<Medium>(encode, a, b, C, M, N, K, slices, stream);
        default: return launch<Small>(encode, a, b, C, M, N, K, slices, stream);
    }
}

// Where the parts of the workspace start: padded A, padded B, partial products. There is always room for the copies, since
// an address may turn out to be odd.
struct Workspace {
    int64_t b, partials, bytes;
};

Workspace workspace_layout(const Plan& plan, int64_t M, int64_t N, int64_t K) {
    Workspace w{};
    w.b = padded_bytes(M, K);
    w.partials = w.b + padded_bytes(K, N);
    w.bytes = w.partials + (plan.slices > 1 ? plan.slices * M * N * int64_t(sizeof(float)) : 0);
    return w;
}

cudaError_t multiply_planned(const Plan& plan, const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N,
                             int64_t K, void* workspace, cudaStream_t stream) {
    Encode encode;
    const cudaError_t error = find_encode(&encode);
    if (error != cudaSuccess) return error;
    const Workspace layout = workspace_layout(plan, M, N, K);
    char* base = static_cast<char*>(workspace);
    const Padding a = padding(A, base, M, K), b = padding(B, base + layout.b, K, N);
    if (a.packets + b.packets) {
        pad_rows<<<unsigned(msbench::ceil_div(a.packets + b.packets, MAP_THREADS)), MAP_THREADS, 0, stream>>>(a, b);
    }
    if (plan.slices == 1) return launch(plan.size, encode, a, b, C, M, N, K, 1, stream);

    float* partials = reinterpret_cast<float*>(base + layout.partials);
    const cudaError_t launched = launch(plan.size, encode, a, b, partials, M, N, K, plan.slices, stream);
    if (launched != cudaSuccess) return launched;
    const bool vectors = M * N % 4 == 0 && msbench::packets_allowed(C);
    const auto add = vectors ? add_slices<4> : add_slices<1>;
    const unsigned blocks = unsigned(msbench::ceil_div(M * N, MAP_THREADS * (vectors ? 4 : 1)));
    add<<<blocks, MAP_THREADS, 0, stream>>>(partials, C, M * N, plan.slices);
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t matrix_mul_workspace(int64_t M, int64_t N, int64_t K) {
    return size_t(workspace_layout(choose(M, N, K), M, N, K).bytes);
}

extern "C" cudaError_t matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K,
                                  void* workspace, size_t, cudaStream_t stream) {
    return multiply_planned(choose(M, N, K), A, B, C, M, N, K, workspace, stream);
}
