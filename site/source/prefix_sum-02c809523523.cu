// Prefix sum, single pass. N <= 4096: one block; N <= 65536: one cluster, sums pushed through distributed shared memory; N <= 2 Mi: every
// block reads the sums of all earlier tiles at once; larger: decoupled look-back (Merrill and Garland 2016).
// Expected bound: launch and one or two memory latencies for small N (5 to 7 us), copy bandwidth (about 4 TB/s) for large N.

#include <cuda_runtime.h>
#include <cstdint>
#include <cstddef>

namespace {

typedef unsigned long long u64;

constexpr int kSingle = 0, kDirect = 1, kLookBack = 2, kCluster = 3;
constexpr u64 kSum = 1;     // the state holds the sum of its tile
constexpr u64 kPrefix = 2;  // the state holds the sum of all elements up to the end of its tile

// A double whose two lowest bits are a flag (0: nothing yet). Clearing them restores infinities.
__device__ __forceinline__ u64 state_of(double value, u64 flag) {
    return (static_cast<u64>(__double_as_longlong(value)) & ~3ull) | flag;
}

__device__ __forceinline__ double value_of(u64 state) {
    return __longlong_as_double(static_cast<long long>(state & ~3ull));
}

__device__ __forceinline__ void publish(u64* at, u64 state) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(state) : "memory");
}

__device__ __forceinline__ u64 poll(const u64* at) {
    u64 state;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(state) : "l"(at) : "memory");
    return state;
}

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// The sum of all tiles before `tile`, by a whole warp.
__device__ double look_back(const u64* states, int tile) {
    const int lane = threadIdx.x % 32;
    double before = 0.0;
    for (int nearest = tile - 1;; nearest -= 32) {
        const int mine = nearest - lane;
        u64 state = kPrefix;  // before the first tile: a prefix of 0
        bool prefix;
        unsigned int prefixes;
        while (true) {
            if (mine >= 0) state = poll(states + mine);
            prefix = (state & 3ull) == kPrefix;
            prefixes = __ballot_sync(0xffffffffu, prefix);
            const unsigned int missing = __ballot_sync(0xffffffffu, (state & 3ull) == 0ull);
            // Lanes up to the first prefix have to be there.
            const unsigned int wanted = prefixes ? ((prefixes & (0u - prefixes)) << 1) - 1u : 0xffffffffu;
            if ((missing & wanted) == 0u) break;
        }
        const int last = prefixes ? __ffs(static_cast<int>(prefixes)) - 1 : 31;
        before += warp_sum(lane <= last ? value_of(state) : 0.0);
        if (prefixes) return before;
    }
}

__global__ void __launch_bounds__(256) clear_kernel(u64* __restrict__ states, int tiles) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < tiles) states[i] = 0;
}

template <int T, int U, int MODE, int BLOCKS>
__global__ void __launch_bounds__(T, BLOCKS)
scan_kernel(const float* __restrict__ x, float* __restrict__ y, u64* states, int64_t N) {
    constexpr int WARPS = T / 32;
    constexpr int TILE = T * U * 4;
    __shared__ float warp_totals[WARPS];
    __shared__ double warp_befores[WARPS];
    __shared__ double block_before;
    __shared__ float cluster_sums[16];

    if constexpr (MODE == kCluster) {
        // Every block must have started before another one writes to its shared memory.
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    }
    const int t = threadIdx.x;
    const int lane = t % 32;
    const int warp = t / 32;
    const int tile = blockIdx.x;
    const int64_t tile_start = static_cast<int64_t>(tile) * TILE;
    const int64_t start = tile_start + warp * (U * 128) + lane * 4;
    const bool whole = tile_start + TILE <= N;

    float4 v[U];
    if (whole && (reinterpret_cast<uintptr_t>(x) & 15) == 0) {
#pragma unroll
        for (int u = 0; u < U; ++u) v[u] = __ldcs(reinterpret_cast<const float4*>(x + start + u * 128));
    } else {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int64_t i = start + u * 128;
            v[u].x = i < N ? x[i] : 0.0f;
            v[u].y = i + 1 < N ? x[i + 1] : 0.0f;
            v[u].z = i + 2 < N ? x[i + 2] : 0.0f;
            v[u].w = i + 3 < N ? x[i + 3] : 0.0f;
        }
    }

    float offset[U];  // of this thread's packet within its 128 elements, then within its warp
    float running = 0.0f;
