// Heat step: 16-byte loads, 8 columns x R rows per thread in registers, shuffles for left and right. A block covers 256 columns x 8R rows,
// so that a row is read little more than once. Bound: one read and one write of the grid (memory).

constexpr int kWarps = 8;

__device__ __forceinline__ float low_half(unsigned u) {
    return __uint_as_float(u << 16);
}

__device__ __forceinline__ float high_half(unsigned u) {
    return __uint_as_float(u & 0xffff0000u);
}

__device__ __forceinline__ float from_bits(unsigned short b) {
    return __uint_as_float(static_cast<unsigned>(b) << 16);
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    return static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(low))) |
           (static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16);
}

__device__ __forceinline__ float step(float up, float down, float left, float right, float centre, float r) {
    const float neighbours = (up + down) + (left + right);
    return fmaf(r, fmaf(-4.0f, centre, neighbours), centre);
}

__device__ __forceinline__ unsigned step_pair(unsigned up, unsigned down, float left, float right, unsigned centre,
                                              float r) {
    const float low = low_half(centre), high = high_half(centre);
    return pack(step(low_half(up), low_half(down), left, high, low, r),
                step(high_half(up), high_half(down), low, right, high, r));
}

template <int R>
__global__ void __launch_bounds__(kWarps * 32)
    stencil_vector(const unsigned short* __restrict__ u_old, unsigned short* __restrict__ u_new, float r, int nx,
                   int ny) {
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int row0 = (blockIdx.y * kWarps + warp) * R;
    if (row0 >= nx) return;
    const int wanted = (blockIdx.x * 32 + lane) * 8;
    const bool inside = wanted < ny;
    const int column = inside ? wanted : ny - 8;  // others stay for the shuffles
    uint4 v[R + 2];
#pragma unroll
    for (int k = 0; k < R + 2; ++k) {
        int row = row0 - 1 + k;
        row = row < 0 ? 0 : (row > nx - 1 ? nx - 1 : row);
        v[k] = __ldg(reinterpret_cast<const uint4*>(u_old + size_t(row) * ny + column));
    }
    // Beyond a warp's columns: on lane 0 the element to the left, on lane 31 the one to the right.
    const bool take_left = lane == 0 && column > 0;
    const bool take_right = lane == 31 && column + 8 < ny;
    const int outer = take_left ? column - 1 : column + 8;
    unsigned short edge[R];
#pragma unroll
    for (int k = 0; k < R; ++k) {
        edge[k] = 0;
        if ((take_left || take_right) && row0 + k < nx) edge[k] = __ldg(u_old + size_t(row0 + k) * ny + outer);
    }
#pragma unroll
    for (int k = 0; k < R; ++k) {
        const int row = row0 + k;
        const uint4 c = v[k + 1];
        const unsigned before = __shfl_up_sync(0xffffffffu, c.w, 1);
        const unsigned after = __shfl_down_sync(0xffffffffu, c.x, 1);
        const float left = lane == 0 ? from_bits(edge[k]) : high_half(before);
        const float right = lane == 31 ? from_bits(edge[k]) : low_half(after);
        uint4 o;
        if (row == 0 || row >= nx - 1) {
            o = c;
        } else {
            const uint4 up = v[k], down = v[k + 2];
            o.x = step_pair(up.x, down.x, left, low_half(c.y), c.x, r);
            o.y = step_pair(up.y, down.y, high_half(c.x), low_half(c.z), c.y, r);
            o.z = step_pair(up.z, down.z, high_half(c.y), low_half(c.w), c.z, r);
            o.w = step_pair(up.w, down.w, high_half(c.z), right, c.w, r);
            if (column == 0) o.x = (o.x & 0xffff0000u) | (c.x & 0x0000ffffu);
            if (column + 8 == ny) o.w = (o.w & 0x0000ffffu) | (c.w & 0xffff0000u);
        }
        if (inside && row < nx) __stcs(reinterpret_cast<uint4*>(u_new + size_t(row) * ny + column), o);
    }
}

constexpr int kRows = 4;

__global__ void __launch_bounds__(kWarps * 32)
    stencil_elements(const unsigned short* __restrict__ u_old, unsigned short* __restrict__ u_new, float r, int nx,
                     int ny) {
    const int column = blockIdx.x * 32 + (threadIdx.x & 31);
    const int row0 = (blockIdx.y * kWarps + (threadIdx.x >> 5)) * kRows;
    if (column >= ny || row0 >= nx) return;
    const int to_left = column > 0 ? column - 1 : column;
    const int to_right = column < ny - 1 ? column + 1 : column;
    unsigned short v[kRows + 2], left[kRows], right[kRows];
#pragma unroll
    for (int k = 0; k < kRows + 2; ++k) {
        int row = row0 - 1 + k;
        row = row < 0 ? 0 : (row > nx - 1 ? nx - 1 : row);
        v[k] = __ldg(u_old + size_t(row) * ny + column);
        if (k >= 1 && k <= kRows) {
            left[k - 1] = __ldg(u_old + size_t(row) * ny + to_left);
            right[k - 1] = __ldg(u_old + size_t(row) * ny + to_right);
        }
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
        const int row = row0 + k;
        if (row < nx) {
            unsigned short o = v[k + 1];
            if (row > 0 && row < nx - 1 && column > 0 && column < ny - 1) {
                const float value = step(from_bits(v[k]), from_bits(v[k + 2]), from_bits(left[k]), from_bits(right[k]),
                                         from_bits(v[k + 1]), r);
                o = __bfloat16_as_ushort(__float2bfloat16_rn(value));
            }
            u_new[size_t(row) * ny + column] = o;
        }
    }
}

template <int R>
static void launch_vector(const unsigned short* u_old, unsigned short* u_new, float r, int nx, int ny,
                          cudaStream_t stream) {
    const dim3 blocks((ny / 8 + 31) / 32, (nx + kWarps * R - 1) / (kWarps * R));
    stencil_vector<R><<<blocks, kWarps * 32, 0, stream>>>(u_old, u_new, r, nx, ny);
}

extern "C" cudaError_t stencil_2d(const scalar_t* u_old, scalar_t* u_new, float r, int64_t nx, int64_t ny,
                                  void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const unsigned short* from = reinterpret_cast<const unsigned short*>(u_old);
    unsigned short* to = reinterpret_cast<unsigned short*>(u_new);
    const int rows = int(nx), columns = int(ny);
    const bool vectors =
        ny % 8 == 0 && ((reinterpret_cast<uintptr_t>(u_old) | reinterpret_cast<uintptr_t>(u_new)) & 15) == 0;
    if (vectors) {
        const int64_t size = nx * ny;
        if (size <= (int64_t(1) << 21)) launch_vector<2>(from, to, r, rows, columns, stream);
        else if (size <= (int64_t(1) << 23)) launch_vector<4>(from, to, r, rows, columns, stream);
        else launch_vector<8>(from, to, r, rows, columns, stream);
    } else {
        const dim3 blocks((columns + 31) / 32, (rows + kWarps * kRows - 1) / (kWarps * kRows));
        stencil_elements<<<blocks, kWarps * 32, 0, stream>>>(from, to, r, rows, columns);
    }
    return cudaGetLastError();
}
