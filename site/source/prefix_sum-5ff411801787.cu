// Inclusive prefix sum, fp32.
// N <= 8192: one block. N <= 262144: one cluster, DSMEM. Otherwise decoupled look-back (Merrill and Garland 2016) over tiles of 8192 elements,
// one read and one write of memory. Expected bound: launch latency for small N; about 140 to 160 us for 512 MiB.

typedef unsigned long long word_t64;

constexpr int kTileThreads = 512;
constexpr int kTileChunks = 4;
constexpr int kTile = kTileThreads * kTileChunks * 4;

// The scan of T * K * 4 elements. A warp owns K chunks of 128 consecutive elements; a lane has four consecutive ones of each.
template <int T, int K>
struct TileScan {
    float v[K][4];    // inclusive within the lane
    float before[K];  // sum of what precedes the lane's packet, within the warp
    float warps_before;
    float total;

    __device__ __forceinline__ static int position(int start, int k) {
        return start + (static_cast<int>(threadIdx.x) / 32) * (K * 128) + k * 128 + (static_cast<int>(threadIdx.x) % 32) * 4;
    }

    __device__ __forceinline__ void load(const float* __restrict__ x, int start, int N) {
        const bool packets = (reinterpret_cast<uintptr_t>(x) & 15) == 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const int at = position(start, k);
            if (packets && at + 3 < N) {
                const float4 f = __ldcs(reinterpret_cast<const float4*>(x + at));
                v[k][0] = f.x;
                v[k][1] = f.y;
                v[k][2] = f.z;
                v[k][3] = f.w;
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    v[k][j] = 0.f;
                    if (at + j < N) v[k][j] = __ldg(x + at + j);
                }
            }
        }
    }

    // `sums`: T / 32 floats of shared memory.
    __device__ __forceinline__ void scan(float* sums) {
        constexpr int kWarps = T / 32;
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32;
        float t[K];
#pragma unroll
        for (int k = 0; k < K; ++k) {
            v[k][1] += v[k][0];
            v[k][2] += v[k][1];
            v[k][3] += v[k][2];
            t[k] = v[k][3];
        }
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
#pragma unroll
            for (int k = 0; k < K; ++k) {
                const float other = __shfl_up_sync(0xffffffffu, t[k], d);
                if (lane >= d) t[k] += other;
            }
        }
        float running = 0.f;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const float left = __shfl_up_sync(0xffffffffu, t[k], 1);
            const float chunk = __shfl_sync(0xffffffffu, t[k], 31);
            before[k] = running + (lane == 0 ? 0.f : left);
            running += chunk;
        }
        if (lane == 0) sums[warp] = running;
        __syncthreads();
        float s = lane < kWarps ? sums[lane] : 0.f;
#pragma unroll
        for (int d = 1; d < kWarps; d *= 2) {
            const float other = __shfl_up_sync(0xffffffffu, s, d);
            if (lane >= d) s += other;
        }
        const float preceding = __shfl_sync(0xffffffffu, s, warp > 0 ? warp - 1 : 0);
        warps_before = warp > 0 ? preceding : 0.f;
        total = __shfl_sync(0xffffffffu, s, kWarps - 1);
    }

    __device__ __forceinline__ void store(float* __restrict__ y, int start, int N, float prefix) const {
        const bool packets = (reinterpret_cast<uintptr_t>(y) & 15) == 0;
        const float base = prefix + warps_before;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const int at = position(start, k);
            const float own = base + before[k];
            if (packets && at + 3 < N) {
                __stcs(reinterpret_cast<float4*>(y + at), make_float4(own + v[k][0], own + v[k][1], own + v[k][2], own + v[k][3]));
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (at + j < N) y[at + j] = own + v[k][j];
                }
            }
        }
    }
};

template <int T, int K>
__global__ void __launch_bounds__(T, 1) scan_block(const float* __restrict__ x, float* __restrict__ y, int N) {
    __shared__ float sums[T / 32];
    TileScan<T, K> tile;
    tile.load(x, 0, N);
    tile.scan(sums);
    tile.store(y, 0, N, 0.f);
}

// The grid is one cluster of at most 16 blocks.
template <int T, int K>
__global__ void __launch_bounds__(T, 1) scan_cluster(const float* __restrict__ x, float* __restrict__ y, int N) {
    __shared__ float sums[T / 32];
    __shared__ float block_sums[16];
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");  // all have started: waited for before the remote stores
    const int start = static_cast<int>(blockIdx.x) * (T * K * 4);
    TileScan<T, K> tile;
    tile.load(x, start, N);
    tile.scan(sums);
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (threadIdx.x < gridDim.x) {
        const unsigned local = static_cast<unsigned>(__cvta_generic_to_shared(&block_sums[blockIdx.x]));
        unsigned remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(threadIdx.x));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(tile.total) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    float prefix = 0.f;
#pragma unroll
    for (int b = 0; b < 16; ++b) {
        if (b < static_cast<int>(blockIdx.x)) prefix += block_sums[b];
    }
    tile.store(y, start, N, prefix);
}

