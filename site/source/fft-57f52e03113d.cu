// FFT in fp32 registers, radices 8 and 16; both precisions.
//
// Idea: N = L1·L2 (·L3). A step transforms columns of L points: a block loads a tile of C neighbouring columns, exchanges between
// its radices in shared memory, and stores. The factors between steps are in the same roots of unity as those between radices
// (msbench_dft.cuh), which are computed while loads are on their way; there are no tables.
//
// Plans:
//   one block    to 2^11: one column.
//   one cluster  2^12 to 2^14: two steps; the blocks hand over through distributed shared memory.
//   two kernels  2^15 to 2^18; three from 2^19 on: the steps hand over fp32 through the workspace, which stays in L2 to 2^22.
//
// Bound: to 2^14 the launch and one trip to memory. 2^22: what L2 takes of writes, 4.25 to 4.7 TB/s even where nothing goes to DRAM,
// so that each of three steps costs what a cold copy does. Two columns a thread, with 35 % fewer instructions, were no faster.
// Measured (H200, 2026-11-23, cold): 2^10 4.6, 2^12 5.5, 2^14 6.3 us in both precisions, 2^22 45 us in fp32, 40 in bf16.
// Lost, too: one block at 2^12; clusters at 2^15 and 2^16 (8.1 and 10.5 us against 5.9 and 6.2 of two kernels); three kernels at 2^18;
// two steps of 2048 at 2^22 (rows of 32 bytes: 54 to 57 us). H200, 2026-11-23.
// Lost at 2^22, with 39.9 and 45.1 us (bf16, fp32) the same day (H200, 2026-11-26): two steps of 2048 by clusters of 2 to 8 that hand over
// 8 to 32 columns (54 to 85); blocks that stay, with the next tile on its way by cp.async (41.5 to 62); tiles of 8 and 16 columns, other
// factors, other orders of blocks, discarding what the last step has read (39.6 to 60).

#include "msbench.cuh"
#include "msbench_cluster.cuh"
#include "msbench_dft.cuh"

namespace {

// A tile of kC columns of kL = kR1·kR2·kR3 points, transformed by kT threads. n = (n1·R2 + n2)·R3 + n3, k = k1 + R1·(k2 + R2·k3).
// Shared memory holds [k1][n2 or k2][n3][column]. With kAcross, loads run along n instead of along columns, and kR3 is 1.
template <int kL, int kR1, int kR2, int kR3, int kC, int kT, bool kAcross = false>
struct Tile {
    static constexpr int L = kL, C = kC, T = kT, M = kL / kR1;
    static constexpr int kRow = kAcross ? C + 1 : C;  // one more against bank conflicts
    static constexpr int kPlane = kAcross ? M * kRow : (M + 1) * kRow;
    static constexpr int kBytes = kR2 == 1 ? 0 : kR1 * kPlane * int(sizeof(float2));
    static_assert(kR1 * kR2 * kR3 == L && T % C == 0 && (!kAcross || (kR3 == 1 && T % M == 0)));

    // How many transforms of radix r a thread has, and whether it has this one.
    static constexpr int count(int r) { return (L * C / r + T - 1) / T; }
    static __device__ bool has(int r, int u) { return L * C / r % T == 0 || int(threadIdx.x) + u * T < L * C / r; }

