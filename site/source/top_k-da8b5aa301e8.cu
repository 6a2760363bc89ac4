// Top-k. Unique 64-bit composites (key << 32 | ~index), larger first. Bound from thread maxima, streaming filter, radix selection
// for what remains, sort by counting ranks. Launch-bound for small N; x is read once (about 16 us for 64 MiB) plus a final block.

constexpr int kThreads = 1024;
constexpr int kPerThread = 16;
constexpr int kTile = kThreads * kPerThread;
constexpr int kLimit = 8192;             // candidates that may wait between tiles
constexpr int kCapacity = kTile + kLimit;
constexpr int kSpare = 32;               // how many more than k are sorted
constexpr int kBins = 2048;
constexpr int kMaxBlocks = 132;
constexpr int kFinalPerThread = (kMaxBlocks * 128 + kThreads - 1) / kThreads;

typedef unsigned long long Composite;

__device__ __forceinline__ unsigned key_of(float value) {
    const unsigned bits = __float_as_uint(value);
    const unsigned magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0xffffffffu;
    if (magnitude == 0) return 0x80000000u;
    return (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
}

__device__ __forceinline__ float value_of(unsigned key) {
    return __uint_as_float((key & 0x80000000u) ? (key ^ 0x80000000u) : ~key);
}

__device__ __forceinline__ Composite composite_of(float value, int index) {
    return (static_cast<Composite>(key_of(value)) << 32) | static_cast<unsigned>(~index);
}

struct Shared {
    unsigned histogram[kBins];
    unsigned totals[32];
    int bin;
    int above;   // counted in larger bins
    int inside;  // counted in the bin
    int count;   // candidates
    int listed;
    Composite list[256];
};

// After the histogram is complete and synchronised: the bin that holds the need-th largest, in s.bin, s.above, s.inside;
// s.bin = -1 if there are fewer. Ends synchronised.
__device__ void find_bin(Shared& s, int need) {
    const int tid = threadIdx.x;
    const int lane = tid & 31;
    const int warp = tid >> 5;
    const int high = kBins - 1 - 2 * tid;
    const int a = int(s.histogram[high]);
    const int b = int(s.histogram[high - 1]);
    int scan = a + b;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, scan, d);
        if (lane >= d) scan += other;
    }
    if (lane == 31) s.totals[warp] = unsigned(scan);
    if (tid == 0) s.bin = -1;
    __syncthreads();
    const unsigned before = __reduce_add_sync(0xffffffffu, lane < warp ? s.totals[lane] : 0u);
    const int exclusive = int(before) + scan - a - b;
    if (exclusive < need && need <= exclusive + a) {
        s.bin = high;
        s.above = exclusive;
        s.inside = a;
    } else if (exclusive + a < need && need <= exclusive + a + b) {
        s.bin = high - 1;
        s.above = exclusive + a;
        s.inside = b;
    }
    __syncthreads();
}

__device__ __forceinline__ void clear_histogram(Shared& s) {
    for (int i = threadIdx.x; i < kBins; i += kThreads) s.histogram[i] = 0;
    __syncthreads();
}

// A lower bound of the k-th largest: the k-th largest of the threads' maxima, cut to 22 bits; 0 if there are fewer than k.
__device__ Composite bound_of_maxima(Shared& s, Composite own, int k) {
    clear_histogram(s);
    const int first = int(own >> 53);
    if (own != 0) atomicAdd(&s.histogram[first], 1u);
    __syncthreads();
    find_bin(s, k);
    const int bin = s.bin;
    if (bin < 0) {
        __syncthreads();
        return 0;
    }
    const int need = k - s.above;
    clear_histogram(s);  // its barrier also separates the reads above from the next writes
    if (own != 0 && first == bin) atomicAdd(&s.histogram[int(own >> 42) & (kBins - 1)], 1u);
    __syncthreads();
    find_bin(s, need);
    const int second = s.bin;
    __syncthreads();
    return (static_cast<Composite>(bin) << 53) | (static_cast<Composite>(second) << 42);
}

