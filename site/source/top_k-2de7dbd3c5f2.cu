// The k largest: unique 64-bit keys; k-th largest group maximum as threshold, gather, rank by counting.
// One launch for N <= 16384, otherwise two (the second overlaps by programmatic dependent launch). x is streamed once.
// Bound: launch latency plus a few barriers; 64 MiB: memory bandwidth, about 25 us.

typedef unsigned long long u64;
constexpr int kThreads = 1024;
constexpr int kMaxBlocks = 131;
constexpr int kSingle = 16384;   // elements that one block takes alone
constexpr int kPer = 8;          // elements a thread and streamed tile
constexpr int kTile = kThreads * kPer;
constexpr int kFull = 4096;      // more gathered keys than this are thinned out
constexpr int kRankable = 512;

__device__ __forceinline__ u64 make_key(float value, int index) {
    unsigned u = __float_as_uint(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) u = 0x7fffffffu;  // NaNs are equal
    if (u == 0x80000000u) u = 0u;                          // -0 equals 0
    u = (u & 0x80000000u) ? ~u : (u | 0x80000000u);
    return (static_cast<u64>(u) << 32) | static_cast<unsigned>(~index);
}

__device__ __forceinline__ int key_index(u64 key) { return static_cast<int>(~static_cast<unsigned>(key)); }

// A float that no value at or above the key compares less than (NaN, which nothing compares less than, if need be).
__device__ __forceinline__ float key_bound(u64 key) {
    const unsigned u = static_cast<unsigned>(key >> 32);
    return __uint_as_float((u & 0x80000000u) ? (u & 0x7fffffffu) : ~u);
}

struct FromValues {
    const float* x;
    int first;
    __device__ __forceinline__ u64 operator()(int i) const { return make_key(__ldg(x + first + i), first + i); }
};
struct FromKeys {
    const u64* keys;
    __device__ __forceinline__ u64 operator()(int i) const { return keys[i]; }
};

struct Shared {
    u64 part[kThreads];
    u64 maxima[256];
    u64 threshold;
    int count;
};

// Gathers into dst those of n > 512 keys that reach a lower bound of the k-th largest (at most k * ceil(n / G)).
template <typename Source>
__device__ __forceinline__ int thin_out(Source source, int n, int k, int G, u64* dst, Shared& s, u64& threshold) {
    const int t = threadIdx.x;
    u64 best = 0;
    int i = t;
    for (; i + 3 * kThreads < n; i += 4 * kThreads) {
        u64 key[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) key[j] = source(i + j * kThreads);
#pragma unroll
        for (int j = 0; j < 4; ++j) best = key[j] > best ? key[j] : best;
    }
    for (; i < n; i += kThreads) {
        const u64 key = source(i);
        best = key > best ? key : best;
    }
    s.part[t] = best;
    __syncthreads();
    if (t < G) {
        for (int j = t + G; j < kThreads; j += G) {
            const u64 key = s.part[j];
            best = key > best ? key : best;
        }
        s.maxima[t] = best;
    }
    if (t == 0) {
        s.count = 0;
        s.threshold = 0;
    }
    __syncthreads();
    const int P = kThreads / G;
    const u64 mine = s.maxima[t / P];
    int rank = 0;
#pragma unroll 4
    for (int j = t % P; j < G; j += P) rank += s.maxima[j] > mine ? 1 : 0;
    for (int d = P / 2; d > 0; d >>= 1) rank += __shfl_xor_sync(0xffffffffu, rank, d);
    if (t % P == 0 && rank == k - 1) s.threshold = mine;
    __syncthreads();
    threshold = s.threshold;
    i = t;
    for (; i + 3 * kThreads < n; i += 4 * kThreads) {
        u64 key[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) key[j] = source(i + j * kThreads);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (key[j] >= threshold) dst[atomicAdd(&s.count, 1)] = key[j];
        }
    }
    for (; i < n; i += kThreads) {
        const u64 key = source(i);
        if (key >= threshold) dst[atomicAdd(&s.count, 1)] = key;
    }
    __syncthreads();
    const int gathered = s.count;
    __syncthreads();  // everyone has read it before anyone adds to it
    return gathered;
}

