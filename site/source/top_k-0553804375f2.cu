// The k largest values, fp32.
// A threshold from a bisection over the maxima of 1024 threads leaves about 1.2 k candidates; their ranks are counted. Keys of 64 bits
// (ordered value, complement of the index) are unique, so ties follow the rule. Expected: about 7 us for one block, 11 us for two
// kernels, and two passes (the second mostly from L2) of 64 MiB in about 30 us.

typedef unsigned long long key_t64;

constexpr int kThreads = 1024;
constexpr int kCapacity = 2048;
constexpr int kMaxBlocks = 132;
constexpr int kOneBlock = 16384;
constexpr int kMaxK = 128;

// Increasing with the order of the output; NaN above everything, -0 the same as 0; between 0x007fffff and 0xfffffffe.
__device__ __forceinline__ unsigned ordered(float value) {
    unsigned u = __float_as_uint(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0xfffffffeu;
    if (u == 0x80000000u) u = 0u;
    return (u & 0x80000000u) ? ~u : (u | 0x80000000u);
}

// Elements begin .. begin + n of x.
struct FromArray {
    const float* x;
    int begin;
    int n;

    template <bool kReverse, typename F>
    __device__ __forceinline__ void each(F f) const {
        const float* p = x + begin;
        if ((reinterpret_cast<uintptr_t>(p) & 15) == 0) {
            constexpr int U = 4;
            const int n4 = n / 4;
            const float4* p4 = reinterpret_cast<const float4*>(p);
            const int tiles = (n4 + kThreads * U - 1) / (kThreads * U);
            for (int t = 0; t < tiles; ++t) {
                const int first = (kReverse ? tiles - 1 - t : t) * (kThreads * U) + static_cast<int>(threadIdx.x);
                float4 v[U];
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    v[u] = make_float4(0.f, 0.f, 0.f, 0.f);
                    if (first + u * kThreads < n4) v[u] = __ldg(p4 + (first + u * kThreads));
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    const int at = first + u * kThreads;
                    if (at < n4) {
                        const int i = begin + 4 * at;
                        f(ordered(v[u].x), static_cast<unsigned>(i));
                        f(ordered(v[u].y), static_cast<unsigned>(i + 1));
                        f(ordered(v[u].z), static_cast<unsigned>(i + 2));
                        f(ordered(v[u].w), static_cast<unsigned>(i + 3));
                    }
                }
            }
            const int last = 4 * n4 + static_cast<int>(threadIdx.x);
            if (last < n) f(ordered(__ldg(p + last)), static_cast<unsigned>(begin + last));
        } else {
            constexpr int U = 8;
            const int tiles = (n + kThreads * U - 1) / (kThreads * U);
            for (int t = 0; t < tiles; ++t) {
                const int first = (kReverse ? tiles - 1 - t : t) * (kThreads * U) + static_cast<int>(threadIdx.x);
                float v[U];
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    v[u] = 0.f;
                    if (first + u * kThreads < n) v[u] = __ldg(p + (first + u * kThreads));
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    const int at = first + u * kThreads;
                    if (at < n) f(ordered(v[u]), static_cast<unsigned>(begin + at));
                }
            }
        }
    }
};

// Keys that the blocks of the first kernel found; 0 is none.
struct FromKeys {
    const key_t64* keys;
    int n;

    template <bool kReverse, typename F>
    __device__ __forceinline__ void each(F f) const {
        constexpr int U = 8;
        for (int base = 0; base < n; base += kThreads * U) {
            key_t64 v[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                const int at = base + u * kThreads + static_cast<int>(threadIdx.x);
                v[u] = 0;
                if (at < n) v[u] = keys[at];
            }
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (v[u] != 0) f(static_cast<unsigned>(v[u] >> 32), ~static_cast<unsigned>(v[u]));
            }
        }
    }
};

__device__ __forceinline__ key_t64 make_key(unsigned order, unsigned index) {
    return (static_cast<key_t64>(order) << 32) | static_cast<key_t64>(~index);
}

