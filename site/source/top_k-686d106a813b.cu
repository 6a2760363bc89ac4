// The k largest values by thresholds. A 64-bit key (value in the output's order, then the inverted index) makes all elements
// distinct. A block reads its segment once, finds a lower bound of the k-th value from maxima of threads (sorted in warps), collects
// the few hundred elements that reach it, and ranks them by counting. One launch for N <= 4096 (bound: launch), else a second
// block merges sorted lists (bound: one read of x).

typedef unsigned long long u64;

constexpr int kThreads = 1024;
constexpr int kCapacity = 512;
constexpr int kSmall = 4096;      // elements a block, small segments
constexpr int kMaxLists = 132;
constexpr int kGroups = 8;        // packets a round and thread, large segments
constexpr int kAbsent = -2147483647 - 1;

// Signed integers in the order of the floats; only -0 < 0 and NaNs of different payload differ from the output's order.
__device__ __forceinline__ int raw_key(float x) {
    const int b = __float_as_int(x);
    return b ^ ((b >> 31) & 0x7fffffff);
}

__device__ __forceinline__ u64 full_key(int m, int index) {
    if (m == -1) m = 0;                         // -0 equals 0
    if (m > 0x7f800000) m = 0x7fffffff;         // NaNs are equal
    const unsigned high = static_cast<unsigned>(m) ^ 0x80000000u;
    return (static_cast<u64>(high) << 32) | static_cast<u64>(~static_cast<unsigned>(index));
}

__device__ __forceinline__ int key_index(u64 key) {
    return static_cast<int>(~static_cast<unsigned>(key & 0xffffffffull));
}

// The warp's values in descending order.
__device__ __forceinline__ int warp_sort_descending(int v) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int size = 2; size <= 32; size *= 2) {
#pragma unroll
        for (int stride = size / 2; stride > 0; stride /= 2) {
            const int other = __shfl_xor_sync(0xffffffffu, v, stride);
            const bool lower = (lane & stride) == 0;
            const bool descending = (lane & size) == 0;
            v = (lower == descending) ? max(v, other) : min(v, other);
        }
    }
    return v;
}

struct Work {
    ulonglong2 buffer[kCapacity / 2 + 1];
    int rank[kCapacity];
    int threshold[32];
    u64 heads[kMaxLists];
    u64 chosen;
    int count;
};

__device__ __forceinline__ void push(Work& work, u64 key) {
    const int at = atomicAdd(&work.count, 1);
    if (at < kCapacity) reinterpret_cast<u64*>(work.buffer)[at] = key;
}

// Ranks of the collected keys. All threads; begins after a barrier that follows the last push.
__device__ __forceinline__ void rank_collected(Work& work, int count) {
    u64* keys = reinterpret_cast<u64*>(work.buffer);
    for (int i = threadIdx.x; i < kCapacity; i += kThreads) work.rank[i] = 0;
    if (threadIdx.x == 0 && (count & 1)) keys[count] = 0;
    __syncthreads();
    if (count > 0) {
        const int parts = kThreads / count;
        const int part = threadIdx.x / count;
        const int own = threadIdx.x - part * count;
        if (part < parts) {
            const u64 mine = keys[own];
            int larger = 0;
            const int pairs = (count + 1) / 2;
#pragma unroll 4
            for (int i = part; i < pairs; i += parts) {
                const ulonglong2 two = work.buffer[i];
                larger += two.x > mine ? 1 : 0;
                larger += two.y > mine ? 1 : 0;
            }
            atomicAdd(&work.rank[own], larger);
        }
    }
    __syncthreads();
}

// How many keys reach `trial`, in every thread. `key_of(i)` for i in [begin, end); 0 is no key.
template <typename KeyOf>
__device__ __noinline__ int count_reaching(Work& work, KeyOf key_of, int begin, int end, u64 trial) {
    __syncthreads();
    if (threadIdx.x == 0) work.count = 0;
    __syncthreads();
    int own = 0;
#pragma unroll 4
    for (int64_t i = static_cast<int64_t>(begin) + threadIdx.x; i < end; i += kThreads) {
        own += key_of(static_cast<int>(i)) >= trial ? 1 : 0;
    }
    own = __reduce_add_sync(0xffffffffu, own);
    if ((threadIdx.x & 31) == 0 && own > 0) atomicAdd(&work.count, own);
    __syncthreads();
    return work.count;
}

