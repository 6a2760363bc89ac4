// Sorting, bf16. There are only 65536 keys, so nothing is ever exchanged: elements are counted.
// N ≤ 4096: every pair is compared, spread over the device: an element's place is the number of elements that come before it, and
//   with keys as whole numbers in fp32 a comparison is one saturated subtraction. One launch, expected about 5 to 6 us.
// N ≤ 131072: one cluster of 16 blocks: a histogram in distributed shared memory, its prefix sum, a mark where each key begins in
//   the output, and a running maximum that spreads the marks. One launch, expected about 10 us.
// Above: a histogram for each multiprocessor (two 16-bit counters in a word, 128 KiB), a prefix sum, and an output that looks its keys
//   up by bisection, chained by programmatic dependent launch. Reads x once, writes y once: about 45 us for 16777216.

namespace {

constexpr int kKeys = 65536;

// Keys ascend as values do (-0 before 0); NaNs without sign come last.
__device__ __forceinline__ uint32_t key_of(uint32_t bits) {
    return bits ^ ((bits & 0x8000u) ? 0xffffu : 0x8000u);
}

__device__ __forceinline__ uint32_t bits_of(uint32_t key) {
    return key ^ ((key & 0x8000u) ? 0x8000u : 0xffffu);
}

__device__ __forceinline__ uint32_t word(uint4 packet, int w) {
    return w == 0 ? packet.x : w == 1 ? packet.y : w == 2 ? packet.z : packet.w;
}

__device__ __forceinline__ uint32_t lane_bits(uint4 packet, int e) {
    const uint32_t pair = word(packet, e / 2);
    return e % 2 ? pair >> 16 : pair & 0xffffu;
}

__device__ __forceinline__ uint16_t load_bits(const scalar_t* x, int64_t i) {
    return reinterpret_cast<const uint16_t*>(x)[i];
}

__device__ __forceinline__ void store_bits(scalar_t* y, int64_t i, uint32_t bits) {
    reinterpret_cast<uint16_t*>(y)[i] = static_cast<uint16_t>(bits);
}

// ---------------------------------------------------------------- all pairs

constexpr int kPairsMax = 4096;
constexpr int kPairsThreads = 512;
constexpr int kPairsWarps = kPairsThreads / 32;

// Each block places 32 elements, one for each lane; its warps share the chunks of 32 that these are compared with.
__global__ void __launch_bounds__(kPairsThreads) all_pairs(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int N, bool aligned) {
    __shared__ __align__(16) float keys[kPairsMax];
    __shared__ float counts[kPairsWarps][32];
    const int chunks = (N + 31) / 32;
    const int first = threadIdx.x * 8;
    if (first < chunks * 32) {
        float own[8];
        if (aligned && first + 8 <= N) {
            const uint4 packet = reinterpret_cast<const uint4*>(x)[threadIdx.x];
#pragma unroll
            for (int e = 0; e < 8; ++e) own[e] = static_cast<float>(key_of(lane_bits(packet, e)));
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) own[e] = first + e < N ? static_cast<float>(key_of(load_bits(x, first + e))) : 1e6f;
        }
        float4* to = reinterpret_cast<float4*>(keys + first);
        to[0] = make_float4(own[0], own[1], own[2], own[3]);
        to[1] = make_float4(own[4], own[5], own[6], own[7]);
    }
    __syncthreads();

    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int chunk = blockIdx.x;
    const float key = keys[chunk * 32 + lane];
    float a = 0, b = 0, c = 0, d = 0;
    for (int other = warp; other < chunks; other += kPairsWarps) {
        const float4* theirs = reinterpret_cast<const float4*>(keys + other * 32);
        if (other != chunk) {
            const float bar = other < chunk ? key + 1 : key;  // of equals the first comes first
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const float4 four = theirs[j];
                a += __saturatef(bar - four.x);
                b += __saturatef(bar - four.y);
                c += __saturatef(bar - four.z);
                d += __saturatef(bar - four.w);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const float4 four = theirs[j];
                a += __saturatef((4 * j + 0 < lane ? key + 1 : key) - four.x);
                b += __saturatef((4 * j + 1 < lane ? key + 1 : key) - four.y);
                c += __saturatef((4 * j + 2 < lane ? key + 1 : key) - four.z);
                d += __saturatef((4 * j + 3 < lane ? key + 1 : key) - four.w);
            }
        }
    }
    counts[warp][lane] = (a + b) + (c + d);
    __syncthreads();
    if (warp == 0 && chunk * 32 + lane < N) {
        float place = 0;
#pragma unroll
        for (int w = 0; w < kPairsWarps; ++w) place += counts[w][lane];
        store_bits(y, static_cast<int>(place), bits_of(static_cast<uint32_t>(key)));
    }
}

