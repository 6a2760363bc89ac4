// The k largest values: streaming kernel of maxima (32-ary tree), then one block that descends it, keeping the best k nodes a level.
// A node precedes another if its maximum is larger or equal and its index lower: then the k best nodes hold the k best elements.
// Work does not depend on the data, apart from the number of radix passes. Expected: ~7 us for one block, ~9 us with the tree,
// ~25 us for 16M elements (15 us of reading).

typedef unsigned long long u64;

constexpr int kThreads = 1024;
constexpr int kBins = 2048;
constexpr int kCandidates = 256;
constexpr int kMaxK = 128;
constexpr int kMaximaThreads = 128;
constexpr int64_t kOneBlock = 16384;

__device__ __forceinline__ void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void dependency_release() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Signed integers in the order of the values; -0 becomes 0. NaNs may differ until clamped.
__device__ __forceinline__ int ordered(float x) {
    const int bits = __float_as_int(x);
    const int s = bits ^ ((bits >> 31) & 0x7fffffff);
    return s == -1 ? 0 : s;
}

// Equal for all NaNs; never 0.
__device__ __forceinline__ unsigned int clamped(int s) {
    const int c = s < 0x7f800001 ? s : 0x7f800001;
    return static_cast<unsigned int>(c) ^ 0x80000000u;
}

__device__ __forceinline__ u64 composite(unsigned int key, unsigned int index) {
    return (static_cast<u64>(key) << 32) | static_cast<u64>(~index);
}

__device__ __forceinline__ int warp_max(int v) { return __reduce_max_sync(0xffffffffu, v); }

// ---------------------------------------------------------------- maxima of 32 and of 1024 elements