// Collects at least the k largest keys and no more than fit, exactly, whatever the keys are. Returns their number.
template <typename KeyOf>
__device__ __noinline__ int collect_exactly(Work& work, KeyOf key_of, int begin, int end, int k) {
    u64 prefix = 0;
    for (int bit = 63; bit >= 0; --bit) {
        const u64 trial = prefix | (1ull << bit);
        const int count = count_reaching(work, key_of, begin, end, trial);
        if (count >= k) {
            prefix = trial;
            if (count <= kCapacity) break;
        }
    }
    if (prefix == 0) prefix = 1;
    __syncthreads();
    if (threadIdx.x == 0) work.count = 0;
    __syncthreads();
    for (int64_t i = static_cast<int64_t>(begin) + threadIdx.x; i < end; i += kThreads) {
        const u64 key = key_of(static_cast<int>(i));
        if (key >= prefix) push(work, key);
    }
    __syncthreads();
    return min(work.count, kCapacity);
}

struct ElementKey {
    const float* x;
    __device__ u64 operator()(int i) const { return full_key(raw_key(x[i]), i); }
};

struct ListKey {
    const u64* lists;
    __device__ u64 operator()(int i) const { return __ldcg(lists + i); }
};

// The threshold from each thread's largest raw key; at least k raw keys of the block reach it, if it has k.
__device__ __forceinline__ int block_threshold(Work& work, int head, int k) {
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int depth = (k + 15) / 16;                  // 1 to 8
    const int lists = (k + depth - 1) / depth;        // 1 to 16
    const int sorted = warp_sort_descending(head);
    if (lane == depth - 1) work.threshold[warp] = sorted;
    if (threadIdx.x == 0) work.count = 0;
    __syncthreads();
    const int all = warp_sort_descending(work.threshold[lane]);
    int t = __shfl_sync(0xffffffffu, all, lists - 1);
    if (t == 0) t = -1;                               // -0 ties with 0
    if (t > 0x7f800000) t = 0x7f800001;               // every NaN ties
    if (t == kAbsent) t = kAbsent + 1;
    return t;
}

__device__ __forceinline__ void emit(const Work& work, int count, const float* x, float* values, int32_t* indices, u64* lists,
                                     int k, bool last) {
    const u64* keys = reinterpret_cast<const u64*>(work.buffer);
    const int t = threadIdx.x;
    if (t < count) {
        const int r = work.rank[t];
        if (r < k) {
            const u64 key = keys[t];
            if (last) {
                const int index = key_index(key);
                values[r] = x[index];
                indices[r] = index;
            } else {
                lists[static_cast<int64_t>(blockIdx.x) * k + r] = key;
            }
        }
    }
    if (!last && t >= count && t < k) lists[static_cast<int64_t>(blockIdx.x) * k + t] = 0;
}

// Segments of 4096 elements, held in registers.
__global__ void __launch_bounds__(kThreads) small_kernel(const float* __restrict__ x, float* values, int32_t* indices, u64* lists,
                                                         int N, int k, int last) {
    __shared__ Work work;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int begin = blockIdx.x * kSmall;
    const int end = min(N, begin + kSmall);
    int m[kSmall / kThreads];
#pragma unroll
    for (int s = 0; s < kSmall / kThreads; ++s) {
        const int i = begin + s * kThreads + threadIdx.x;
        m[s] = kAbsent;
        if (i < end) m[s] = raw_key(x[i]);
    }
    int head = m[0];
#pragma unroll
    for (int s = 1; s < kSmall / kThreads; ++s) head = max(head, m[s]);
    const int t = block_threshold(work, head, k);
#pragma unroll
    for (int s = 0; s < kSmall / kThreads; ++s) {
        if (m[s] >= t) push(work, full_key(m[s], begin + s * kThreads + threadIdx.x));
    }
    __syncthreads();
    int count = work.count;
    if (count > kCapacity) count = collect_exactly(work, ElementKey{x}, begin, end, k);
    rank_collected(work, count);
    emit(work, count, x, values, indices, lists, k, last != 0);
}