// Calls put(rank, key) once for each of the first k, or fewer where the source has fewer.
template <typename Source, typename Put>
__device__ __forceinline__ int select_first(const Source& source, int k, Put put) {
    __shared__ __align__(16) key_t64 found[kCapacity];
    __shared__ int count;
    __shared__ int total;
    const int tid = threadIdx.x;

    if (tid == 0) count = 0;
    unsigned best = 0;
    source.template each<false>([&](unsigned order, unsigned) { best = max(best, order); });

    // At least k maxima reach `low` (or low is 0), fewer than k reach `high`.
    unsigned low = 0, high = 0xffffffffu;
    const int enough = k + k / 2 + 16;
    while (high - low > 1) {
        const unsigned middle = low + (high - low) / 2;
        const int reached = __syncthreads_count(best >= middle);
        if (reached >= k) {
            low = middle;
            if (reached <= enough) break;
        } else {
            high = middle;
        }
    }
    __syncthreads();

    key_t64 threshold = static_cast<key_t64>(low) << 32;
    source.template each<true>([&](unsigned order, unsigned index) {
        if (order >= low) {
            const int at = atomicAdd(&count, 1);
            if (at < kCapacity) found[at] = make_key(order, index);
        }
    });
    __syncthreads();
    int candidates = count;

    if (candidates > kCapacity) {
        key_t64 least = threshold, most = ~static_cast<key_t64>(0);
        while (most - least > 1) {
            const key_t64 middle = least + (most - least) / 2;
            __syncthreads();
            if (tid == 0) total = 0;
            __syncthreads();
            int own = 0;
            source.template each<false>([&](unsigned order, unsigned index) { own += make_key(order, index) >= middle ? 1 : 0; });
            own = __reduce_add_sync(0xffffffffu, own);
            if (tid % 32 == 0 && own != 0) atomicAdd(&total, own);
            __syncthreads();
            const int reached = total;
            if (reached >= k) {
                least = middle;
                if (reached <= kCapacity) break;
            } else {
                most = middle;
            }
        }
        threshold = least;
        __syncthreads();
        if (tid == 0) count = 0;
        __syncthreads();
        source.template each<false>([&](unsigned order, unsigned index) {
            const key_t64 key = make_key(order, index);
            if (key >= threshold) {
                const int at = atomicAdd(&count, 1);
                if (at < kCapacity) found[at] = key;
            }
        });
        __syncthreads();
        candidates = min(count, kCapacity);
    }

    // Ranks: `parts` neighbouring lanes share a candidate.
    int parts = 32;
    while (parts > 1 && candidates * parts > kThreads) parts /= 2;
    const int part = tid % parts;
    const int together = kThreads / parts;
    for (int base = 0; base < candidates; base += together) {
        const int c = base + tid / parts;
        const key_t64 own = c < candidates ? found[c] : 0;
        int rank = 0;
#pragma unroll 8
        for (int j = part; j < candidates; j += parts) rank += found[j] > own ? 1 : 0;
        for (int d = parts / 2; d > 0; d /= 2) rank += __shfl_xor_sync(0xffffffffu, rank, d);
        if (part == 0 && c < candidates && rank < k) put(rank, own);
    }
    return candidates;
}

__global__ void __launch_bounds__(kThreads, 1) select_all(const float* __restrict__ x, float* __restrict__ values,
                                                          int32_t* __restrict__ indices, int N, int k) {
    const FromArray source{x, 0, N};
    select_first(source, k, [&](int rank, key_t64 key) {
        const unsigned index = ~static_cast<unsigned>(key);
        values[rank] = __ldg(x + index);
        indices[rank] = static_cast<int32_t>(index);
    });
}

__global__ void __launch_bounds__(kThreads, 1) select_part(const float* __restrict__ x, key_t64* keys, int N, int k, int chunk) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int begin = blockIdx.x * chunk;
    const FromArray source{x, begin, min(chunk, N - begin)};
    key_t64* own = keys + static_cast<int>(blockIdx.x) * k;
    const int found = select_first(source, k, [&](int rank, key_t64 key) { own[rank] = key; });
    for (int i = found + static_cast<int>(threadIdx.x); i < k; i += kThreads) own[i] = 0;
}

__global__ void __launch_bounds__(kThreads, 1) select_last(const float* __restrict__ x, const key_t64* keys, float* __restrict__ values,
                                                           int32_t* __restrict__ indices, int count, int k) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const FromKeys source{keys, count};
    select_first(source, k, [&](int rank, key_t64 key) {
        const unsigned index = ~static_cast<unsigned>(key);
        values[rank] = __ldg(x + index);
        indices[rank] = static_cast<int32_t>(index);
    });
}

extern "C" size_t top_k_workspace(int64_t N, int64_t k) {
    return static_cast<size_t>(kMaxBlocks) * kMaxK * sizeof(key_t64);
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k, void* workspace,
                             size_t workspace_bytes, cudaStream_t stream) {
    const int n = static_cast<int>(N);
    const int wanted = static_cast<int>(k);
    if (n <= kOneBlock) {
        select_all<<<1, kThreads, 0, stream>>>(x, values, indices, n, wanted);
        return cudaGetLastError();
    }
    key_t64* keys = static_cast<key_t64*>(workspace);
    int blocks = (n + 4095) / 4096;
    if (blocks > kMaxBlocks) blocks = kMaxBlocks;
    int chunk = (n + blocks - 1) / blocks;
    chunk = (chunk + 3) / 4 * 4;
    blocks = (n + chunk - 1) / chunk;
    select_part<<<blocks, kThreads, 0, stream>>>(x, keys, n, wanted, chunk);

    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, select_last, static_cast<const float*>(x), static_cast<const key_t64*>(keys), values, indices,
                       blocks * wanted, wanted);
    return cudaGetLastError();
}
