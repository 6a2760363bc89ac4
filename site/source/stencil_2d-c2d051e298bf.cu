// One step of the two-dimensional heat equation: out = u + r (left + right + up + down - 4 u), boundary copied.
//
// Idea: a thread walks down a strip of 8 columns, 16 bytes a row, with the rows above and below in registers: all of
// its loads are issued before the first use, and a row is read once per strip plus two halo rows, which are in L2. The
// columns left and right of the 16 bytes come from the neighbouring lanes by shuffle; the lanes at a warp's ends load
// them. Rows that are not 16-byte aligned take the same path one column a thread.
//
// Bound: 4 bytes an element (each read once, written once), 6 flops; one launch.

#include "msbench.cuh"

namespace {

constexpr int WIDTH = 16 / sizeof(scalar_t);  // elements of a 16-byte access
constexpr int MAX_THREADS = 256;
constexpr int SHORT_STRIP = 2, LONG_STRIP = 8;  // rows a thread writes: little or much work
constexpr int64_t MANY_PACKS = 1 << 20;         // from here on long strips fill 132 multiprocessors

template <int N>
struct alignas(N * sizeof(scalar_t)) Pack {
    scalar_t v[N];
};

template <int N>
__device__ Pack<N> load(const scalar_t* p) {
    if constexpr (N == 1) {
        return {{*p}};
    } else {
        const uint4 raw = *reinterpret_cast<const uint4*>(p);
        return reinterpret_cast<const Pack<N>&>(raw);
    }
}

template <int N>
__device__ void store(scalar_t* p, const Pack<N>& values) {
    if constexpr (N == 1) {
        *p = values.v[0];
    } else {
        __stcs(reinterpret_cast<uint4*>(p), reinterpret_cast<const uint4&>(values));
    }
}

__device__ float step(float here, float left, float right, float up, float down, float r) {
    return fmaf(r, fmaf(-4.0f, here, (left + right) + (up + down)), here);
}

// The row `here` after the step; left and right are its neighbours outside the pack.
template <int N>
__device__ Pack<N> stepped(const Pack<N>& up, const Pack<N>& here, const Pack<N>& down, float left, float right,
                           float r) {
    float values[N + 2];
    values[0] = left;
    values[N + 1] = right;
#pragma unroll
    for (int k = 0; k < N; ++k) values[k + 1] = __bfloat162float(here.v[k]);
    float next[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
        next[k] =
            step(values[k + 1], values[k], values[k + 2], __bfloat162float(up.v[k]), __bfloat162float(down.v[k]), r);
    }
    Pack<N> result;
    if constexpr (N == 1) {
        result.v[0] = __float2bfloat16_rn(next[0]);
    } else {
#pragma unroll
        for (int k = 0; k < N; k += 2) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(next[k], next[k + 1]);
            result.v[k] = pair.x;
            result.v[k + 1] = pair.y;
        }
    }
    return result;
}

template <int N, int ROWS>
__global__ void __launch_bounds__(MAX_THREADS) heat(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny) {
    const int64_t packs = ny / N;
    const unsigned blocks_y = unsigned((packs + blockDim.x - 1) / blockDim.x);
    const int64_t pack = int64_t(blockIdx.x % blocks_y) * blockDim.x + threadIdx.x;
    const int64_t first = int64_t(blockIdx.x / blocks_y) * ROWS;  // the strip writes rows first .. first + ROWS - 1
    const int64_t column = pack * N;
    const int lane = threadIdx.x % 32;
    const bool inside = pack < packs;

    Pack<N> rows[ROWS + 2] = {};                   // rows[i] is row first - 1 + i
    scalar_t before[ROWS] = {}, after[ROWS] = {};  // what the lanes at a warp's ends need from beyond it
#pragma unroll
    for (int i = 0; i < ROWS + 2; ++i) {
        const int64_t row = first - 1 + i;
        if (!inside || row < 0 || row >= nx) continue;
        const scalar_t* p = u + row * ny + column;
        rows[i] = load<N>(p);
        if (i == 0 || i == ROWS + 1) continue;
        if (lane == 0 && column > 0) before[i - 1] = p[-1];
        if (lane == 31 && column + N < ny) after[i - 1] = p[N];
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int64_t row = first + i;
        const Pack<N>& here = rows[i + 1];
        float left = __shfl_up_sync(0xffffffffu, __bfloat162float(here.v[N - 1]), 1);
        float right = __shfl_down_sync(0xffffffffu, __bfloat162float(here.v[0]), 1);
        if (lane == 0) left = __bfloat162float(before[i]);
        if (lane == 31) right = __bfloat162float(after[i]);
        if (!inside || row >= nx) continue;
        Pack<N> result = here;
        if (row > 0 && row < nx - 1) {
            result = stepped(rows[i], here, rows[i + 2], left, right, r);
            if (column == 0) result.v[0] = here.v[0];
            if (column + N == ny) result.v[N - 1] = here.v[N - 1];
        }
        store<N>(out + row * ny + column, result);
    }
}

template <int N, int ROWS>
void launch_strips(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, cudaStream_t stream) {
    const int64_t packs = ny / N;
    const int threads = packs < MAX_THREADS ? int(msbench::ceil_div(packs, 32)) * 32 : MAX_THREADS;
    const int64_t blocks = msbench::ceil_div(packs, threads) * msbench::ceil_div(nx, ROWS);
    heat<N, ROWS><<<unsigned(blocks), threads, 0, stream>>>(u, out, r, nx, ny);
}

template <int N>
cudaError_t launch(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, cudaStream_t stream) {
    if (nx * (ny / N) < MANY_PACKS) launch_strips<N, SHORT_STRIP>(u, out, r, nx, ny, stream);
    else launch_strips<N, LONG_STRIP>(u, out, r, nx, ny, stream);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t stencil_2d(const scalar_t* u, scalar_t* out, float r, int64_t nx, int64_t ny, void*, size_t,
                                  cudaStream_t stream) {
    const bool aligned = (uintptr_t(u) | uintptr_t(out)) % 16 == 0 && ny % WIDTH == 0;
    return aligned ? launch<WIDTH>(u, out, r, nx, ny, stream) : launch<1>(u, out, r, nx, ny, stream);
}