// ---------------------------------------------------------------- clusters

__device__ __forceinline__ void cluster_barrier() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ uint32_t remote(uint32_t address, uint32_t block) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    return there;
}

__device__ __forceinline__ void remote_increment(uint32_t address) {
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" :: "r"(address) : "memory");
}

__device__ __forceinline__ uint32_t remote_load(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ void remote_store(uint32_t address, uint32_t value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void remote_store_16(uint32_t address, uint32_t value) {
    asm volatile("st.shared::cluster.u16 [%0], %1;" :: "r"(address), "h"(static_cast<uint16_t>(value)) : "memory");
}

// The sum over the threads before this one, of 1024; `total` is that over all.
__device__ __forceinline__ uint32_t block_scan(uint32_t own, uint32_t* scratch, uint32_t& total) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    uint32_t inclusive = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, inclusive, distance);
        if (lane >= distance) inclusive += before;
    }
    if (lane == 31) scratch[warp] = inclusive;
    __syncthreads();
    uint32_t sums = scratch[lane];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, sums, distance);
        if (lane >= distance) sums += before;
    }
    total = __shfl_sync(0xffffffffu, sums, 31);
    const uint32_t earlier = __shfl_sync(0xffffffffu, sums, warp > 0 ? warp - 1 : 0);
    return (warp > 0 ? earlier : 0) + inclusive - own;
}

// ---------------------------------------------------------------- one cluster

constexpr int kClusterBlocks = 16;
constexpr int kClusterThreads = 1024;
constexpr int kClusterMax = kClusterBlocks * kClusterThreads * 8;

__global__ void __launch_bounds__(kClusterThreads, 1) one_cluster(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int N, int share,
                                                                  bool aligned_x, bool aligned_y) {
    __shared__ __align__(16) uint32_t counts[kKeys / kClusterBlocks];  // of the keys with this block's low bits
    __shared__ __align__(16) uint16_t marks[kClusterThreads * 8];      // the key that begins at each of this block's outputs, or 0
    __shared__ uint32_t totals[kClusterBlocks];
    __shared__ uint32_t scratch[32];
    __shared__ uint32_t scratch_max[32];
    const uint32_t rank = blockIdx.x;
    const int thread = threadIdx.x;
    const int lane = thread % 32;
    const int warp = thread / 32;

    // One packet for each thread, dealt out to the blocks a warp at a time.
    const int first = ((warp * kClusterBlocks + static_cast<int>(rank)) * 32 + lane) * 8;
    const bool whole = aligned_x && first + 8 <= N;
    uint4 packet = make_uint4(0, 0, 0, 0);
    if (whole) packet = *reinterpret_cast<const uint4*>(x + first);
    reinterpret_cast<uint4*>(counts)[thread] = make_uint4(0, 0, 0, 0);
    reinterpret_cast<uint4*>(marks)[thread] = make_uint4(0, 0, 0, 0);
    cluster_barrier();

    const uint32_t counts_at = shared_address(counts);
    if (whole) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const uint32_t key = key_of(lane_bits(packet, e));
            remote_increment(remote(counts_at + (key >> 4) * 4, key & 15));
        }
    } else {
        for (int i = first; i < first + 8 && i < N; ++i) {
            const uint32_t key = key_of(load_bits(x, i));
            remote_increment(remote(counts_at + (key >> 4) * 4, key & 15));
        }
    }
    cluster_barrier();

    // Four neighbouring keys for each thread.
    const uint32_t low_key = rank * (kKeys / kClusterBlocks) + thread * 4;
    uint32_t count[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) count[k] = remote_load(remote(counts_at + (low_key >> 4) * 4, (low_key + k) & 15));
    uint32_t total;
    uint32_t start = block_scan(count[0] + count[1] + count[2] + count[3], scratch, total);
    if (thread < kClusterBlocks) remote_store(remote(shared_address(totals + rank), thread), total);
    cluster_barrier();
