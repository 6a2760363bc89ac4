// Top k by group maxima: the top k elements lie in the k groups that come first by (maximum, lower index).
// N <= 16384: one block. Otherwise one pass over x for the maxima (one or two levels), then one block selects groups and elements.
// Bound: launch and a few block-wide steps (about 8 us) for small N; one read of x (16 us at 16 Mi) plus about 10 us for large N.

#include <cuda_runtime.h>
#include <cstdint>
#include <cstddef>

namespace {

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int kThreads = 1024;   // of the selecting block
constexpr int kCandidates = 256;
constexpr int kMaxK = 128;
constexpr int64_t kOneBlock = 16384;
constexpr int64_t kOneLevel = 1048576;

// Larger for what comes first; never 0. -0 and 0 are alike, so are all NaNs.
__device__ __forceinline__ u32 key_of(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
    if (bits == 0x80000000u) bits = 0;
    return (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
}

// ------------------------------------------------------------------ group maxima

// Groups of 64; a warp for each.
__global__ void __launch_bounds__(256) maxima_64(const float* __restrict__ x, u32* __restrict__ level1, int64_t N) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int lane = threadIdx.x % 32;
    const int64_t group = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
    const int64_t i = group * 64 + lane;
    const u32 a = i < N ? key_of(x[i]) : 0u;
    const u32 b = i + 32 < N ? key_of(x[i + 32]) : 0u;
    const u32 most = __reduce_max_sync(0xffffffffu, a > b ? a : b);
    if (lane == 0 && group * 64 < N) level1[group] = most;
}

// Groups of 256, and groups of 64 of those: a block of 16 warps for 64 * 256 elements.
__global__ void __launch_bounds__(512)
maxima_256(const float* __restrict__ x, u32* __restrict__ level1, u32* __restrict__ level2, int64_t N) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __shared__ u32 found[16];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int64_t start = static_cast<int64_t>(blockIdx.x) * 16384 + warp * 1024;
    u32 whole = 0;
    if (start + 1024 <= N && (reinterpret_cast<uintptr_t>(x) & 15) == 0) {
        const float4* from = reinterpret_cast<const float4*>(x + start) + lane;
        float4 p[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) p[j] = __ldcs(from + j * 32);
#pragma unroll
        for (int g = 0; g < 4; ++g) {
            u32 most = 0;
#pragma unroll
            for (int j = 2 * g; j < 2 * g + 2; ++j) {
                most = max(most, max(max(key_of(p[j].x), key_of(p[j].y)), max(key_of(p[j].z), key_of(p[j].w))));
            }
            most = __reduce_max_sync(0xffffffffu, most);
            if (lane == 0) level1[start / 256 + g] = most;
            whole = max(whole, most);
        }
    } else {
#pragma unroll 1
        for (int g = 0; g < 4; ++g) {
            float v[8];
            u32 most = 0;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int64_t i = start + g * 256 + j * 32 + lane;
                v[j] = i < N ? __ldcs(x + i) : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int64_t i = start + g * 256 + j * 32 + lane;
                most = max(most, i < N ? key_of(v[j]) : 0u);
            }
            most = __reduce_max_sync(0xffffffffu, most);
            if (lane == 0 && start + g * 256 < N) level1[start / 256 + g] = most;
            whole = max(whole, most);
        }
    }
    if (lane == 0) found[warp] = whole;
    __syncthreads();
    if (warp == 0) {
        const u32 most = __reduce_max_sync(0xffffffffu, lane < 16 ? found[lane] : 0u);
        if (lane == 0) level2[blockIdx.x] = most;
    }
}

// ------------------------------------------------------------------ selection by one block

struct Shared {
    u64 candidates[kCandidates];
    u32 histogram[1024];
    u32 low[32];
    u32 high[32];
    int warp_sum[32];
    int bin, before, within, count;
    int chosen[kMaxK];
    int sorted[kMaxK];
};

__device__ __forceinline__ u64 pack(u32 key, int position) {
    return (static_cast<u64>(key) << 32) | static_cast<u32>(~static_cast<u32>(position));
}

__device__ __forceinline__ int position_of(u64 packed) {
    return static_cast<int>(~static_cast<u32>(packed));
}