template <bool kAligned>
__device__ __forceinline__ float4 load_full(const float* x, int packet) {
    if constexpr (kAligned) {
        return __ldg(reinterpret_cast<const float4*>(x) + packet);
    } else {
        const float* from = x + static_cast<int64_t>(packet) * 4;
        return make_float4(__ldg(from), __ldg(from + 1), __ldg(from + 2), __ldg(from + 3));
    }
}

// Segments of `rounds` times 32768 elements; a thread remembers the maxima of kGroups groups of its packets.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads) large_kernel(const float* __restrict__ x, u64* lists, int N, int k, int rounds) {
    __shared__ Work work;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int first = blockIdx.x * rounds * (kGroups * kThreads);
    const int full = N / 4;  // whole packets
    int m[kGroups];
#pragma unroll
    for (int s = 0; s < kGroups; ++s) m[s] = kAbsent;
    for (int round = 0; round < rounds; ++round) {
        const int base = first + round * (kGroups * kThreads);
        if (base + kGroups * kThreads <= full) {
            float4 v[kGroups];
#pragma unroll
            for (int s = 0; s < kGroups; ++s) v[s] = load_full<kAligned>(x, base + s * kThreads + threadIdx.x);
#pragma unroll
            for (int s = 0; s < kGroups; ++s) {
                m[s] = max(m[s], max(max(raw_key(v[s].x), raw_key(v[s].y)), max(raw_key(v[s].z), raw_key(v[s].w))));
            }
        } else {
#pragma unroll
            for (int s = 0; s < kGroups; ++s) {
                const int packet = base + s * kThreads + threadIdx.x;
                for (int e = 0; e < 4; ++e) {
                    const int64_t i = static_cast<int64_t>(packet) * 4 + e;
                    if (i < N) m[s] = max(m[s], raw_key(x[i]));
                }
            }
        }
    }
    int head = m[0];
#pragma unroll
    for (int s = 1; s < kGroups; ++s) head = max(head, m[s]);
    const int t = block_threshold(work, head, k);
    if (head >= t) {
#pragma unroll
        for (int s = 0; s < kGroups; ++s) {
            if (m[s] >= t) {
#pragma unroll 4
                for (int round = 0; round < rounds; ++round) {
                    const int packet = first + round * (kGroups * kThreads) + s * kThreads + threadIdx.x;
                    if (packet < full) {
                        const float4 v = load_full<kAligned>(x, packet);
                        const int k0 = raw_key(v.x), k1 = raw_key(v.y), k2 = raw_key(v.z), k3 = raw_key(v.w);
                        if (max(max(k0, k1), max(k2, k3)) >= t) {
                            if (k0 >= t) push(work, full_key(k0, packet * 4));
                            if (k1 >= t) push(work, full_key(k1, packet * 4 + 1));
                            if (k2 >= t) push(work, full_key(k2, packet * 4 + 2));
                            if (k3 >= t) push(work, full_key(k3, packet * 4 + 3));
                        }
                    } else {
                        for (int e = 0; e < 4; ++e) {
                            const int64_t i = static_cast<int64_t>(packet) * 4 + e;
                            if (i < N) {
                                const int key = raw_key(x[i]);
                                if (key >= t) push(work, full_key(key, static_cast<int>(i)));
                            }
                        }
                    }
                }
            }
        }
    }
    __syncthreads();
    int count = work.count;
    if (count > kCapacity) {
        const int64_t begin = static_cast<int64_t>(first) * 4;
        int64_t end = begin + static_cast<int64_t>(rounds) * (kGroups * kThreads) * 4;
        if (end > N) end = N;
        count = collect_exactly(work, ElementKey{x}, static_cast<int>(begin), static_cast<int>(end), k);
    }
    rank_collected(work, count);
    emit(work, count, x, nullptr, nullptr, lists, k, false);
}