#pragma unroll
    for (int r = 0; r < kClusterBlocks; ++r) start += r < static_cast<int>(rank) ? totals[r] : 0;

    const uint32_t marks_at = shared_address(marks);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (count[k] > 0) {
            const uint32_t end = start + count[k];
            uint32_t block = start / share;
            remote_store_16(remote(marks_at + (start - block * share) * 2, block), low_key + k);
            for (++block; block * share < end; ++block) remote_store_16(remote(marks_at, block), low_key + k);
            start = end;
        }
    }
    cluster_barrier();

    // The running maximum of the marks is the output.
    const uint4 mine = reinterpret_cast<const uint4*>(marks)[thread];
    uint32_t key[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        key[e] = lane_bits(mine, e);
        if (e > 0) key[e] = max(key[e], key[e - 1]);
    }
    uint32_t most = key[7];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, most, distance);
        if (lane >= distance) most = max(most, before);
    }
    if (lane == 31) scratch_max[warp] = most;
    uint32_t earlier = __shfl_up_sync(0xffffffffu, most, 1);
    if (lane == 0) earlier = 0;
    __syncthreads();
    uint32_t warps = lane < warp ? scratch_max[lane] : 0;
    earlier = max(earlier, __reduce_max_sync(0xffffffffu, warps));
    const int at = thread * 8;
    const int output = static_cast<int>(rank) * share + at;
    if (at < share && output < N) {
#pragma unroll
        for (int e = 0; e < 8; ++e) key[e] = bits_of(max(key[e], earlier));
        if (aligned_y && output + 8 <= N) {
            *reinterpret_cast<uint4*>(y + output) =
                make_uint4(key[0] | key[1] << 16, key[2] | key[3] << 16, key[4] | key[5] << 16, key[6] | key[7] << 16);
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                if (output + e < N) store_bits(y, output + e, key[e]);
            }
        }
    }
}

// ---------------------------------------------------------------- large sizes

constexpr int kSms = 132;
constexpr int kCountThreads = 1024;
constexpr int kRound = 8191;  // packets that a block counts before a 16-bit counter might overflow
constexpr int kCountBytes = kKeys * 2;
constexpr int kScanBlocks = 8;
constexpr int kScanThreads = 1024;
constexpr int kFillThreads = 256;
constexpr int kFillPackets = 4;
constexpr int kTile = kFillThreads * kFillPackets;  // packets

__device__ __forceinline__ void wait_for_earlier_kernel() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void let_later_kernel_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__global__ void clear(uint4* counts) {
    let_later_kernel_start();
    counts[blockIdx.x * blockDim.x + threadIdx.x] = make_uint4(0, 0, 0, 0);
}

__device__ __forceinline__ void count_pair(uint32_t* counts, uint32_t pair) {
    atomicAdd(counts + ((pair & 0xffffu) >> 1), (pair & 1u) ? 0x10000u : 1u);
    atomicAdd(counts + (pair >> 17), (pair & 0x10000u) ? 0x10000u : 1u);
}

// How often each pattern of bits occurs.
__global__ void __launch_bounds__(kCountThreads, 1) count_all(const scalar_t* __restrict__ x, uint32_t* counts, int head, int64_t packets,
                                                              int64_t N) {
    extern __shared__ __align__(16) uint32_t own[];
    uint4* own4 = reinterpret_cast<uint4*>(own);
    for (int w = threadIdx.x; w < kKeys / 8; w += kCountThreads) own4[w] = make_uint4(0, 0, 0, 0);
    __syncthreads();

    const uint4* from = reinterpret_cast<const uint4*>(x + head);
    const int64_t begin = packets * blockIdx.x / gridDim.x;
    const int64_t end = packets * (blockIdx.x + 1) / gridDim.x;
    for (int64_t round = begin; round < end; round += kRound) {
        const int64_t stop = round + kRound < end ? round + kRound : end;
        for (int64_t p = round + threadIdx.x; p < stop; p += 4 * kCountThreads) {
            uint4 packet[4];
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                if (p + u * kCountThreads < stop) packet[u] = __ldcs(from + p + u * kCountThreads);
            }
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                if (p + u * kCountThreads < stop) {
                    count_pair(own, packet[u].x);
                    count_pair(own, packet[u].y);
                    count_pair(own, packet[u].z);
                    count_pair(own, packet[u].w);
                }
            }
        }
        __syncthreads();
        wait_for_earlier_kernel();  // the counts are clear
        for (int w = threadIdx.x; w < kKeys / 8; w += kCountThreads) {
            const int at = (w + blockIdx.x * 62) % (kKeys / 8);
            const uint4 four = own4[at];
            if ((four.x | four.y | four.z | four.w) != 0) {
                own4[at] = make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const uint32_t two = word(four, k);
                    if (two & 0xffffu) atomicAdd(counts + at * 8 + k * 2, two & 0xffffu);
                    if (two >> 16) atomicAdd(counts + at * 8 + k * 2 + 1, two >> 16);
                }
            }
        }
        __syncthreads();
    }
    let_later_kernel_start();
    wait_for_earlier_kernel();
    if (blockIdx.x == 0) {  // fewer than 8 elements before the packets and after them
        const int64_t inner = packets * 8;
        if (threadIdx.x < N - inner) {
            const int64_t i = threadIdx.x < head ? threadIdx.x : threadIdx.x + inner;
            atomicAdd(counts + load_bits(x, i), 1u);
        }
    }
}