    // One step of a transform of N1·L points: `row` is what the steps before called k for column 0, and is `slope` more for each
    // further one. In the first step both are 0, and N1 is 1. `wait` is called before the first load.
    template <bool kFirst, class Wait, class Load, class Store>
    static __device__ __forceinline__ void run(float2* tile, int N1, int row, int slope, Wait wait, Load load, Store store) {
        using msbench::root_of_unity;
        const int t = threadIdx.x, column = t % C;
        const float two_over_n = 2.0f / L / float(N1);
        float2 v[count(kR1)][kR1], w1[count(kR1)], w2[count(kR2)], w3[count(kR3)];
        const auto fetch = [&] {
#pragma unroll
            for (int u = 0; u < count(kR1); ++u) {
                const int at = t + u * T, q = kAcross ? at % M : at / C, c = kAcross ? at / M : column;
                if (!has(kR1, u)) continue;
#pragma unroll
                for (int i = 0; i < kR1; ++i) v[u][i] = load(q + M * i, c);
            }
        };
        if constexpr (kFirst) fetch();
#pragma unroll
        for (int u = 0; u < count(kR1); ++u) {
            w1[u] = root_of_unity((row + slope * (kAcross ? (t + u * T) / M : column)) * M, two_over_n);
        }
#pragma unroll
        for (int u = 0; u < count(kR2); ++u) {
            w2[u] = root_of_unity((row + slope * column + N1 * ((t + u * T) / C % kR1)) * kR3, two_over_n);
        }
#pragma unroll
        for (int u = 0; u < count(kR3); ++u) w3[u] = root_of_unity(row + slope * column + N1 * ((t + u * T) / C), two_over_n);
        if constexpr (!kFirst) {
            wait();
            fetch();
        }
#pragma unroll
        for (int u = 0; u < count(kR1); ++u) {
            const int at = t + u * T;
            if (!has(kR1, u)) continue;
            msbench::dft<kFirst>(v[u], kFirst ? make_float2(1, 0) : w1[u]);
#pragma unroll
            for (int i = 0; i < kR1; ++i) {
                if constexpr (kR2 == 1) store(i, column, v[u][i]);
                else tile[i * kPlane + (kAcross ? at % M * kRow + at / M : at)] = v[u][i];
            }
        }
        if constexpr (kR2 > 1) {
            __syncthreads();
#pragma unroll
            for (int u = 0; u < count(kR2); ++u) {
                const int k1 = (t + u * T) / C % kR1, n3 = (t + u * T) / (C * kR1);
                if (!has(kR2, u)) continue;
                float2* const at = tile + k1 * kPlane + n3 * kRow + column;
                float2 x[kR2];
#pragma unroll
                for (int i = 0; i < kR2; ++i) x[i] = at[i * (kR3 * kRow)];
                msbench::dft<false>(x, w2[u]);
#pragma unroll
                for (int i = 0; i < kR2; ++i) {
                    if constexpr (kR3 == 1) store(k1 + kR1 * i, column, x[i]);
                    else at[i * (kR3 * kRow)] = x[i];
                }
            }
        }
        if constexpr (kR3 > 1) {
            __syncthreads();
#pragma unroll
            for (int u = 0; u < count(kR3); ++u) {
                const int k = (t + u * T) / C;
                if (!has(kR3, u)) continue;
                const float2* const at = tile + k % kR1 * kPlane + k / kR1 * (kR3 * kRow) + column;
                float2 x[kR3];
#pragma unroll
                for (int i = 0; i < kR3; ++i) x[i] = at[i * kRow];
                msbench::dft<false>(x, w3[u]);
#pragma unroll
                for (int i = 0; i < kR3; ++i) store(k + kR1 * kR2 * i, column, x[i]);
            }
        }
    }
};

struct Arrays {
    const scalar_t *re, *im;
    scalar_t *Re, *Im;

