// Inclusive prefix sum. Small: a single cluster (launch-bound). Large: decoupled look-back, one read and one write (126 us for 512 MiB).

typedef unsigned long long Word;

constexpr int kTileThreads = 512;
constexpr int kTileVectors = 4;
constexpr int kTile = kTileThreads * kTileVectors * 4;
constexpr int kClusterThreads = 1024;
constexpr int64_t kClusterLimit = int64_t(16) * kClusterThreads * 16;

template <bool kVector>
__device__ __forceinline__ float4 load4(const float* x, int i, int N) {
    float4 v = make_float4(0, 0, 0, 0);
    if (i + 3 < N) {
        if (kVector) {
            v = __ldcs(reinterpret_cast<const float4*>(x + i));
        } else {
            v.x = __ldg(x + i);
            v.y = __ldg(x + i + 1);
            v.z = __ldg(x + i + 2);
            v.w = __ldg(x + i + 3);
        }
    } else {
        if (i < N) v.x = __ldg(x + i);
        if (i + 1 < N) v.y = __ldg(x + i + 1);
        if (i + 2 < N) v.z = __ldg(x + i + 2);
    }
    return v;
}

template <bool kVector>
__device__ __forceinline__ void store4(float* y, int i, int N, float4 v) {
    if (i + 3 < N) {
        if (kVector) {
            __stcs(reinterpret_cast<float4*>(y + i), v);
        } else {
            y[i] = v.x;
            y[i + 1] = v.y;
            y[i + 2] = v.z;
            y[i + 3] = v.w;
        }
    } else {
        if (i < N) y[i] = v.x;
        if (i + 1 < N) y[i + 1] = v.y;
        if (i + 2 < N) y[i + 2] = v.z;
    }
}

// Inclusive scan of a warp's E x 128 elements (vector j of lane l holds elements 128j + 4l ...), in place. Returns the warp's sum.
template <int E>
__device__ __forceinline__ float warp_scan(float4 (&v)[E]) {
    const int lane = threadIdx.x & 31;
    float scan[E];
#pragma unroll
    for (int j = 0; j < E; ++j) {
        v[j].y += v[j].x;
        v[j].z += v[j].y;
        v[j].w += v[j].z;
        scan[j] = v[j].w;
    }
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
#pragma unroll
        for (int j = 0; j < E; ++j) {
            const float other = __shfl_up_sync(0xffffffffu, scan[j], d);
            if (lane >= d) scan[j] += other;
        }
    }
    float base = 0;
#pragma unroll
    for (int j = 0; j < E; ++j) {
        float before = __shfl_up_sync(0xffffffffu, scan[j], 1);
        const float total = __shfl_sync(0xffffffffu, scan[j], 31);
        if (lane == 0) before = 0;
        before += base;
        base += total;
        v[j].x += before;
        v[j].y += before;
        v[j].z += before;
        v[j].w += before;
    }
    return base;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// ---------------------------------------------------------------- one block or one cluster

template <bool kVector, int E>
__global__ void __launch_bounds__(kClusterThreads) scan_cluster(const float* x, float* y, int N) {
    __shared__ float sums[32];
    __shared__ double slots[16];
    const int ranks = gridDim.x;  // the grid is one cluster
    const int rank = blockIdx.x;
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int warps = blockDim.x >> 5;
    if (ranks > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    const int first = (rank * warps + warp) * (E * 128) + lane * 4;
    float4 v[E];
#pragma unroll
    for (int j = 0; j < E; ++j) v[j] = load4<kVector>(x, first + j * 128, N);
    const float own = warp_scan<E>(v);
    if (lane == 0) sums[warp] = own;
    __syncthreads();
    const float sum = lane < warps ? sums[lane] : 0.0f;
    float before = warp_sum(lane < warp ? sum : 0.0f);
    if (ranks > 1) {
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // all blocks have started
        if (warp == 0) {
            const double total = warp_sum(static_cast<double>(sum));
            if (lane < ranks) {
                const unsigned local = static_cast<unsigned>(__cvta_generic_to_shared(&slots[rank]));
                unsigned remote;
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(lane));
                asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(remote), "d"(total) : "memory");
            }
            __syncwarp();
        }
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        double carried = 0;
        for (int r = 0; r < rank; ++r) carried += slots[r];
        const float carry = static_cast<float>(carried);
#pragma unroll
        for (int j = 0; j < E; ++j) {
            v[j].x = carry + (before + v[j].x);
            v[j].y = carry + (before + v[j].y);
            v[j].z = carry + (before + v[j].z);
            v[j].w = carry + (before + v[j].w);
        }
    } else {
#pragma unroll
        for (int j = 0; j < E; ++j) {
            v[j].x += before;
            v[j].y += before;
            v[j].z += before;
            v[j].w += before;
        }
    }
#pragma unroll
    for (int j = 0; j < E; ++j) store4<kVector>(y, first + j * 128, N, v[j]);
}

// ---------------------------------------------------------------- look-back

// State of a tile: 0 nothing yet; otherwise a double whose two lowest bits say what it is: 1 the tile's sum, 2 the sum up to its end.
__device__ __forceinline__ Word load_state(const Word* p) {
    Word w;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
    return w;
}

__device__ __forceinline__ void store_state(Word* p, double value, Word kind) {
    const Word w = (static_cast<Word>(__double_as_longlong(value)) & ~Word(3)) | kind;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(w) : "memory");
}