__global__ void __launch_bounds__(kMaximaThreads)
maxima(const float* __restrict__ x, unsigned int* __restrict__ level1, unsigned int* __restrict__ level2, int64_t N,
       bool vectors) {
    dependency_release();
    const int lane = threadIdx.x % 32;
    const int64_t group = blockIdx.x * static_cast<int64_t>(kMaximaThreads / 32) + threadIdx.x / 32;
    const int64_t base = group * 1024;
    if (base >= N) return;
    const int lowest = static_cast<int>(0x80000000u);
    if (vectors && base + 1024 <= N) {
        const float4* __restrict__ x4 = reinterpret_cast<const float4*>(x + base);
        float4 v[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = __ldg(x4 + j * 32 + lane);
        int m[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int a = max(ordered(v[j].x), ordered(v[j].y));
            const int b = max(ordered(v[j].z), ordered(v[j].w));
            m[j] = max(a, b);
        }
        // Eight lanes hold 32 consecutive elements of every load: the eight loads' maxima go one to a lane.
        const bool b4 = (lane & 4) != 0;
        int n[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int send = b4 ? m[j] : m[j + 4];
            const int keep = b4 ? m[j + 4] : m[j];
            n[j] = max(keep, __shfl_xor_sync(0xffffffffu, send, 4));
        }
        const bool b2 = (lane & 2) != 0;
        int o[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int send = b2 ? n[j] : n[j + 2];
            const int keep = b2 ? n[j + 2] : n[j];
            o[j] = max(keep, __shfl_xor_sync(0xffffffffu, send, 2));
        }
        const bool b1 = (lane & 1) != 0;
        const int send = b1 ? o[0] : o[1];
        const int keep = b1 ? o[1] : o[0];
        const int own = max(keep, __shfl_xor_sync(0xffffffffu, send, 1));
        // This lane has load (lane & 7), lanes (lane & ~7) to (lane | 7): node 4 * (lane & 7) + lane / 8.
        level1[group * 32 + 4 * (lane & 7) + lane / 8] = clamped(own);
        const int all = warp_max(own);
        if (lane == 0) level2[group] = clamped(all);
    } else {
        int own = lowest;
#pragma unroll 8
        for (int j = 0; j < 32; ++j) {
            const int64_t i = base + j * 32 + lane;
            const int s = i < N ? ordered(x[i]) : lowest;
            const int m = warp_max(s);
            if (lane == j) own = m;
        }
        if (base + lane * 32 < N) level1[group * 32 + lane] = clamped(own);
        const int all = warp_max(own);
        if (lane == 0) level2[group] = clamped(all);
    }
}

// Maxima of 32 consecutive nodes each.
__global__ void __launch_bounds__(256)
next_level(const unsigned int* __restrict__ below, unsigned int* __restrict__ above, int64_t count) {
    const int lane = threadIdx.x % 32;
    const int64_t node = blockIdx.x * static_cast<int64_t>(8) + threadIdx.x / 32;
    if (node * 32 >= count) return;
    const int64_t i = node * 32 + lane;
    const unsigned int own = i < count ? below[i] : 0u;
    const unsigned int all = __reduce_max_sync(0xffffffffu, own);
    if (lane == 0) above[node] = all;
}

// ---------------------------------------------------------------- selection in one block

struct Shared {
    alignas(16) u64 candidates[kCandidates];
    u64 sorted[kMaxK];
    unsigned int bins[kBins];
    unsigned int warp_sums[32];
    unsigned int ranks[kCandidates];
    unsigned int counter;
    unsigned int found_bin;
    unsigned int found_above;
    unsigned int found_count;
};

// Leaves the `want` largest of the block's `count` composites (0: none) in shared.sorted, in descending order.
template <int R>
__device__ __forceinline__ void select_largest(const u64 (&own)[R], int64_t count, int want, Shared& shared) {
    const int t = threadIdx.x;
    const int lane = t % 32;
    const int warp = t / 32;
    u64 lower = 0;
    if (t == 0) shared.counter = 0;
    if (t < kCandidates) shared.ranks[t] = 0;
    if (count > kCandidates) {
        u64 prefix = 0;
        int shift = 64;
        unsigned int wanted = want;
        unsigned int taken = 0;
        while (true) {
            const int width = shift < 11 ? shift : 11;
            const int next = shift - width;
            const unsigned int mask = (1u << width) - 1u;
            shared.bins[t] = 0;
            shared.bins[t + kThreads] = 0;
            __syncthreads();
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const bool matches = own[r] != 0 && (shift == 64 || ((own[r] ^ prefix) >> (shift & 63)) == 0);
                if (matches) atomicAdd(&shared.bins[static_cast<unsigned int>(own[r] >> next) & mask], 1u);
            }
            __syncthreads();
            const int high_bin = kBins - 1 - 2 * t;
            const unsigned int a = shared.bins[high_bin];
            const unsigned int b = shared.bins[high_bin - 1];
            unsigned int inclusive = a + b;
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const unsigned int other = __shfl_up_sync(0xffffffffu, inclusive, d);
                if (lane >= d) inclusive += other;
            }
            if (lane == 31) shared.warp_sums[warp] = inclusive;
            __syncthreads();
            const unsigned int warps_before = lane < warp ? shared.warp_sums[lane] : 0u;
            const unsigned int before = __reduce_add_sync(0xffffffffu, warps_before) + inclusive - (a + b);
            if (before < wanted && before + a + b >= wanted) {
                if (before + a >= wanted) {
                    shared.found_bin = high_bin;
                    shared.found_above = before;
                    shared.found_count = a;
                } else {
                    shared.found_bin = high_bin - 1;
                    shared.found_above = before + a;
                    shared.found_count = b;
                }
            }
            __syncthreads();
            prefix |= static_cast<u64>(shared.found_bin) << next;
            taken += shared.found_above;
            wanted -= shared.found_above;
            shift = next;
            if (shift == 0 || taken + shared.found_count <= kCandidates) break;
        }
        lower = prefix;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if (own[r] != 0 && own[r] >= lower) {
            const unsigned int at = atomicAdd(&shared.counter, 1u);
            if (at < kCandidates) shared.candidates[at] = own[r];
        }
    }
    __syncthreads();
    const int found = static_cast<int>(shared.counter);
    int padded = 64;
    while (padded < found && padded < kCandidates) padded *= 2;
    if (t >= found && t < padded) shared.candidates[t] = 0;
    __syncthreads();
    // Thread t compares candidate t % padded to part t / padded of all.
    const int mine_at = t & (padded - 1);
    const u64 mine = shared.candidates[mine_at];
    const int length = padded * padded / kThreads;
    const int begin = (t / padded) * length;
    unsigned int larger = 0;
    for (int i = begin; i < begin + length; i += 4) {
        const ulonglong2 p = *reinterpret_cast<const ulonglong2*>(&shared.candidates[i]);
        const ulonglong2 q = *reinterpret_cast<const ulonglong2*>(&shared.candidates[i + 2]);
        larger += p.x > mine;
        larger += p.y > mine;
        larger += q.x > mine;
        larger += q.y > mine;
    }
    if (larger != 0) atomicAdd(&shared.ranks[mine_at], larger);
    __syncthreads();
    if (t < found) {
        const unsigned int rank = shared.ranks[t];
        if (rank < static_cast<unsigned int>(want)) shared.sorted[rank] = shared.candidates[t];
    }
    __syncthreads();
}