// Merges `count_lists` sorted lists of k keys.
__global__ void __launch_bounds__(kThreads) merge_kernel(const float* __restrict__ x, float* values, int32_t* indices,
                                                         const u64* lists, int count_lists, int k) {
    __shared__ Work work;
    constexpr int kAhead = (kMaxLists + 31) / 32;
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int depth = (2 * k + count_lists - 1) / count_lists;  // at most k, as there are two lists or more
    const int wanted = (k + depth - 1) / depth;                 // lists
    if (threadIdx.x == 0) {
        work.count = 0;
        work.chosen = 0;
    }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    u64 ahead[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
        const int p = warp + a * 32;
        ahead[a] = 0;
        if (p < count_lists && lane < k) ahead[a] = __ldcg(lists + p * k + lane);
    }
    if (threadIdx.x < count_lists) work.heads[threadIdx.x] = __ldcg(lists + threadIdx.x * k + depth - 1);
    __syncthreads();
    for (int p = warp; p < count_lists; p += 32) {
        const u64 mine = work.heads[p];
        int larger = 0;
        for (int i = lane; i < count_lists; i += 32) larger += work.heads[i] > mine ? 1 : 0;
        larger = __reduce_add_sync(0xffffffffu, larger);
        if (larger == wanted - 1 && lane == 0) work.chosen = mine;
    }
    __syncthreads();
    u64 t = work.chosen;
    if (t == 0) t = 1;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
        const int p = warp + a * 32;
        if (p < count_lists) {
            u64 key = ahead[a];
            for (int base = 32;; base += 32) {
                if (key >= t) push(work, key);
                if (__any_sync(0xffffffffu, key < t) || base >= k) break;
                key = base + lane < k ? __ldcg(lists + p * k + base + lane) : 0;
            }
        }
    }
    __syncthreads();
    int count = work.count;
    if (count > kCapacity) count = collect_exactly(work, ListKey{lists}, 0, count_lists * k, k);
    rank_collected(work, count);
    emit(work, count, x, values, indices, nullptr, k, true);
}

extern "C" size_t top_k_workspace(int64_t N, int64_t k) {
    (void)N;
    return static_cast<size_t>(kMaxLists) * static_cast<size_t>(k) * sizeof(u64);
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k, void* workspace,
                             size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace_bytes;
    u64* lists = static_cast<u64*>(workspace);
    const int n = static_cast<int>(N);
    const int wanted = static_cast<int>(k);
    if (N <= kSmall) {
        small_kernel<<<1, kThreads, 0, stream>>>(x, values, indices, lists, n, wanted, 1);
        return cudaGetLastError();
    }
    int blocks;
    if (N <= static_cast<int64_t>(kSmall) * kMaxLists) {
        blocks = (n + kSmall - 1) / kSmall;
        small_kernel<<<blocks, kThreads, 0, stream>>>(x, values, indices, lists, n, wanted, 0);
    } else {
        const int64_t units = (N + 4 * kGroups * kThreads - 1) / (4 * kGroups * kThreads);
        const int64_t rounds = (units + kMaxLists - 1) / kMaxLists;
        blocks = static_cast<int>((units + rounds - 1) / rounds);
        if ((reinterpret_cast<uintptr_t>(x) & 15) == 0) {
            large_kernel<true><<<blocks, kThreads, 0, stream>>>(x, lists, n, wanted, static_cast<int>(rounds));
        } else {
            large_kernel<false><<<blocks, kThreads, 0, stream>>>(x, lists, n, wanted, static_cast<int>(rounds));
        }
    }
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1, 1, 1);
    config.blockDim = dim3(kThreads, 1, 1);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const float* x_in = x;
    const u64* lists_in = lists;
    error = cudaLaunchKernelEx(&config, merge_kernel, x_in, values, indices, lists_in, blocks, wanted);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
