// bf16 has only 65536 values, so sorting is counting. Keys are ordered integers: sign bit flipped, negative values inverted.
// - N <= 4096: one launch without any exchange between blocks. Each warp finds the ranks of a few elements by comparing them with all
//   keys (key and index in one 32-bit number, so all differ) and writes them to their places.
// - Larger: zero the 65536 counts; count; expand. The three launches overlap (programmatic dependent launch). Up to 262144 elements
//   are counted by atomics in L2; beyond, each multiprocessor counts in shared memory, two exact 16-bit counters in a word (128 KiB),
//   and adds what it found to the counts in L2, two counts at a time. In the expansion each block has a tile of the output: from 256
//   coarse counts it knows which fine counts touch it, one warp scans 256 of those at a time and marks where each key begins, and a
//   running maximum over the marks gives the values, stored in 16-byte packets.
// Expected: about 6 us up to 4096, about 10 us up to 1e5, 40 to 50 us at 16777216 (one read and one write of the array, 22 us,
// and shared-memory atomics).

namespace {

constexpr int kKeys = 65536;
constexpr int kCoarse = 256;                    // coarse bins of 256 keys
constexpr int64_t kRankLimit = 4096;
constexpr int64_t kDirectLimit = 262144;
constexpr int kCountBlocks = 132;
constexpr int kCountThreads = 1024;
constexpr int kCountUnroll = 4;
constexpr size_t kCountShared = 32768 * sizeof(uint32_t);

__device__ __forceinline__ uint32_t key_of(uint32_t bits) {  // 16 bits to 16 bits
    return bits ^ ((bits & 0x8000u) ? 0xffffu : 0x8000u);
}

__device__ __forceinline__ void wait_for_earlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_later_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---------------------------------------------------------------- few elements: ranks

// kElements elements for each warp. The padding 0xffffffff is never smaller than an element.
template <int kElements, bool kPackets>
__global__ void __launch_bounds__(128)
rank_kernel(const uint16_t* __restrict__ x, uint16_t* __restrict__ y, uint32_t N) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t first = (blockIdx.x * 4 + threadIdx.x / 32) * kElements;
    if (first >= N) return;

    uint32_t own[kElements], bits[kElements], rank[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
        const uint32_t at = first + e < N ? first + e : N - 1;
        bits[e] = __ldg(x + at);
        own[e] = key_of(bits[e]) << 16 | at;
        rank[e] = 0;
    }
    if (kPackets) {
        const uint32_t packets = N / 8;
        const uint4* from = reinterpret_cast<const uint4*>(x);
        for (uint32_t base = lane; base < packets; base += 128) {
            uint4 v[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (base + 32 * k < packets) v[k] = __ldg(from + base + 32 * k);
            }
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const uint32_t p = base + 32 * k;
                if (p < packets) {
                    const uint32_t words[4] = {v[k].x, v[k].y, v[k].z, v[k].w};
#pragma unroll
                    for (int w = 0; w < 4; ++w) {
                        // Both keys of a word at once; then each with its index.
                        const uint32_t negative = (words[w] >> 15) & 0x00010001u;
                        const uint32_t keys = words[w] ^ (negative * 0x7fffu | 0x80008000u);
                        const uint32_t a = keys << 16 | (p * 8 + 2 * w);
                        const uint32_t b = (keys & 0xffff0000u) | (p * 8 + 2 * w + 1);
#pragma unroll
                        for (int e = 0; e < kElements; ++e) rank[e] += (a < own[e]) + (b < own[e]);
                    }
                }
            }
        }
        const uint32_t at = packets * 8 + lane;  // fewer than 8 are left
        if (at < N) {
            const uint32_t other = key_of(__ldg(x + at)) << 16 | at;
#pragma unroll
            for (int e = 0; e < kElements; ++e) rank[e] += other < own[e];
        }
    } else {
#pragma unroll 4
        for (uint32_t at = lane; at < N; at += 32) {
            const uint32_t other = key_of(__ldg(x + at)) << 16 | at;
#pragma unroll
            for (int e = 0; e < kElements; ++e) rank[e] += other < own[e];
        }
    }
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
        const uint32_t place = __reduce_add_sync(0xffffffffu, rank[e]);
        if (lane == 0 && first + e < N) y[place] = static_cast<uint16_t>(bits[e]);
    }
}