// Finds at most 256 candidates that include the first k of keys[0, M). Begins and ends with a barrier. Returns their number.
__device__ int find_candidates(const u32* keys, int M, int k, Shared& sh) {
    const int t = threadIdx.x;
    const int lane = t % 32;
    const int warp = t / 32;
    __syncthreads();
    if (M <= kCandidates) {
        if (t < M) sh.candidates[t] = pack(keys[t], t);
        __syncthreads();
        return M;
    }
    // k or more disjoint sets of elements have each a maximum of at least `low`.
    u32 most = 0;
    for (int i = t; i < M; i += kThreads) most = max(most, keys[i]);
    const int width = k <= 32 ? 32 : (k <= 64 ? 16 : 8);
    for (int d = 1; d < width; d *= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
    {
        const u32 least = __reduce_min_sync(0xffffffffu, most);
        const u32 largest = __reduce_max_sync(0xffffffffu, most);
        if (lane == 0) {
            sh.low[warp] = least;
            sh.high[warp] = largest;
        }
    }
    if (t == 0) sh.count = 0;
    __syncthreads();
    u32 low = __reduce_min_sync(0xffffffffu, sh.low[lane]);
    u32 high = __reduce_max_sync(0xffffffffu, sh.high[lane]);

    if (k <= 32) {  // the bound alone often leaves few enough
        for (int i = t; i < M; i += kThreads) {
            const u32 key = keys[i];
            if (key >= low) {
                const int at = atomicAdd(&sh.count, 1);
                if (at < kCandidates) sh.candidates[at] = pack(key, i);
            }
        }
        __syncthreads();
        const int count = sh.count;
        if (count <= kCandidates) return count;
    }

    int above = 0;  // elements with keys above `high`
    int need = k;   // how many of those in [low, high] are to be found
    bool ties = false;
    while (true) {
        const u32 range = high - low;
        int shift = 32 - __clz(static_cast<int>(range)) - 10;
        if (shift < 0) shift = 0;
        sh.histogram[t] = 0;
        __syncthreads();
        for (int i = t; i < M; i += kThreads) {
            const u32 key = keys[i];
            if (key >= low && key <= high) atomicAdd(&sh.histogram[(key - low) >> shift], 1u);
        }
        __syncthreads();
        const int own = static_cast<int>(sh.histogram[1023 - t]);
        int sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += other;
        }
        if (lane == 31) sh.warp_sum[warp] = sum;
        __syncthreads();
        const int earlier = static_cast<int>(__reduce_add_sync(0xffffffffu, static_cast<u32>(lane < warp ? sh.warp_sum[lane] : 0)));
        sum += earlier;
        if (sum >= need && sum - own < need) {
            sh.bin = 1023 - t;
            sh.before = sum - own;
            sh.within = own;
        }
        if (t == 0) sh.count = 0;
        __syncthreads();
        const int bin = sh.bin;
        const int before = sh.before;
        const int within = sh.within;
        low += static_cast<u32>(bin) << shift;
        const u32 top = low + ((1u << shift) - 1u);
        if (top < high && top >= low) high = top;
        above += before;
        need -= before;
        if (above + within <= kCandidates) break;
        if (shift == 0) {
            ties = true;
            break;
        }
    }
    if (!ties) {
        for (int i = t; i < M; i += kThreads) {
            const u32 key = keys[i];
            if (key >= low) sh.candidates[atomicAdd(&sh.count, 1)] = pack(key, i);
        }
        __syncthreads();
        return sh.count;
    }
    // Many keys equal `low`: all above it, and the first `need` that equal it.
    for (int i = t; i < M; i += kThreads) {
        const u32 key = keys[i];
        if (key > low) sh.candidates[atomicAdd(&sh.count, 1)] = pack(key, i);
    }
    int done = 0;
    for (int base = 0; base < M && done < need; base += kThreads) {
        const int i = base + t;
        const bool equal = i < M && keys[i] == low;
        const u32 mask = __ballot_sync(0xffffffffu, equal);
        __syncthreads();  // warp_sum may still be read
        if (lane == 0) sh.warp_sum[warp] = __popc(mask);
        __syncthreads();
        const u32 count = static_cast<u32>(sh.warp_sum[lane]);
        const int earlier = static_cast<int>(__reduce_add_sync(0xffffffffu, lane < warp ? count : 0u));
        const int total = static_cast<int>(__reduce_add_sync(0xffffffffu, count));
        const int order = done + earlier + __popc(mask & ((1u << lane) - 1u));
        if (equal && order < need) sh.candidates[above + order] = pack(low, i);
        done += total;
    }
    __syncthreads();
    return above + need;
}

// How many of the candidates come before candidate threadIdx.x / 4; count or more where there is none.
__device__ __forceinline__ int rank_of(const Shared& sh, int count) {
    const int mine = threadIdx.x / 4;
    int rank = 0;
    const u64 own = mine < count ? sh.candidates[mine] : 0ull;
    for (int j = threadIdx.x % 4; j < count; j += 4) rank += sh.candidates[j] > own ? 1 : 0;
    rank += __shfl_xor_sync(0xffffffffu, rank, 1);
    rank += __shfl_xor_sync(0xffffffffu, rank, 2);
    return mine < count ? rank : 0x7fffffff;
}