#pragma unroll
    for (int u = 0; u < U; ++u) {
        v[u].y += v[u].x;
        v[u].z += v[u].y;
        v[u].w += v[u].z;
        float sum = v[u].w;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const float other = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += other;
        }
        const float earlier = __shfl_up_sync(0xffffffffu, sum, 1);
        const float total = __shfl_sync(0xffffffffu, sum, 31);
        offset[u] = running + (lane > 0 ? earlier : 0.0f);
        running += total;
    }
    if (lane == 0) warp_totals[warp] = running;
    __syncthreads();
    const float of_warp = lane < WARPS ? warp_totals[lane] : 0.0f;
    const float warp_before = warp_sum(lane < warp ? of_warp : 0.0f);

    float before = 0.0f;  // the sum of all earlier tiles
    if constexpr (MODE == kDirect) {
        asm volatile("griddepcontrol.wait;" ::: "memory");  // the states are clear from here on
        if (warp == 0) {
            const double total = static_cast<double>(warp_sum(of_warp));
            if (lane == 0) publish(states + tile, state_of(total, kSum));
        }
        double mine = 0.0;
        if (t < tile) {
            u64 state;
            do {
                state = poll(states + t);
            } while ((state & 3ull) == 0ull);
            mine = value_of(state);
        }
        __syncwarp();
        mine = warp_sum(mine);
        if (lane == 0) warp_befores[warp] = mine;
        __syncthreads();
        before = static_cast<float>(warp_sum(lane < WARPS ? warp_befores[lane] : 0.0));
    }
    if constexpr (MODE == kLookBack) {
        if (warp == 0) {
            asm volatile("griddepcontrol.wait;" ::: "memory");
            const double total = static_cast<double>(warp_sum(of_warp));
            double earlier = 0.0;
            if (tile == 0) {
                if (lane == 0) publish(states, state_of(total, kPrefix));
            } else {
                if (lane == 0) publish(states + tile, state_of(total, kSum));
                __syncwarp();
                earlier = look_back(states, tile);
                if (lane == 0) publish(states + tile, state_of(earlier + total, kPrefix));
            }
            if (lane == 0) block_before = earlier;
        }
        __syncthreads();
        before = static_cast<float>(block_before);
    }
    if constexpr (MODE == kCluster) {
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        if (warp == 0) {
            const float total = warp_sum(of_warp);
            if (lane > tile && lane < static_cast<int>(gridDim.x)) {  // to every later block
                const uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(&cluster_sums[tile]));
                uint32_t remote;
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(lane));
                asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(total) : "memory");
            }
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        before = warp_sum(lane < tile ? *reinterpret_cast<volatile float*>(&cluster_sums[lane]) : 0.0f);
    }

    const float base = before + warp_before;
    if (whole && (reinterpret_cast<uintptr_t>(y) & 15) == 0) {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const float add = base + offset[u];
            const float4 out = make_float4(v[u].x + add, v[u].y + add, v[u].z + add, v[u].w + add);
            __stcs(reinterpret_cast<float4*>(y + start + u * 128), out);
        }
    } else {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int64_t i = start + u * 128;
            const float add = base + offset[u];
            if (i < N) y[i] = v[u].x + add;
            if (i + 1 < N) y[i + 1] = v[u].y + add;
            if (i + 2 < N) y[i + 2] = v[u].z + add;
            if (i + 3 < N) y[i + 3] = v[u].w + add;
        }
    }
}

template <int T, int U>
cudaError_t launch_cluster(const float* x, float* y, u64* states, int64_t N, int blocks, cudaStream_t stream) {
    auto kernel = scan_kernel<T, U, kCluster, 1>;
    cudaError_t error = cudaSuccess;
    if (blocks > 8) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(T);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = blocks;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, x, y, states, N);
}

template <int T, int U, int MODE, int BLOCKS>
cudaError_t launch_tiles(const float* x, float* y, u64* states, int64_t N, cudaStream_t stream) {
    constexpr int TILE = T * U * 4;
    const int tiles = static_cast<int>((N + TILE - 1) / TILE);
    clear_kernel<<<(tiles + 255) / 256, 256, 0, stream>>>(states, tiles);
    auto kernel = scan_kernel<T, U, MODE, BLOCKS>;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles);
    config.blockDim = dim3(T);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, x, y, states, N);
}

}  // namespace

extern "C" size_t prefix_sum_workspace(int64_t N) {
    return (static_cast<size_t>(N) / 2048 + 64) * sizeof(u64);
}

extern "C" cudaError_t prefix_sum(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    (void)workspace_bytes;
    u64* states = static_cast<u64*>(workspace);
    if (N <= 1024) {
        scan_kernel<256, 1, kSingle, 1><<<1, 256, 0, stream>>>(x, y, states, N);
        return cudaGetLastError();
    }
    if (N <= 4096) {
        scan_kernel<1024, 1, kSingle, 1><<<1, 1024, 0, stream>>>(x, y, states, N);
        return cudaGetLastError();
    }
    if (N <= 65536) {
        const cudaError_t error = N <= 16384 ? launch_cluster<512, 1>(x, y, states, N, 8, stream)
                                             : launch_cluster<1024, 1>(x, y, states, N, 16, stream);
        if (error == cudaSuccess) return cudaGetLastError();
        cudaGetLastError();  // no such cluster on this device: go on with tiles
    }
    cudaError_t error;
    if (N <= 524288) {
        error = launch_tiles<512, 1, kDirect, 2>(x, y, states, N, stream);
    } else if (N <= 2097152) {
        error = launch_tiles<512, 2, kDirect, 2>(x, y, states, N, stream);
    } else {
        error = launch_tiles<512, 4, kLookBack, 3>(x, y, states, N, stream);
    }
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