// Thins out until counting is cheap. The keys are in `from` before and after.
__device__ __forceinline__ int thin_to_rankable(u64*& from, u64*& to, int m, int k, int G, Shared& s, u64& threshold) {
    while (m > kRankable) {
        m = thin_out(FromKeys{from}, m, k, G, to, s, threshold);
        u64* other = from;
        from = to;
        to = other;
    }
    return m;
}

// Calls put(rank, key) for the keys of ranks 0 to k - 1; m <= 512.
template <typename Put>
__device__ __forceinline__ void rank_keys(const u64* keys, int m, int k, Put put) {
    int P = 2;
    while (P < 32 && 2 * P * m <= kThreads) P *= 2;
    const int t = threadIdx.x;
    const int item = t / P;
    const u64 mine = item < m ? keys[item] : 0;
    int rank = 0;
    if (item < m) {
#pragma unroll 4
        for (int j = t % P; j < m; j += P) rank += keys[j] > mine ? 1 : 0;
    }
    __syncwarp();
    for (int d = P / 2; d > 0; d >>= 1) rank += __shfl_xor_sync(0xffffffffu, rank, d);
    if (item < m && t % P == 0 && rank < k) put(rank, mine);
}

struct PutOutput {
    const float* x;
    float* values;
    int32_t* indices;
    __device__ __forceinline__ void operator()(int rank, u64 key) const {
        const int index = key_index(key);
        values[rank] = x[index];
        indices[rank] = index;
    }
};
struct PutList {
    u64* list;
    int block, blocks;
    __device__ __forceinline__ void operator()(int rank, u64 key) const {
        list[static_cast<int64_t>(rank) * blocks + block] = key;
    }
};

__global__ void __launch_bounds__(kThreads)
topk_single(const float* __restrict__ x, float* __restrict__ values, int32_t* __restrict__ indices, int n, int k, int G,
            int capacity) {
    extern __shared__ __align__(16) u64 buffers[];
    __shared__ Shared s;
    u64* from = buffers;
    u64* to = buffers + capacity;
    u64 threshold = 0;
    int m = n;
    if (n <= kRankable) {
        if (threadIdx.x < n) from[threadIdx.x] = make_key(x[threadIdx.x], threadIdx.x);
        __syncthreads();
    } else {
        m = thin_out(FromValues{x, 0}, n, k, G, from, s, threshold);
        m = thin_to_rankable(from, to, m, k, G, s, threshold);
    }
    rank_keys(from, m, k, PutOutput{x, values, indices});
}

__global__ void __launch_bounds__(kThreads)
topk_part(const float* __restrict__ x, u64* __restrict__ list, int N, int chunk, int k, int G, int capacity) {
    extern __shared__ __align__(16) u64 buffers[];
    __shared__ Shared s;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    u64* from = buffers;
    u64* to = buffers + capacity;
    const int begin = blockIdx.x * chunk;
    const int n = N - begin < chunk ? N - begin : chunk;
    const float* source = x + begin;
    u64 threshold = 0;
    int m;
    if (n <= kRankable) {
        m = n;
        if (threadIdx.x < n) from[threadIdx.x] = make_key(source[threadIdx.x], begin + threadIdx.x);
        __syncthreads();
    } else {
        const int head = n <= kSingle ? n : kTile;
        m = thin_out(FromValues{x, begin}, head, k, G, from, s, threshold);
        if (head < n) {
            if (m > kFull / 2) {
                m = thin_to_rankable(from, to, m, k, G, s, threshold);
            }
            float bound = key_bound(threshold);
            float next[kPer];
#pragma unroll
            for (int j = 0; j < kPer; ++j) {
                const int i = head + j * kThreads + static_cast<int>(threadIdx.x);
                next[j] = i < n ? __ldg(source + i) : 0.f;
            }
            for (int tile = head; tile < n; tile += kTile) {
                float now[kPer];
#pragma unroll
                for (int j = 0; j < kPer; ++j) now[j] = next[j];
#pragma unroll
                for (int j = 0; j < kPer; ++j) {
                    const int i = tile + kTile + j * kThreads + static_cast<int>(threadIdx.x);
                    next[j] = i < n ? __ldg(source + i) : 0.f;
                }
                int full = 0;
#pragma unroll
                for (int j = 0; j < kPer; ++j) {
                    const int i = tile + j * kThreads + static_cast<int>(threadIdx.x);
                    if (!(now[j] < bound) && i < n) {
                        const u64 key = make_key(now[j], begin + i);
                        if (key >= threshold) {
                            const int at = atomicAdd(&s.count, 1);
                            from[at] = key;
                            full |= at >= kFull - 1 ? 1 : 0;
                        }
                    }
                }
                if (__syncthreads_or(full)) {
                    m = s.count;
                    m = thin_to_rankable(from, to, m, k, G, s, threshold);
                    bound = key_bound(threshold);
                    __syncthreads();
                }
            }
            __syncthreads();
            m = s.count;
            m = thin_to_rankable(from, to, m, k, G, s, threshold);
        } else {
            m = thin_to_rankable(from, to, m, k, G, s, threshold);
        }
    }
    const int blocks = static_cast<int>(gridDim.x);
    for (int r = m + static_cast<int>(threadIdx.x); r < k; r += kThreads) {
        list[static_cast<int64_t>(r) * blocks + blockIdx.x] = 0;
    }
    rank_keys(from, m, k, PutList{list, static_cast<int>(blockIdx.x), blocks});
}

