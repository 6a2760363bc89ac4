// One step of the heat equation as cuDNN's 3×3×3 convolution with one channel, and a small kernel that copies the boundary.
//
// The grid is padded with zeros, so that the output is as large as the input and both stay aligned; what that makes of the
// boundary is overwritten. Grids of more than 2^28 points go in slabs of planes, since cuDNN's indices are 32 bits wide.
// msbench: link cudnn
#include <algorithm>

#include "msbench_cudnn_convolution.cuh"

constexpr int64_t kSlabPoints = int64_t{1} << 28;

__global__ void write_weights(scalar_t* weights, float r) {
    for (int i = 0; i < 27; ++i) {
        const int distance = (i / 9 != 1) + (i / 3 % 3 != 1) + (i % 3 != 1);
        weights[i] = static_cast<scalar_t>(distance == 0 ? 1 - 6 * r : distance == 1 ? r : 0.0f);
    }
}

// One thread for a point of each of the three faces that meet in point (0, 0, 0), and for those opposite.
__global__ void copy_boundary(const scalar_t* u_old, scalar_t* u_new, int64_t nx, int64_t ny, int64_t nz) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    const auto copy = [&](int64_t at) { u_new[at] = u_old[at]; };
    if (i < ny * nz) {
        copy(i);
        copy((nx - 1) * ny * nz + i);
    }
    if (i < nx * nz) {
        const int64_t first = i / nz * ny * nz + i % nz;
        copy(first);
        copy(first + (ny - 1) * nz);
    }
    if (i < nx * ny) {
        copy(i * nz);
        copy(i * nz + nz - 1);
    }
}

// The filter for `r`, written once.
static cudaError_t weights_for(float r, const scalar_t*& weights, cudaStream_t stream) {
    static std::map<float, scalar_t*> written;
    scalar_t*& filter = written[r];
    if (!filter) {
        MSBENCH_CUDA(cudaMalloc(&filter, 27 * sizeof(scalar_t)));
        write_weights<<<1, 1, 0, stream>>>(filter, r);
        MSBENCH_CUDA(cudaGetLastError());
    }
    weights = filter;
    return cudaSuccess;
}

extern "C" size_t stencil_3d_workspace(float r, int64_t nx, int64_t ny, int64_t nz) {
    return 2 * msbench::Staging::room(nx * ny * nz * sizeof(scalar_t));
}

extern "C" cudaError_t stencil_3d(const scalar_t* u_old, scalar_t* u_new, float r, int64_t nx, int64_t ny, int64_t nz,
                                  void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int64_t plane = ny * nz;
    const size_t bytes = nx * plane * sizeof(scalar_t);
    msbench::Staging staging(workspace, stream);
    const scalar_t* from = staging.input(u_old, bytes);
    scalar_t* to = staging.output(u_new, bytes);
    const scalar_t* weights = nullptr;
    MSBENCH_CUDA(weights_for(r, weights, stream));

    if (nx * plane <= kSlabPoints) {
        MSBENCH_CUDA(msbench::convolve({{{nx, ny, nz}, {3, 3, 3}, {1, 1, 1}}}, from, weights, to, stream));
    } else {
        // Without padding along x, planes come aligned only where their size is a multiple of eight elements.
        if (plane % 8 != 0) return cudaErrorNotSupported;
        const int64_t planes = kSlabPoints / plane;
        for (int64_t first = 1; first < nx - 1; first += planes) {
            const int64_t count = std::min(planes, nx - 1 - first);
            MSBENCH_CUDA(msbench::convolve({{{count + 2, ny, nz}, {3, 3, 3}, {0, 1, 1}}}, from + (first - 1) * plane,
                                           weights, to + first * plane, stream));
        }
    }
    const int threads = 256;
    const int64_t blocks = (std::max({ny * nz, nx * nz, nx * ny}) + threads - 1) / threads;
    copy_boundary<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(from, to, nx, ny, nz);
    return staging.finish();
}