// The positions of the first k of keys[0, M), in ascending order, in sh.sorted.
__device__ void select_sorted(const u32* keys, int M, int k, Shared& sh) {
    const int count = find_candidates(keys, M, k, sh);
    const int rank = rank_of(sh, count);
    if (threadIdx.x % 4 == 0 && rank < k) sh.chosen[rank] = position_of(sh.candidates[threadIdx.x / 4]);
    __syncthreads();
    const int mine = threadIdx.x / 4;
    int place = 0;
    const int own = mine < k ? sh.chosen[mine] : 0;
    for (int j = threadIdx.x % 4; j < k; j += 4) place += sh.chosen[j] < own ? 1 : 0;
    place += __shfl_xor_sync(0xffffffffu, place, 1);
    place += __shfl_xor_sync(0xffffffffu, place, 2);
    if (mine < k && threadIdx.x % 4 == 0) sh.sorted[place] = own;
    __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
select_kernel(const float* __restrict__ x, const u32* level1, const u32* level2, int64_t N, int n1, int n2, int log_group, int levels,
              float* __restrict__ values, int32_t* __restrict__ indices, int k) {
    extern __shared__ u32 keys[];
    __shared__ Shared sh;
    const int t = threadIdx.x;
    int M;
    if (levels == 0) {
        M = static_cast<int>(N);
        for (int base = t; base < M; base += 8 * kThreads) {
            float v[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) v[j] = base + j * kThreads < M ? x[base + j * kThreads] : 0.0f;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                if (base + j * kThreads < M) keys[base + j * kThreads] = key_of(v[j]);
            }
        }
    } else {
        asm volatile("griddepcontrol.wait;" ::: "memory");
        int groups;
        if (levels == 2) {
            for (int i = t; i < n2; i += kThreads) keys[i] = level2[i];
            const int parents = k < n2 ? k : n2;
            select_sorted(keys, n2, parents, sh);
            M = parents * 64;
            for (int base = t; base < M; base += 8 * kThreads) {
                u32 v[8];
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    const int p = base + j * kThreads;
                    v[j] = 0;
                    if (p < M) {
                        const int g = sh.sorted[p >> 6] * 64 + (p & 63);
                        if (g < n1) v[j] = level1[g];
                    }
                }
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    if (base + j * kThreads < M) keys[base + j * kThreads] = v[j];
                }
            }
            // The positions are turned into numbers of groups below; keep the parents until then.
            __shared__ int parent[kMaxK];
            if (t < parents) parent[t] = sh.sorted[t];
            groups = k < n1 ? k : n1;
            select_sorted(keys, M, groups, sh);
            int own = 0;
            if (t < groups) own = parent[sh.sorted[t] >> 6] * 64 + (sh.sorted[t] & 63);
            __syncthreads();
            if (t < groups) sh.sorted[t] = own;
        } else {
            for (int i = t; i < n1; i += kThreads) keys[i] = level1[i];
            groups = k < n1 ? k : n1;
            select_sorted(keys, n1, groups, sh);
        }
        __syncthreads();
        M = groups << log_group;
        const int within = (1 << log_group) - 1;
        for (int base = t; base < M; base += 8 * kThreads) {
            float v[8];
            bool there[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int p = base + j * kThreads;
                v[j] = 0.0f;
                there[j] = false;
                if (p < M) {
                    const int64_t i = (static_cast<int64_t>(sh.sorted[p >> log_group]) << log_group) + (p & within);
                    if (i < N) {
                        there[j] = true;
                        v[j] = x[i];
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                if (base + j * kThreads < M) keys[base + j * kThreads] = there[j] ? key_of(v[j]) : 0u;
            }
        }
    }
    const int count = find_candidates(keys, M, k, sh);
    const int rank = rank_of(sh, count);
    if (t % 4 == 0 && rank < k) {
        const int p = position_of(sh.candidates[t / 4]);
        int64_t i = p;
        if (levels != 0) {
            i = (static_cast<int64_t>(sh.sorted[p >> log_group]) << log_group) + (p & ((1 << log_group) - 1));
        }
        values[rank] = x[i];
        indices[rank] = static_cast<int32_t>(i);
    }
}

}  // namespace

extern "C" size_t top_k_workspace(int64_t N, int64_t k) {
    (void)k;
    if (N <= kOneBlock) return 256;
    const int64_t n1 = (N + 63) / 64;
    return static_cast<size_t>(n1 + (N + 16383) / 16384 + 256) * sizeof(u32);
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k, void* workspace,
                             size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace_bytes;
    u32* level1 = static_cast<u32*>(workspace);
    u32* level2 = level1;
    int n1 = 0, n2 = 0, log_group = 0, levels = 0;
    int64_t most_keys = N;
    if (N > kOneLevel) {
        levels = 2;
        log_group = 8;
        n1 = static_cast<int>((N + 255) / 256);
        n2 = static_cast<int>((N + 16383) / 16384);
        level2 = level1 + (static_cast<int64_t>(n1) + 63) / 64 * 64;
        most_keys = k * 256 > n2 ? k * 256 : n2;
        maxima_256<<<n2, 512, 0, stream>>>(x, level1, level2, N);
    } else if (N > kOneBlock) {
        levels = 1;
        log_group = 6;
        n1 = static_cast<int>((N + 63) / 64);
        most_keys = k * 64 > n1 ? k * 64 : n1;
        maxima_64<<<(n1 + 7) / 8, 256, 0, stream>>>(x, level1, N);
    }
    const size_t bytes = static_cast<size_t>(most_keys) * sizeof(u32);
    cudaError_t error = cudaFuncSetAttribute(select_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 131072);
    if (error != cudaSuccess) return error;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = levels == 0 ? 0 : 1;
    error = cudaLaunchKernelEx(&config, select_kernel, x, static_cast<const u32*>(level1), static_cast<const u32*>(level2), N, n1, n2,
                               log_group, levels, values, indices, static_cast<int>(k));
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