    // Read and written once: it should leave L2 first.
    __device__ float2 load(int at) const { return make_float2(msbench::to_float(__ldcs(re + at)), msbench::to_float(__ldcs(im + at))); }
    __device__ void store(int at, float2 x) const {
        __stcs(Re + at, msbench::from_float<scalar_t>(x.x));
        __stcs(Im + at, msbench::from_float<scalar_t>(x.y));
    }
};

template <class Tile>
__global__ void __launch_bounds__(Tile::T) one_block(Arrays x) {
    extern __shared__ float4 shared[];
    Tile::template run<true>(reinterpret_cast<float2*>(shared), 1, 0, 0, [] {}, [&](int n, int) { return x.load(n); },
                             [&](int k, int, float2 value) { x.store(k, value); });
}

// N = L1·L2, n = n1·L2 + n2, k = k1 + L1·k2. A block has C columns n2 of the first step and C rows k1 of the second.
template <int kBlocks, class First, class Second>
struct ClusterPlan {
    static constexpr int kTileBytes = First::kBytes > Second::kBytes ? First::kBytes : Second::kBytes;
    static constexpr int kBytes = kTileBytes + Second::L * Second::C * int(sizeof(float2));
    static_assert(Second::L == kBlocks * First::C && First::L == kBlocks * Second::C && First::T == Second::T);
};

template <int kBlocks, class First, class Second>
__global__ void __launch_bounds__(First::T) one_cluster(Arrays x) {
    using Plan = ClusterPlan<kBlocks, First, Second>;
    constexpr int L1 = First::L, L2 = Second::L;
    extern __shared__ float4 shared[];
    float2* const tile = reinterpret_cast<float2*>(shared);
    float2* const inbox = tile + Plan::kTileBytes / sizeof(float2);  // [n2][k1 of this block]
    const auto cluster = cooperative_groups::this_cluster();
    const int column = int(blockIdx.x) * First::C, row = int(blockIdx.x) * Second::C;
    cluster.barrier_arrive();
    bool waited = false;
    First::template run<true>(
        tile, 1, 0, 0, [] {}, [&](int n, int c) { return x.load(n * L2 + column + c); },
        [&](int k, int c, float2 value) {
            if (!waited) cluster.barrier_wait();  // all blocks run
            waited = true;
            cluster.map_shared_rank(inbox, k / Second::C)[(column + c) * Second::C + k % Second::C] = value;
        });
    if (!waited) cluster.barrier_wait();
    cluster.barrier_arrive();
    Second::template run<false>(
        tile, L1, row, 1, [&] { cluster.barrier_wait(); }, [&](int n, int c) { return inbox[n * Second::C + c]; },
        [&](int k, int c, float2 value) { x.store(k * L1 + row + c, value); });
}

// First step, over n1; `columns` is N / L. between: [k1][the rest of n].
template <class Tile>
__global__ void __launch_bounds__(Tile::T) first_step(Arrays x, float2* between, int columns) {
    extern __shared__ float4 shared[];
    cudaTriggerProgrammaticLaunchCompletion();
    const int column = blockIdx.x * Tile::C;
    Tile::template run<true>(
        reinterpret_cast<float2*>(shared), 1, 0, 0, [] {}, [&](int n, int c) { return x.load(n * columns + column + c); },
        [&](int k, int c, float2 value) { between[k * columns + column + c] = value; });
}

// Middle step of three, over n2, in place: L3 columns for each of the N1 values of k1.
template <class Tile>
__global__ void __launch_bounds__(Tile::T) middle_step(float2* between, int N1, int L3) {
    extern __shared__ float4 shared[];
    cudaTriggerProgrammaticLaunchCompletion();
    const int tiles = L3 / Tile::C, k1 = blockIdx.x / tiles;
    float2* const at = between + k1 * (Tile::L * L3) + blockIdx.x % tiles * Tile::C;
    Tile::template run<false>(
        reinterpret_cast<float2*>(shared), N1, k1, 0, [] { cudaGridDependencySynchronize(); },
        [&](int n, int c) { return __ldcg(at + n * L3 + c); }, [&](int k, int c, float2 value) { at[k * L3 + c] = value; });
}

// Last step: a block has C values of k1 and one of k2 < L2, where k1 + N1·k2 is what the steps before called k.
template <class Tile>
__global__ void __launch_bounds__(Tile::T) last_step(const float2* between, Arrays x, int N1, int L2) {
    extern __shared__ float4 shared[];
    const int tiles = N1 / Tile::C, k1 = blockIdx.x % tiles * Tile::C, k2 = blockIdx.x / tiles, row = k1 + N1 * k2;
    const float2* const from = between + (k1 * L2 + k2) * Tile::L;
    Tile::template run<false>(
        reinterpret_cast<float2*>(shared), N1 * L2, row, 1, [] { cudaGridDependencySynchronize(); },
        [&](int n, int c) { return __ldcg(from + c * (L2 * Tile::L) + n); },
        [&](int k, int c, float2 value) { x.store(row + k * (N1 * L2) + c, value); });
}

struct Call {
    Arrays x;
    float2* between;
    cudaStream_t stream;