// ---------------------------------------------------------------- counting

__global__ void __launch_bounds__(256) zero_kernel(uint4* counts, uint32_t packets) {
    let_later_start();
    const uint32_t i = blockIdx.x * 256 + threadIdx.x;
    if (i < packets) counts[i] = make_uint4(0, 0, 0, 0);
}

// For medium sizes: atomics in L2. Each thread has up to two neighbouring elements.
__global__ void __launch_bounds__(256)
count_direct_kernel(const uint16_t* __restrict__ x, uint32_t* counts, uint32_t* coarse, uint32_t N, bool words) {
    let_later_start();
    __shared__ uint32_t found[kCoarse];
    found[threadIdx.x] = 0;
    const uint32_t at = (blockIdx.x * 256 + threadIdx.x) * 2;
    uint32_t a = 0, b = 0;
    const bool has_a = at < N, has_b = at + 1 < N;
    if (has_b && words) {
        const uint32_t both = __ldg(reinterpret_cast<const uint32_t*>(x + at));
        a = both & 0xffffu;
        b = both >> 16;
    } else {
        if (has_a) a = __ldg(x + at);
        if (has_b) b = __ldg(x + at + 1);
    }
    a = key_of(a);
    b = key_of(b);
    __syncthreads();
    if (has_a) atomicAdd(&found[a >> 8], 1u);
    if (has_b) atomicAdd(&found[b >> 8], 1u);
    wait_for_earlier();
    if (has_a) atomicAdd(&counts[a], 1u);
    if (has_b) atomicAdd(&counts[b], 1u);
    __syncthreads();
    const uint32_t sum = found[threadIdx.x];
    if (sum != 0) atomicAdd(&coarse[threadIdx.x], sum);
}

// Adds to one count, modulo 2^32, as a half of a 64-bit number (all additions to counts are 64-bit and modular here).
__device__ __noinline__ void adjust(unsigned long long* pairs, uint32_t* coarse, uint32_t bits, int32_t by) {
    const uint32_t key = key_of(bits);
    const long long wide = by;
    atomicAdd(pairs + (key >> 1), static_cast<unsigned long long>(wide) << (32 * (key & 1)));
    atomicAdd(coarse + (key >> 8), static_cast<uint32_t>(by));
}

// Word m of the table: how many elements have the bits m (low half) and 0x8000 | m (high half), modulo 65536. Wraps are exact: each
// atomic sees the value before it. A low half that wraps adds one to the high half, which is taken back in the global count.
__device__ __forceinline__ void count_one(uint32_t* table, uint32_t bits, unsigned long long* pairs, uint32_t* coarse) {
    const uint32_t m = bits & 0x7fffu;
    const uint32_t shift = (bits >> 11) & 16u;
    const uint32_t old = atomicAdd(table + m, 1u << shift);
    if (((old >> shift) & 0xffffu) == 0xffffu) {
        adjust(pairs, coarse, bits & 0xffffu, 65536);
        if (shift == 0) {
            adjust(pairs, coarse, m | 0x8000u, -1);
            if (old == 0xffffffffu) adjust(pairs, coarse, m | 0x8000u, 65536);
        }
    }
}

__device__ __forceinline__ void count_packet(uint32_t* table, const uint4& v, unsigned long long* pairs, uint32_t* coarse) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        count_one(table, words[w] & 0xffffu, pairs, coarse);
        count_one(table, words[w] >> 16, pairs, coarse);
    }
}