// ---------------------------------------------------------------- look-back

// A double whose two lowest bits are a flag: 0 nothing yet, 1 the tile's own sum, 2 the sum up to the tile's end.
__device__ __forceinline__ word_t64 make_word(double value, unsigned flag) {
    return (static_cast<word_t64>(__double_as_longlong(value)) & ~static_cast<word_t64>(3)) | flag;
}

__device__ __forceinline__ double value_of(word_t64 word) {
    return __longlong_as_double(static_cast<long long>(word & ~static_cast<word_t64>(3)));
}

__device__ __forceinline__ void publish(word_t64* at, word_t64 word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}

__device__ __forceinline__ word_t64 look(const word_t64* at) {
    word_t64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}

__global__ void __launch_bounds__(256) clear_words(word_t64* words, int tiles) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < tiles) words[i] = 0;
}

__global__ void __launch_bounds__(kTileThreads, 3) scan_tiles(const float* __restrict__ x, float* __restrict__ y, word_t64* words, int N) {
    __shared__ float sums[kTileThreads / 32];
    __shared__ float shared_prefix;
    const int index = blockIdx.x;
    const int start = index * kTile;
    TileScan<kTileThreads, kTileChunks> tile;
    tile.load(x, start, N);
    tile.scan(sums);
    asm volatile("griddepcontrol.wait;" ::: "memory");  // the words are clear
    if (threadIdx.x < 32) {
        const int lane = threadIdx.x;
        const double own = static_cast<double>(tile.total);
        double prefix = 0.0;
        if (index == 0) {
            if (lane == 0) publish(words, make_word(own, 2u));
        } else {
            if (lane == 0) publish(words + index, make_word(own, 1u));
            int at = index - 1 - lane;
            while (true) {
                word_t64 word = make_word(0.0, 2u);
                unsigned needed, ends;
                while (true) {
                    if (at >= 0) word = look(words + at);
                    const unsigned flag = static_cast<unsigned>(word) & 3u;
                    const unsigned ready = __ballot_sync(0xffffffffu, flag != 0u);
                    ends = __ballot_sync(0xffffffffu, flag == 2u);
                    needed = ends != 0u ? (2u << (__ffs(static_cast<int>(ends)) - 1)) - 1u : 0xffffffffu;
                    if ((ready & needed) == needed) break;
                }
                double part = ((needed >> lane) & 1u) ? value_of(word) : 0.0;
#pragma unroll
                for (int d = 16; d > 0; d /= 2) part += __shfl_xor_sync(0xffffffffu, part, d);
                prefix += part;
                if (ends != 0u) break;
                at -= 32;
            }
            if (lane == 0) publish(words + index, make_word(prefix + own, 2u));
        }
        if (lane == 0) shared_prefix = static_cast<float>(prefix);
    }
    __syncthreads();
    tile.store(y, start, N, shared_prefix);
}

template <int T, int K>
static cudaError_t launch_cluster(const float* x, float* y, int N, int blocks, cudaStream_t stream) {
    if (blocks > 8) {
        const cudaError_t error = cudaFuncSetAttribute(scan_cluster<T, K>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (error != cudaSuccess) return error;
    }
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = blocks;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(T);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, scan_cluster<T, K>, x, y, N);
}

extern "C" size_t prefix_sum_workspace(int64_t N) {
    return static_cast<size_t>((N + kTile - 1) / kTile) * sizeof(word_t64);
}

extern "C" cudaError_t prefix_sum(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int n = static_cast<int>(N);
    if (n <= 1024) {
        scan_block<256, 1><<<1, 256, 0, stream>>>(x, y, n);
        return cudaGetLastError();
    }
    if (n <= 4096) {
        scan_block<1024, 1><<<1, 1024, 0, stream>>>(x, y, n);
        return cudaGetLastError();
    }
    if (n <= 8192) {
        scan_block<1024, 2><<<1, 1024, 0, stream>>>(x, y, n);
        return cudaGetLastError();
    }
    if (n <= 262144) {
        cudaError_t error;
        if (n <= 16384) error = launch_cluster<512, 1>(x, y, n, 8, stream);
        else if (n <= 32768) error = launch_cluster<512, 1>(x, y, n, 16, stream);
        else if (n <= 65536) error = launch_cluster<512, 2>(x, y, n, 16, stream);
        else if (n <= 131072) error = launch_cluster<512, 4>(x, y, n, 16, stream);
        else error = launch_cluster<1024, 4>(x, y, n, 16, stream);
        if (error == cudaSuccess) return cudaGetLastError();
        cudaGetLastError();  // no room for such a cluster: the way below serves any N
    }
    word_t64* words = static_cast<word_t64*>(workspace);
    const int tiles = (n + kTile - 1) / kTile;
    clear_words<<<(tiles + 255) / 256, 256, 0, stream>>>(words, tiles);
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles);
    config.blockDim = dim3(kTileThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, scan_tiles, x, y, words, n);
    return cudaGetLastError();
}