__global__ void __launch_bounds__(kThreads)
topk_merge(const float* __restrict__ x, const u64* list, float* __restrict__ values, int32_t* __restrict__ indices, int n,
           int k, int G, int capacity) {
    extern __shared__ __align__(16) u64 buffers[];
    __shared__ Shared s;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    u64* from = buffers;
    u64* to = buffers + capacity;
    u64 threshold = 0;
    int m = n;
    if (n <= kRankable) {
        if (threadIdx.x < n) from[threadIdx.x] = list[threadIdx.x];
        __syncthreads();
    } else {
        m = thin_out(FromKeys{list}, n, k, G, from, s, threshold);
        m = thin_to_rankable(from, to, m, k, G, s, threshold);
    }
    rank_keys(from, m, k, PutOutput{x, values, indices});
}

extern "C" size_t top_k_workspace(int64_t N, int64_t k) {
    return N <= kSingle ? 256 : static_cast<size_t>(kMaxBlocks) * k * sizeof(u64);
}

static int capacity_for(int n) {
    const int half = n / 2 + 512;
    return half < 1024 ? 1024 : half;
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N64, int64_t k64,
                             void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace_bytes;
    const int N = static_cast<int>(N64);
    const int k = static_cast<int>(k64);
    const int G = k <= 32 ? 64 : (k <= 64 ? 128 : 256);
    cudaError_t error;
    if (N <= kSingle) {
        const int capacity = capacity_for(N);
        const int bytes = 2 * capacity * static_cast<int>(sizeof(u64));
        if (bytes > 32 * 1024) {
            error = cudaFuncSetAttribute(topk_single, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
            if (error != cudaSuccess) return error;
        }
        topk_single<<<1, kThreads, bytes, stream>>>(x, values, indices, N, k, G, capacity);
        return cudaGetLastError();
    }
    u64* list = static_cast<u64*>(workspace);
    int64_t wanted = (N64 + 4095) / 4096;
    if (wanted > kMaxBlocks) wanted = kMaxBlocks;
    const int chunk = static_cast<int>((N64 + wanted - 1) / wanted);
    const int blocks = static_cast<int>((N64 + chunk - 1) / chunk);
    const int capacity = chunk <= kSingle ? capacity_for(chunk) : kFull + kTile + 256;
    const int bytes = 2 * capacity * static_cast<int>(sizeof(u64));
    error = cudaFuncSetAttribute(topk_part, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    topk_part<<<blocks, kThreads, bytes, stream>>>(x, list, N, chunk, k, G, capacity);

    const int n = blocks * k;
    const int merge_capacity = capacity_for(n);
    const int merge_bytes = 2 * merge_capacity * static_cast<int>(sizeof(u64));
    error = cudaFuncSetAttribute(topk_merge, cudaFuncAttributeMaxDynamicSharedMemorySize, merge_bytes);
    if (error != cudaSuccess) return error;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = merge_bytes;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, topk_merge, static_cast<const float*>(x), static_cast<const u64*>(list), values,
                               indices, n, k, G, merge_capacity);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