__global__ void __launch_bounds__(kCountThreads, 1)
count_kernel(const uint16_t* __restrict__ x, unsigned long long* pairs, uint32_t* coarse, uint32_t head, uint32_t packets,
             uint32_t rest) {
    let_later_start();
    extern __shared__ uint4 storage[];
    uint32_t* table = reinterpret_cast<uint32_t*>(storage);
    const uint32_t thread = blockIdx.x * kCountThreads + threadIdx.x;
    const uint32_t step = gridDim.x * kCountThreads;
    const uint4* from = reinterpret_cast<const uint4*>(x + head);

    uint4 v[kCountUnroll];
#pragma unroll
    for (int k = 0; k < kCountUnroll; ++k) {
        v[k] = make_uint4(0, 0, 0, 0);
        if (thread + k * step < packets) v[k] = __ldcs(from + (thread + k * step));
    }
    for (uint32_t i = threadIdx.x; i < kCountShared / 16; i += kCountThreads) storage[i] = make_uint4(0, 0, 0, 0);
    wait_for_earlier();
    __syncthreads();

    for (uint32_t i = thread; i < packets; i += kCountUnroll * step) {
        uint4 next[kCountUnroll];
#pragma unroll
        for (int k = 0; k < kCountUnroll; ++k) {
            const uint32_t at = i + (kCountUnroll + k) * step;
            next[k] = make_uint4(0, 0, 0, 0);
            if (at < packets) next[k] = __ldcs(from + at);
        }
#pragma unroll
        for (int k = 0; k < kCountUnroll; ++k) {
            if (i + k * step < packets) count_packet(table, v[k], pairs, coarse);
        }
#pragma unroll
        for (int k = 0; k < kCountUnroll; ++k) v[k] = next[k];
    }
    for (uint32_t r = thread; r < rest; r += step) {
        count_one(table, x[r < head ? r : r + packets * 8], pairs, coarse);
    }
    __syncthreads();

    // 128 chunks of 256 words, four for each warp; blocks begin with different ones.
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t chunk = (warp * 4 + j + blockIdx.x) % 128;
        uint32_t positive = 0, negative = 0;
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
            const uint32_t w = chunk * 128 + k * 32 + lane;  // words 2w and 2w + 1
            const uint2 two = reinterpret_cast<const uint2*>(table)[w];
            const uint32_t p0 = two.x & 0xffffu, p1 = two.y & 0xffffu, n0 = two.x >> 16, n1 = two.y >> 16;
            // Bits m >= 0 have the key 0x8000 + m, bits 0x8000 | m the key 0x7fff - m.
            if ((p0 | p1) != 0) atomicAdd(pairs + (16384 + w), static_cast<unsigned long long>(p1) << 32 | p0);
            if ((n0 | n1) != 0) atomicAdd(pairs + (16383 - w), static_cast<unsigned long long>(n0) << 32 | n1);
            positive += p0 + p1;
            negative += n0 + n1;
        }
        positive = __reduce_add_sync(0xffffffffu, positive);
        negative = __reduce_add_sync(0xffffffffu, negative);
        if (lane == 0 && positive != 0) atomicAdd(coarse + (128 + chunk), positive);
        if (lane == 0 && negative != 0) atomicAdd(coarse + (127 - chunk), negative);
    }
}

// ---------------------------------------------------------------- expansion