// From `count` candidates, at least the k largest (all, if there are fewer) into s.list, at most k + kSpare. Returns how many.
// The candidates must be synchronised. Ends synchronised.
__device__ int shorten(Shared& s, const Composite* candidates, int count, int k) {
    const int tid = threadIdx.x;
    Composite bound = 0;
    if (count > k + kSpare) {
        int need = k;
        int taken = 0;
        int shift = 53;
        Composite prefix = 0;
        Composite prefix_mask = 0;
        while (true) {
            const Composite mask = shift == 0 ? 511 : kBins - 1;
            clear_histogram(s);
            for (int i = tid; i < count; i += kThreads) {
                const Composite c = candidates[i];
                if ((c & prefix_mask) == prefix) atomicAdd(&s.histogram[int((c >> shift) & mask)], 1u);
            }
            __syncthreads();
            find_bin(s, need);
            const int bin = s.bin;
            const int above = s.above;
            const int inside = s.inside;
            __syncthreads();
            prefix |= static_cast<Composite>(bin) << shift;
            prefix_mask |= mask << shift;
            taken += above;
            need -= above;
            if (taken + inside <= k + kSpare || shift == 0) break;
            shift = shift == 9 ? 0 : shift - 11;
        }
        bound = prefix;
    }
    if (tid == 0) s.listed = 0;
    __syncthreads();
    for (int i = tid; i < count; i += kThreads) {
        const Composite c = candidates[i];
        if (c >= bound) s.list[atomicAdd(&s.listed, 1)] = c;
    }
    __syncthreads();
    return s.listed;
}

// Calls put(rank, composite) for every one of the list's entries, rank 0 for the largest.
template <typename Put>
__device__ __forceinline__ void by_rank(const Shared& s, int listed, Put put) {
    int bits = 0;
    while (bits < 4 && (listed << (bits + 1)) <= kThreads) ++bits;
    const int parts = 1 << bits;
    const int entry = threadIdx.x >> bits;
    const int part = threadIdx.x & (parts - 1);
    const Composite own = entry < listed ? s.list[entry] : 0;
    int rank = 0;
    if ((int(threadIdx.x & ~31u) >> bits) < listed) {  // uniform in a warp
#pragma unroll 4
        for (int i = part; i < listed; i += parts) rank += s.list[i] > own ? 1 : 0;
        for (int d = parts / 2; d > 0; d /= 2) rank += __shfl_xor_sync(0xffffffffu, rank, d);
        if (entry < listed && part == 0) put(rank, own);
    }
}

__device__ void finish(Shared& s, const Composite* candidates, int count, int k, const float* x, float* values,
                       int32_t* indices) {
    const int listed = shorten(s, candidates, count, k);
    by_rank(s, listed, [&](int rank, Composite c) {
        if (rank < k) {
            const int index = int(~static_cast<unsigned>(c));
            values[rank] = x[index];
            indices[rank] = index;
        }
    });
}

template <bool kVector>
__device__ __forceinline__ void load_tile(float (&v)[kPerThread], const float* x, int start, int end) {
    const int tid = threadIdx.x;
    if (kVector) {
#pragma unroll
        for (int j = 0; j < kPerThread / 4; ++j) {
            const int i = start + 4 * (tid + j * kThreads);
            float4 f = make_float4(0, 0, 0, 0);
            if (i + 3 < end) {
                f = __ldcs(reinterpret_cast<const float4*>(x + i));
            } else {
                if (i < end) f.x = x[i];
                if (i + 1 < end) f.y = x[i + 1];
                if (i + 2 < end) f.z = x[i + 2];
            }
            v[4 * j] = f.x;
            v[4 * j + 1] = f.y;
            v[4 * j + 2] = f.z;
            v[4 * j + 3] = f.w;
        }
    } else {
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
            const int i = start + tid + j * kThreads;
            v[j] = i < end ? __ldcs(x + i) : 0.0f;
        }
    }
}

template <bool kVector>
__device__ __forceinline__ int index_of(int start, int j) {
    return kVector ? start + 4 * (int(threadIdx.x) + (j / 4) * kThreads) + j % 4
                   : start + int(threadIdx.x) + j * kThreads;
}