// Where each key begins; one more entry is N.
__global__ void __launch_bounds__(kScanThreads, 1) scan(const uint32_t* counts, uint32_t* starts) {
    __shared__ uint32_t totals[kScanBlocks];
    __shared__ uint32_t scratch[32];
    let_later_kernel_start();
    cluster_barrier();
    wait_for_earlier_kernel();
    const uint32_t rank = blockIdx.x;
    const uint32_t key = (rank * kScanThreads + threadIdx.x) * 8;
    uint32_t count[8];
    const bool positive = key >= 0x8000u;
    const uint4* from = reinterpret_cast<const uint4*>(counts + (positive ? key - 0x8000u : 0xffffu - key - 7));
    const uint4 a = from[0];
    const uint4 b = from[1];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        count[k] = positive ? word(a, k) : word(b, 3 - k);
        count[k + 4] = positive ? word(b, k) : word(a, 3 - k);
    }
    uint32_t sum = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += count[k];
    uint32_t total;
    uint32_t start = block_scan(sum, scratch, total);
    if (threadIdx.x < kScanBlocks) remote_store(remote(shared_address(totals + rank), threadIdx.x), total);
    cluster_barrier();
#pragma unroll
    for (int r = 0; r < kScanBlocks; ++r) start += r < static_cast<int>(rank) ? totals[r] : 0;
    uint32_t out[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        out[k] = start;
        start += count[k];
    }
    uint4* to = reinterpret_cast<uint4*>(starts + key);
    to[0] = make_uint4(out[0], out[1], out[2], out[3]);
    to[1] = make_uint4(out[4], out[5], out[6], out[7]);
    if (key + 8 == kKeys) starts[kKeys] = start;
}

// The last key of [low, high] that begins at output `at` or before it.
__device__ __forceinline__ uint32_t bisect(const uint32_t* starts, uint32_t at, uint32_t low, uint32_t high) {
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        if (starts[middle] <= at) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// The same over all keys, by a whole warp.
__device__ __forceinline__ uint32_t warp_search(const uint32_t* starts, uint32_t at) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t low = 0;
#pragma unroll
    for (uint32_t step = 2048; step >= 2; step /= 32) {
        low += (__popc(__ballot_sync(0xffffffffu, starts[low + lane * step] <= at)) - 1) * step;
    }
    return low + (starts[low + 1] <= at ? 1 : 0);
}

__global__ void __launch_bounds__(kFillThreads) fill(const uint32_t* starts, scalar_t* y, int head, uint32_t packets, uint32_t tiles,
                                                     int64_t N) {
    __shared__ uint32_t ends[2];
    wait_for_earlier_kernel();
    if (blockIdx.x == tiles) {  // fewer than 8 elements before the packets and after them
        const int64_t inner = static_cast<int64_t>(packets) * 8;
        if (threadIdx.x < N - inner) {
            const int64_t i = threadIdx.x < head ? threadIdx.x : threadIdx.x + inner;
            store_bits(y, i, bits_of(bisect(starts, static_cast<uint32_t>(i), 0, kKeys - 1)));
        }
        return;
    }
    const uint32_t first = blockIdx.x * kTile;
    const uint32_t last = min(first + kTile, packets) - 1;
    if (threadIdx.x < 64) {
        const uint32_t at = head + (threadIdx.x < 32 ? first * 8 : last * 8 + 7);
        const uint32_t key = warp_search(starts, at);
        if (threadIdx.x % 32 == 0) ends[threadIdx.x / 32] = key;
    }
    __syncthreads();
    const uint32_t low = ends[0];
    const uint32_t high = ends[1];
    uint4* to = reinterpret_cast<uint4*>(y + head);
    if (low == high) {
        const uint32_t bits = bits_of(low) * 0x10001u;
#pragma unroll
        for (int u = 0; u < kFillPackets; ++u) {
            const uint32_t p = first + u * kFillThreads + threadIdx.x;
            if (p <= last) __stcs(to + p, make_uint4(bits, bits, bits, bits));
        }
        return;
    }
#pragma unroll
    for (int u = 0; u < kFillPackets; ++u) {
        const uint32_t p = first + u * kFillThreads + threadIdx.x;
        if (p > last) break;
        const uint32_t at = head + p * 8;
        uint32_t key = bisect(starts, at, low, high);
        uint32_t next = starts[key + 1];
        uint32_t bits = bits_of(key);
        uint4 packet;
        if (next >= at + 8) {
            bits *= 0x10001u;
            packet = make_uint4(bits, bits, bits, bits);
        } else {
            uint32_t all[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                if (at + e >= next) {
                    key = bisect(starts, at + e, key + 1, high);
                    next = starts[key + 1];
                    bits = bits_of(key);
                }
                all[e] = bits;
            }
            packet = make_uint4(all[0] | all[1] << 16, all[2] | all[3] << 16, all[4] | all[5] << 16, all[6] | all[7] << 16);
        }
        __stcs(to + p, packet);
    }
}