    template <class Tile>
    msbench::Launch blocks(int count) const {
        return msbench::Launch(count, Tile::T, stream).shared(Tile::kBytes);
    }
    template <class Tile>
    cudaError_t by_block() const {
        return blocks<Tile>(1)(one_block<Tile>, x);
    }
    template <int kBlocks, class First, class Second = First>
    cudaError_t by_cluster() const {
        const size_t bytes = ClusterPlan<kBlocks, First, Second>::kBytes;
        return msbench::launch_clusters(kBlocks, blocks<First>(kBlocks).shared(bytes), one_cluster<kBlocks, First, Second>, x);
    }
    template <class First, class Last>
    cudaError_t by_two() const {
        const cudaError_t error = blocks<First>(Last::L / First::C)(first_step<First>, x, between, Last::L);
        if (error != cudaSuccess) return error;
        return blocks<Last>(First::L / Last::C).early()(last_step<Last>, between, x, First::L, 1);
    }
    template <class First, class Middle, class Last>
    cudaError_t by_three() const {
        constexpr int kColumns = Middle::L * Last::L;
        cudaError_t error = blocks<First>(kColumns / First::C)(first_step<First>, x, between, kColumns);
        if (error != cudaSuccess) return error;
        error = blocks<Middle>(First::L * Last::L / Middle::C).early()(middle_step<Middle>, between, First::L, Last::L);
        if (error != cudaSuccess) return error;
        return blocks<Last>(First::L * Middle::L / Last::C).early()(last_step<Last>, between, x, First::L, Middle::L);
    }
};

// 16 elements a thread, and tiles of at least 128 bytes in a row.
using First128 = Tile<128, 16, 8, 1, 32, 256>;
using First256 = Tile<256, 16, 16, 1, 32, 512>;
using Middle64 = Tile<64, 8, 8, 1, 32, 256>;
using Middle128 = Tile<128, 16, 8, 1, 32, 256>;
using Middle256 = Tile<256, 16, 16, 1, 16, 256>;
using Last64 = Tile<64, 8, 8, 1, 32, 256, true>;
using Last128 = Tile<128, 8, 16, 1, 32, 256, true>;
using Last256 = Tile<256, 16, 16, 1, 32, 512, true>;
using Late256 = Tile<256, 16, 16, 1, 8, 128, true>;  // of two steps

cudaError_t dispatch(int64_t N, const Call& call) {
    switch (N) {
        case 1: return call.by_block<Tile<1, 1, 1, 1, 1, 32>>();
        case 2: return call.by_block<Tile<2, 2, 1, 1, 1, 32>>();
        case 4: return call.by_block<Tile<4, 4, 1, 1, 1, 32>>();
        case 8: return call.by_block<Tile<8, 8, 1, 1, 1, 32>>();
        case 16: return call.by_block<Tile<16, 16, 1, 1, 1, 32>>();
        case 32: return call.by_block<Tile<32, 8, 4, 1, 1, 32>>();
        case 64: return call.by_block<Tile<64, 8, 8, 1, 1, 32>>();
        case 128: return call.by_block<Tile<128, 16, 8, 1, 1, 32>>();
        case 256: return call.by_block<Tile<256, 16, 16, 1, 1, 32>>();
        case 512: return call.by_block<Tile<512, 8, 8, 8, 1, 64>>();
        case 1024: return call.by_block<Tile<1024, 8, 16, 8, 1, 128>>();
        case 2048: return call.by_block<Tile<2048, 16, 16, 8, 1, 128>>();
        case 1 << 12: return call.by_cluster<8, Tile<64, 8, 8, 1, 8, 64>>();
        case 1 << 13: return call.by_cluster<16, Tile<128, 16, 8, 1, 4, 64>, Tile<64, 8, 8, 1, 8, 64>>();
        case 1 << 14: return call.by_cluster<16, Tile<128, 16, 8, 1, 8, 128>>();
        case 1 << 15: return call.by_two<Tile<256, 16, 16, 1, 8, 128>, Tile<128, 8, 16, 1, 8, 128, true>>();
        case 1 << 16: return call.by_two<Tile<256, 16, 16, 1, 8, 128>, Late256>();
        case 1 << 17: return call.by_two<Tile<512, 8, 8, 8, 4, 256>, Late256>();
        case 1 << 18: return call.by_two<Tile<1024, 16, 8, 8, 4, 256>, Late256>();
        case 1 << 19: return call.by_three<First128, Middle64, Last64>();
        case 1 << 20: return call.by_three<First128, Middle64, Last128>();
        case 1 << 21: return call.by_three<First128, Middle128, Last128>();
        case 1 << 22: return call.by_three<First128, Middle256, Last128>();
        case 1 << 23: return call.by_three<First256, Middle256, Last128>();
        case 1 << 24: return call.by_three<First256, Middle256, Last256>();
    }
    return cudaErrorInvalidValue;
}

}  // namespace

extern "C" size_t fft_workspace(int64_t N) {
    return N > (1 << 14) ? N * sizeof(float2) : 0;
}

extern "C" cudaError_t fft(const scalar_t* re, const scalar_t* im, scalar_t* Re, scalar_t* Im, int64_t N, void* workspace,
                           size_t, cudaStream_t stream) {
    return dispatch(N, {{re, im, Re, Im}, static_cast<float2*>(workspace), stream});
}