// Each block writes kThreads * kPackets * 8 outputs.
template <int kThreads, int kPackets>
__global__ void __launch_bounds__(kThreads)
expand_kernel(uint16_t* __restrict__ y, const uint32_t* counts, const uint32_t* coarse, uint32_t N, bool packets_allowed) {
    constexpr uint32_t kTile = kThreads * kPackets * 8;
    constexpr uint32_t kWarps = kThreads / 32;
    extern __shared__ uint4 storage[];                  // kTile marks of 16 bits
    __shared__ uint32_t starts[kCoarse + 1];
    __shared__ uint32_t warp_sums[8];
    __shared__ uint32_t warp_most[kWarps];
    uint16_t* marks = reinterpret_cast<uint16_t*>(storage);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t begin = blockIdx.x * kTile;
    const uint32_t end = N - begin < kTile ? N : begin + kTile;

#pragma unroll
    for (int k = 0; k < kPackets; ++k) storage[threadIdx.x + k * kThreads] = make_uint4(0, 0, 0, 0);
    wait_for_earlier();

    // Where the coarse bins start.
    uint32_t sum = 0, own = 0;
    if (warp < 8) {
        own = __ldcg(coarse + threadIdx.x);
        sum = own;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
            if (lane >= distance) sum += other;
        }
        if (lane == 31) warp_sums[warp] = sum;
    }
    __syncthreads();
    if (warp < 8) {
#pragma unroll
        for (uint32_t w = 0; w < 8; ++w) {
            if (w < warp) sum += warp_sums[w];
        }
        starts[threadIdx.x + 1] = sum;
        if (threadIdx.x == 0) starts[0] = 0;
    }
    __syncthreads();

    // Coarse bins that touch the tile: starts[c] < end and starts[c + 1] > begin, both monotone in c.
    uint32_t low = 0, high = kCoarse;  // first c with starts[c + 1] > begin
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (starts[middle + 1] > begin) high = middle; else low = middle + 1;
    }
    for (uint32_t c = low + warp; c < kCoarse; c += kWarps) {
        const uint32_t start = starts[c];
        if (start >= end) break;
        if (starts[c + 1] == start) continue;
        const uint4* from = reinterpret_cast<const uint4*>(counts + c * 256) + lane * 2;
        const uint4 u = __ldcg(from), v = __ldcg(from + 1);
        const uint32_t count[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
        uint32_t all = 0;
#pragma unroll
        for (int k = 0; k < 8; ++k) all += count[k];
        uint32_t before = all;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const uint32_t other = __shfl_up_sync(0xffffffffu, before, distance);
            if (lane >= distance) before += other;
        }
        uint32_t at = start + before - all;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const uint32_t next = at + count[k];
            if (at < end && next > begin && next > at) {
                marks[(at > begin ? at : begin) - begin] = static_cast<uint16_t>(c * 256 + lane * 8 + k);
            }
            at = next;
        }
    }
    __syncthreads();

    // Each warp has kPackets * 32 neighbouring packets. Its largest mark is what later warps begin with.
    const uint32_t first_packet = warp * (kPackets * 32) + lane;
    uint4 packet[kPackets];
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
        packet[k] = storage[first_packet + 32 * k];
        most = __vmaxu2(most, __vmaxu2(__vmaxu2(packet[k].x, packet[k].y), __vmaxu2(packet[k].z, packet[k].w)));
    }
    most = max(most & 0xffffu, most >> 16);
    most = __reduce_max_sync(0xffffffffu, most);
    if (lane == 0) warp_most[warp] = most;
    __syncthreads();
    uint32_t carry = lane < warp ? warp_most[lane] : 0;
    carry = __reduce_max_sync(0xffffffffu, carry);