__device__ __forceinline__ int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// `top`: the level to start from, of up to R * 1024 nodes; 0: the elements themselves.
template <int R>
__global__ void __launch_bounds__(kThreads, 1)
descend(const float* __restrict__ x, float* __restrict__ values, int32_t* __restrict__ indices, int64_t N, int k, int top,
        const unsigned int* level1, const unsigned int* level2, const unsigned int* level3) {
    __shared__ Shared shared;
    const int t = threadIdx.x;
    dependency_wait();
    {
        const int64_t count = top == 0   ? N
                              : top == 1 ? (N + 31) / 32
                              : top == 2 ? (N + 1023) / 1024
                                         : (N + 32767) / 32768;
        u64 own[R];
        if (top == 0) {
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const int i = t + r * kThreads;
                own[r] = i < count ? composite(clamped(ordered(x[i])), i) : 0;
            }
        } else {
            const unsigned int* level = top == 1 ? level1 : top == 2 ? level2 : level3;
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const int i = t + r * kThreads;
                own[r] = i < count ? composite(__ldcg(level + i), i) : 0;
            }
        }
        select_largest<R>(own, count, static_cast<int>(smaller(k, count)), shared);
    }
    for (int at = top - 1; at >= 0; --at) {
        const int64_t parents_there = at == 0 ? (N + 31) / 32 : at == 1 ? (N + 1023) / 1024 : (N + 32767) / 32768;
        const int64_t count = at == 0 ? N : at == 1 ? (N + 31) / 32 : (N + 1023) / 1024;
        const int parents = static_cast<int>(smaller(k, parents_there));
        const unsigned int* level = at == 1 ? level1 : level2;
        u64 own[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int c = t + r * kThreads;
            own[r] = 0;
            if ((c >> 5) < parents) {
                const unsigned int parent = ~static_cast<unsigned int>(shared.sorted[c >> 5]);
                const unsigned int child = parent * 32u + (c & 31);
                if (child < count) {
                    const unsigned int key = at == 0 ? clamped(ordered(x[child])) : __ldcg(level + child);
                    own[r] = composite(key, child);
                }
            }
        }
        __syncthreads();  // sorted has been read
        select_largest<4>(own, smaller(static_cast<int64_t>(parents) * 32, count), static_cast<int>(smaller(k, count)), shared);
    }
    if (t < k) {
        const unsigned int i = ~static_cast<unsigned int>(shared.sorted[t]);
        values[t] = x[i];
        indices[t] = static_cast<int32_t>(i);
    }
}

// ---------------------------------------------------------------- launchers

static int64_t rounded(int64_t count) { return (count + 63) / 64 * 64; }

extern "C" size_t top_k_workspace(int64_t N, int64_t k) {
    if (N <= kOneBlock) return 256;
    return static_cast<size_t>(rounded((N + 31) / 32) + rounded((N + 1023) / 1024) + rounded((N + 32767) / 32768)) *
           sizeof(unsigned int);
}

template <int R>
static cudaError_t launch_descend(const float* x, float* values, int32_t* indices, int64_t N, int64_t k, int top,
                                  const unsigned int* level1, const unsigned int* level2, const unsigned int* level3,
                                  bool overlap, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = overlap ? 1 : 0;
    const cudaError_t error = cudaLaunchKernelEx(&config, descend<R>, x, values, indices, N, static_cast<int>(k), top, level1,
                                                 level2, level3);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k, void* workspace,
                             size_t workspace_bytes, cudaStream_t stream) {
    if (N <= kOneBlock) {
        const unsigned int* none = nullptr;
        if (N <= 1024) return launch_descend<1>(x, values, indices, N, k, 0, none, none, none, false, stream);
        if (N <= 4096) return launch_descend<4>(x, values, indices, N, k, 0, none, none, none, false, stream);
        return launch_descend<16>(x, values, indices, N, k, 0, none, none, none, false, stream);
    }
    const int64_t count1 = (N + 31) / 32;
    const int64_t count2 = (N + 1023) / 1024;
    const int64_t count3 = (N + 32767) / 32768;
    unsigned int* level1 = static_cast<unsigned int*>(workspace);
    unsigned int* level2 = level1 + rounded(count1);
    unsigned int* level3 = level2 + rounded(count2);
    const bool vectors = (reinterpret_cast<uintptr_t>(x) & 15) == 0;
    constexpr int64_t groups = kMaximaThreads / 32;
    maxima<<<static_cast<unsigned int>((count2 + groups - 1) / groups), kMaximaThreads, 0, stream>>>(x, level1, level2, N,
                                                                                                    vectors);
    int top = 1;
    int64_t count = count1;
    if (count > 16384) {
        top = 2;
        count = count2;
    }
    bool overlap = true;
    if (count > 16384) {
        top = 3;
        count = count3;
        next_level<<<static_cast<unsigned int>((count3 + 7) / 8), 256, 0, stream>>>(level2, level3, count2);
        overlap = false;
    }
    if (count <= 4096) return launch_descend<4>(x, values, indices, N, k, top, level1, level2, level3, overlap, stream);
    return launch_descend<16>(x, values, indices, N, k, top, level1, level2, level3, overlap, stream);
}