// One block's part of x. If it is the only block, it writes the result; otherwise k composites (0: nothing).
template <bool kVector>
__global__ void __launch_bounds__(kThreads, 1)
    select_parts(const float* x, float* values, int32_t* indices, int N, int k, int part, Composite* found) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    Composite* candidates = reinterpret_cast<Composite*>(dynamic);
    __shared__ Shared s;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int tid = threadIdx.x;
    const int64_t start64 = int64_t(blockIdx.x) * part;
    const int64_t end64 = start64 + part;
    const int end = end64 < N ? int(end64) : N;
    int start = start64 < N ? int(start64) : N;

    float v[kPerThread];
    load_tile<kVector>(v, x, start, end);
    if (tid == 0) s.count = 0;
    Composite bound = 0;
    {
        unsigned largest = 0;
        int where = 0;
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
            const int i = index_of<kVector>(start, j);
            const unsigned key = key_of(v[j]);
            if (i < end && key > largest) {  // of equal keys the first, which has the lowest index
                largest = key;
                where = i;
            }
        }
        const Composite own =
            largest == 0 ? 0 : (static_cast<Composite>(largest) << 32) | static_cast<unsigned>(~where);
        bound = bound_of_maxima(s, own, k);
    }
    float bound_value = value_of(unsigned(bound >> 32));
    while (true) {
        const int next = end - start > kTile ? start + kTile : end;
        float ahead[kPerThread];
        if (next < end) {
            load_tile<kVector>(ahead, x, next, end);
        } else {
#pragma unroll
            for (int j = 0; j < kPerThread; ++j) ahead[j] = 0;
        }
        bool full = false;
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
            if (!(v[j] < bound_value)) {  // NaN passes
                const int i = index_of<kVector>(start, j);
                const Composite c = composite_of(v[j], i);
                if (i < end && c >= bound) {
                    const int position = atomicAdd(&s.count, 1);
                    candidates[position] = c;
                    full = full || position >= kLimit;
                }
            }
        }
        const int compact = __syncthreads_or(full);
        start = next;
        if (start >= end) break;
        if (compact) {
            const int listed = shorten(s, candidates, s.count, k);
            by_rank(s, listed, [&](int rank, Composite c) {
                if (rank < k) candidates[rank] = c;
            });
            __syncthreads();
            bound = candidates[k - 1];  // more than k were there
            bound_value = value_of(unsigned(bound >> 32));
            if (tid == 0) s.count = k;
            __syncthreads();
        }
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) v[j] = ahead[j];
    }
    const int count = s.count;
    if (gridDim.x == 1) {
        finish(s, candidates, count, k, x, values, indices);
    } else {
        const int listed = shorten(s, candidates, count, k);
        Composite* mine = found + size_t(blockIdx.x) * k;
        by_rank(s, listed, [&](int rank, Composite c) {
            if (rank < k) mine[rank] = c;
        });
        if (tid >= listed && tid < k) mine[tid] = 0;
    }
}

__global__ void __launch_bounds__(kThreads, 1)
    select_found(const Composite* found, int total, const float* x, float* values, int32_t* indices, int k) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    Composite* candidates = reinterpret_cast<Composite*>(dynamic);
    __shared__ Shared s;
    const int tid = threadIdx.x;
    if (tid == 0) s.count = 0;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    Composite v[kFinalPerThread];
    Composite largest = 0;
#pragma unroll
    for (int j = 0; j < kFinalPerThread; ++j) {
        const int i = tid + j * kThreads;
        v[j] = i < total ? __ldcg(found + i) : 0;
    }
#pragma unroll
    for (int j = 0; j < kFinalPerThread; ++j) largest = v[j] > largest ? v[j] : largest;
    const Composite bound = bound_of_maxima(s, largest, k);
#pragma unroll
    for (int j = 0; j < kFinalPerThread; ++j) {
        if (v[j] != 0 && v[j] >= bound) candidates[atomicAdd(&s.count, 1)] = v[j];
    }
    __syncthreads();
    finish(s, candidates, s.count, k, x, values, indices);
}

// ---------------------------------------------------------------- host

static int part_size(int64_t N) {
    if (N <= kTile) return int(N);
    if (N <= int64_t(8192) * kMaxBlocks) return 8192;
    const int64_t part = (N + kMaxBlocks - 1) / kMaxBlocks;
    return int((part + 3) / 4 * 4);
}

extern "C" size_t top_k_workspace(int64_t N, int64_t k) {
    return size_t(kMaxBlocks) * size_t(k) * sizeof(Composite);
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k,
                             void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int n = int(N);
    const int kk = int(k);
    const int part = part_size(N);
    const int blocks = int((N + part - 1) / part);
    Composite* found = static_cast<Composite*>(workspace);
    const int room = part <= kTile ? part : kCapacity;
    const size_t shared = size_t(room) * sizeof(Composite);
    const bool vector = part > 4096 && (reinterpret_cast<uintptr_t>(x) & 15) == 0;
    cudaError_t error;
    if (vector) {
        error = cudaFuncSetAttribute(select_parts<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     int(kCapacity * sizeof(Composite)));
        if (error != cudaSuccess) return error;
        select_parts<true><<<blocks, kThreads, shared, stream>>>(x, values, indices, n, kk, part, found);
    } else {
        error = cudaFuncSetAttribute(select_parts<false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     int(kCapacity * sizeof(Composite)));
        if (error != cudaSuccess) return error;
        select_parts<false><<<blocks, kThreads, shared, stream>>>(x, values, indices, n, kk, part, found);
    }
    error = cudaGetLastError();
    if (error != cudaSuccess || blocks == 1) return error;

    const int total = blocks * kk;
    error = cudaFuncSetAttribute(select_found, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 int(kCapacity * sizeof(Composite)));
    if (error != cudaSuccess) return error;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = size_t(total) * sizeof(Composite);
    config.stream = stream;
    cudaLaunchAttribute attribute[1] = {};
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, select_found, static_cast<const Composite*>(found), total, x, values, indices,
                               kk);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