#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
        const uint32_t words[4] = {packet[k].x, packet[k].y, packet[k].z, packet[k].w};
        uint32_t value[8];
        uint32_t running = 0;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            running = max(running, words[w] & 0xffffu);
            value[2 * w] = running;
            running = max(running, words[w] >> 16);
            value[2 * w + 1] = running;
        }
        // Exclusive maximum over the lanes before this one.
        uint32_t scan = running;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const uint32_t other = __shfl_up_sync(0xffffffffu, scan, distance);
            if (lane >= distance) scan = max(scan, other);
        }
        uint32_t before = __shfl_up_sync(0xffffffffu, scan, 1);
        before = lane == 0 ? carry : max(before, carry);
        carry = max(carry, __shfl_sync(0xffffffffu, scan, 31));
        uint32_t out[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            // Both values of a word at once, back to bits.
            const uint32_t keys = max(value[2 * w], before) | max(value[2 * w + 1], before) << 16;
            const uint32_t negative = (~keys >> 15) & 0x00010001u;
            out[w] = keys ^ (negative * 0x7fffu | 0x80008000u);
        }
        const uint32_t at = begin + (first_packet + 32 * k) * 8;
        if (packets_allowed && at + 8 <= end) {
            __stcs(reinterpret_cast<uint4*>(y + at), make_uint4(out[0], out[1], out[2], out[3]));
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                if (at + e < end) y[at + e] = static_cast<uint16_t>(out[e / 2] >> (16 * (e % 2)));
            }
        }
    }
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_early(void (*kernel)(Parameters...), uint32_t blocks, uint32_t threads, size_t shared, cudaStream_t stream,
                         Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

template <int kElements>
void launch_rank(const uint16_t* x, uint16_t* y, uint32_t N, bool packets, cudaStream_t stream) {
    const uint32_t blocks = (N + 4 * kElements - 1) / (4 * kElements);
    if (packets) {
        rank_kernel<kElements, true><<<blocks, 128, 0, stream>>>(x, y, N);
    } else {
        rank_kernel<kElements, false><<<blocks, 128, 0, stream>>>(x, y, N);
    }
}

}  // namespace

extern "C" size_t sorting_workspace(int64_t N) {
    return N <= kRankLimit ? 0 : (kKeys + kCoarse) * sizeof(uint32_t);
}

extern "C" cudaError_t sorting(const scalar_t* x_values, scalar_t* y_values, int64_t N, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    const uint16_t* x = reinterpret_cast<const uint16_t*>(x_values);
    uint16_t* y = reinterpret_cast<uint16_t*>(y_values);
    const uint32_t count = static_cast<uint32_t>(N);
    const uintptr_t x_offset = reinterpret_cast<uintptr_t>(x) & 15;
    const bool y_packets = (reinterpret_cast<uintptr_t>(y) & 15) == 0;

    if (N <= kRankLimit) {
        if (N <= 1024) {
            launch_rank<1>(x, y, count, x_offset == 0, stream);
        } else if (N <= 2048) {
            launch_rank<2>(x, y, count, x_offset == 0, stream);
        } else {
            launch_rank<4>(x, y, count, x_offset == 0, stream);
        }
        return cudaGetLastError();
    }

    uint32_t* counts = static_cast<uint32_t*>(workspace);
    uint32_t* coarse = counts + kKeys;
    const uint32_t zero_packets = (kKeys + kCoarse) / 4;
    zero_kernel<<<(zero_packets + 255) / 256, 256, 0, stream>>>(reinterpret_cast<uint4*>(counts), zero_packets);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;

    if (N <= kDirectLimit) {
        error = launch_early(count_direct_kernel, (count + 511) / 512, 256, 0, stream, x, counts, coarse, count,
                             (x_offset & 3) == 0);
        if (error != cudaSuccess) return error;
        constexpr uint32_t kTile = 256 * 8;
        error = launch_early(expand_kernel<256, 1>, (count + kTile - 1) / kTile, 256, kTile * sizeof(uint16_t), stream, y, counts,
                             coarse, count, y_packets);
    } else {
        error = cudaFuncSetAttribute(count_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kCountShared));
        if (error != cudaSuccess) return error;
        const uint32_t head = static_cast<uint32_t>((16 - x_offset) & 15) / 2;
        const uint32_t packets = (count - head) / 8;
        error = launch_early(count_kernel, kCountBlocks, kCountThreads, kCountShared, stream, x,
                             reinterpret_cast<unsigned long long*>(counts), coarse, head, packets, count - packets * 8);
        if (error != cudaSuccess) return error;
        constexpr uint32_t kTile = 512 * 4 * 8;
        error = launch_early(expand_kernel<512, 4>, (count + kTile - 1) / kTile, 512, kTile * sizeof(uint16_t), stream, y, counts,
                             coarse, count, y_packets);
    }
    return error != cudaSuccess ? error : cudaGetLastError();
}