__global__ void clear_states(Word* states, int tiles) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < tiles) states[i] = 0;
}

// The sum of all tiles before `tile` (> 0), by one warp.
__device__ __forceinline__ double look_back(const Word* states, int tile) {
    const int lane = threadIdx.x & 31;
    double sum = 0;
    bool done = false;
    for (int at = tile - 1 - lane; !done; at -= 128) {
        Word w[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int p = at - 32 * j;
            w[j] = p >= 0 ? load_state(states + p) : Word(2);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (!done) {  // the same in all lanes
                const int p = at - 32 * j;
                while (__any_sync(0xffffffffu, (w[j] & 3) == 0)) {
                    if ((w[j] & 3) == 0) w[j] = load_state(states + p);
                }
                const unsigned complete = __ballot_sync(0xffffffffu, (w[j] & 3) == 2);
                const int last = complete != 0 ? __ffs(int(complete)) - 1 : 31;
                const double value =
                    lane <= last ? __longlong_as_double(static_cast<long long>(w[j] & ~Word(3))) : 0.0;
                sum += warp_sum(value);
                done = complete != 0;
            }
        }
    }
    return sum;
}

template <bool kVector>
__global__ void __launch_bounds__(kTileThreads, 3) scan_tiles(const float* x, float* y, int N, Word* states) {
    constexpr int kWarps = kTileThreads / 32;
    __shared__ float sums[kWarps];
    __shared__ float carried;
    const int tile = blockIdx.x;
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int first = tile * kTile + warp * (kTileVectors * 128) + lane * 4;
    float4 v[kTileVectors];
#pragma unroll
    for (int j = 0; j < kTileVectors; ++j) v[j] = load4<kVector>(x, first + j * 128, N);
    const float own = warp_scan<kTileVectors>(v);
    if (lane == 0) sums[warp] = own;
    __syncthreads();
    const float sum = lane < kWarps ? sums[lane] : 0.0f;
    if (warp == 0) {
        const double total = warp_sum(static_cast<double>(sum));
        asm volatile("griddepcontrol.wait;" ::: "memory");  // the states are cleared
        double prefix = 0;
        if (tile > 0) {
            if (lane == 0) store_state(states + tile, total, 1);
            __syncwarp();
            prefix = look_back(states, tile);
        }
        if (lane == 0) {
            store_state(states + tile, prefix + total, 2);
            carried = static_cast<float>(prefix);
        }
    }
    const float before = warp_sum(lane < warp ? sum : 0.0f);
    __syncthreads();
    const float carry = carried;
#pragma unroll
    for (int j = 0; j < kTileVectors; ++j) {
        float4 o;
        o.x = carry + (before + v[j].x);
        o.y = carry + (before + v[j].y);
        o.z = carry + (before + v[j].z);
        o.w = carry + (before + v[j].w);
        store4<kVector>(y, first + j * 128, N, o);
    }
}

// ---------------------------------------------------------------- host

static int tile_count(int64_t N) {
    return int((N + kTile - 1) / kTile);
}

extern "C" size_t prefix_sum_workspace(int64_t N) {
    return size_t(tile_count(N)) * sizeof(Word);
}

template <bool kVector, int E>
static cudaError_t launch_cluster(const float* x, float* y, int N, int ranks, cudaStream_t stream) {
    if (ranks > 8) {
        const cudaError_t error =
            cudaFuncSetAttribute(scan_cluster<kVector, E>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (error != cudaSuccess) return error;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ranks);
    config.blockDim = dim3(kClusterThreads);
    config.stream = stream;
    cudaLaunchAttribute attribute[1] = {};
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = ranks;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, scan_cluster<kVector, E>, x, y, N);
}

template <bool kVector>
static cudaError_t launch(const float* x, float* y, int N, Word* states, cudaStream_t stream) {
    if (N <= kClusterThreads * 4) {
        const int threads = N <= 1024 ? 256 : (N <= 2048 ? 512 : 1024);
        scan_cluster<kVector, 1><<<1, threads, 0, stream>>>(x, y, N);
        return cudaGetLastError();
    }
    if (N <= kClusterLimit) {
        int ranks = 2;
        while (ranks < 16 && ranks * kClusterThreads * 4 < N) ranks *= 2;
        const int room = 16 * kClusterThreads * 4;
        cudaError_t error;
        if (N <= room) error = launch_cluster<kVector, 1>(x, y, N, ranks, stream);
        else if (N <= 2 * room) error = launch_cluster<kVector, 2>(x, y, N, 16, stream);
        else error = launch_cluster<kVector, 4>(x, y, N, 16, stream);
        if (error == cudaSuccess) return cudaGetLastError();
        cudaGetLastError();  // no such cluster here: take the general path
    }
    const int tiles = tile_count(N);
    clear_states<<<(tiles + 255) / 256, 256, 0, stream>>>(states, tiles);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles);
    config.blockDim = dim3(kTileThreads);
    config.stream = stream;
    cudaLaunchAttribute attribute[1] = {};
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const cudaError_t error = cudaLaunchKernelEx(&config, scan_tiles<kVector>, x, y, N, states);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}

extern "C" cudaError_t prefix_sum(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    Word* states = static_cast<Word*>(workspace);
    const bool vectors = ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    return vectors ? launch<true>(x, y, int(N), states, stream) : launch<false>(x, y, int(N), states, stream);
}