cudaError_t sort_large(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, cudaStream_t stream) {
    uint32_t* counts = static_cast<uint32_t*>(workspace);
    uint32_t* starts = counts + kKeys;
    const int64_t head_x = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(x) % 16) % 16 / sizeof(scalar_t));
    const int64_t head_y = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(y) % 16) % 16 / sizeof(scalar_t));
    const int64_t packets_x = (N - head_x) / 8;
    const int64_t packets_y = (N - head_y) / 8;

    clear<<<kKeys / 4 / 256, 256, 0, stream>>>(reinterpret_cast<uint4*>(counts));

    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = kScanBlocks;
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 1;

    cudaError_t error = cudaFuncSetAttribute(count_all, cudaFuncAttributeMaxDynamicSharedMemorySize, kCountBytes);
    if (error != cudaSuccess) return error;
    config.gridDim = dim3(kSms);
    config.blockDim = dim3(kCountThreads);
    config.dynamicSmemBytes = kCountBytes;
    error = cudaLaunchKernelEx(&config, count_all, x, counts, static_cast<int>(head_x), packets_x, N);
    if (error != cudaSuccess) return error;

    config.gridDim = dim3(kScanBlocks);
    config.blockDim = dim3(kScanThreads);
    config.dynamicSmemBytes = 0;
    config.numAttrs = 2;
    error = cudaLaunchKernelEx(&config, scan, static_cast<const uint32_t*>(counts), starts);
    if (error != cudaSuccess) return error;

    const uint32_t tiles = static_cast<uint32_t>((packets_y + kTile - 1) / kTile);
    config.gridDim = dim3(tiles + (N > packets_y * 8 ? 1 : 0));
    config.blockDim = dim3(kFillThreads);
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, fill, static_cast<const uint32_t*>(starts), y, static_cast<int>(head_y),
                               static_cast<uint32_t>(packets_y), tiles, N);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t sorting_workspace(int64_t N) {
    return N <= kPairsMax ? 0 : (2 * kKeys + 64) * sizeof(uint32_t);
}

extern "C" cudaError_t sorting(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    const bool aligned_x = reinterpret_cast<uintptr_t>(x) % 16 == 0;
    const bool aligned_y = reinterpret_cast<uintptr_t>(y) % 16 == 0;
    if (N <= kPairsMax) {
        all_pairs<<<static_cast<unsigned>((N + 31) / 32), kPairsThreads, 0, stream>>>(x, y, static_cast<int>(N), aligned_x);
        return cudaGetLastError();
    }
    if (N <= kClusterMax) {
        if (cudaFuncSetAttribute(one_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess) {
            cudaLaunchAttribute attribute[1];
            attribute[0].id = cudaLaunchAttributeClusterDimension;
            attribute[0].val.clusterDim.x = kClusterBlocks;
            attribute[0].val.clusterDim.y = 1;
            attribute[0].val.clusterDim.z = 1;
            cudaLaunchConfig_t config = {};
            config.gridDim = dim3(kClusterBlocks);
            config.blockDim = dim3(kClusterThreads);
            config.stream = stream;
            config.attrs = attribute;
            config.numAttrs = 1;
            const int share = static_cast<int>(((N + kClusterBlocks - 1) / kClusterBlocks + 7) / 8 * 8);  // outputs of each block
            if (cudaLaunchKernelEx(&config, one_cluster, x, y, static_cast<int>(N), share, aligned_x, aligned_y) == cudaSuccess) {
                return cudaGetLastError();
            }
        }
        cudaGetLastError();  // no such cluster here: the way of the large sizes is right for all
    }
    return sort_large(x, y, N, workspace, stream);
}
