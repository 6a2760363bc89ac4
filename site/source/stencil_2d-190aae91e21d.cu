// One step of the heat equation as cuDNN's 3×3 convolution with one channel, and a small kernel that copies the boundary.
//
// The grid is padded with zeros, so that the output is as large as the input and both stay aligned; what that makes of the
// boundary is overwritten. Grids of more than 2^28 points go in slabs of rows, since cuDNN's indices are 32 bits wide.
// Convolutions by FFT or Winograd's method are not tried: their error is that of the largest value near, not of the point.
// msbench: link cudnn
#include <cudnn.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "msbench_library.cuh"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define CUDNN(call) MSBENCH_LIBRARY(cudnnGetErrorString, call)

#ifdef MSBENCH_FP32
constexpr cudnnDataType_t kType = CUDNN_DATA_FLOAT;
constexpr cudnnMathType_t kMath = CUDNN_FMA_MATH;  // the default math would round fp32 to TF32
#else
constexpr cudnnDataType_t kType = CUDNN_DATA_BFLOAT16;
constexpr cudnnMathType_t kMath = CUDNN_DEFAULT_MATH;
#endif
constexpr int64_t kSlabPoints = int64_t{1} << 28;
constexpr size_t kLargestWorkspace = size_t{16} << 30;
constexpr cudnnConvolutionFwdAlgo_t kAlgorithms[] = {
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
    CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
    CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
};

// What a convolution of `rows` rows of input is run with. With padding, there are as many rows of output, else two fewer.
struct Plan {
    cudnnTensorDescriptor_t input = nullptr, output = nullptr;
    cudnnFilterDescriptor_t filter = nullptr;
    cudnnConvolutionDescriptor_t convolution = nullptr;
    cudnnConvolutionFwdAlgo_t algorithm;
    scalar_t* weights = nullptr;
    void* workspace = nullptr;
    size_t workspace_bytes = 0;
    bool ready = false;
};

static cudnnHandle_t handle = nullptr;

__global__ void write_weights(scalar_t* weights, float r) {
    for (int i = 0; i < 9; ++i) weights[i] = static_cast<scalar_t>(i == 4 ? 1 - 4 * r : i % 2 == 1 ? r : 0.0f);
}

__global__ void copy_boundary(const scalar_t* u_old, scalar_t* u_new, int64_t nx, int64_t ny) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < ny) {
        u_new[i] = u_old[i];
        u_new[(nx - 1) * ny + i] = u_old[(nx - 1) * ny + i];
    }
    if (i < nx) {
        u_new[i * ny] = u_old[i * ny];
        u_new[i * ny + ny - 1] = u_old[i * ny + ny - 1];
    }
}

static cudaError_t run(const Plan& plan, const scalar_t* from, scalar_t* to) {
    const float one = 1, zero = 0;
    CUDNN(cudnnConvolutionForward(handle, &one, plan.input, from, plan.filter, plan.weights, plan.convolution,
                                  plan.algorithm, plan.workspace, plan.workspace_bytes, &zero, plan.output, to));
    return cudaSuccess;
}

// Tries the algorithms that compute sums of products as they are, and keeps the fastest with its workspace.
static cudaError_t choose_algorithm(Plan& plan, const scalar_t* from, scalar_t* to, cudaStream_t stream) {
    float best = std::numeric_limits<float>::infinity();
    Plan fastest = plan;
    for (cudnnConvolutionFwdAlgo_t algorithm : kAlgorithms) {
        Plan attempt = plan;
        attempt.algorithm = algorithm;
        const cudnnStatus_t status = cudnnGetConvolutionForwardWorkspaceSize(
            handle, plan.input, plan.filter, plan.convolution, plan.output, algorithm, &attempt.workspace_bytes);
        if (status != CUDNN_STATUS_SUCCESS || attempt.workspace_bytes > kLargestWorkspace) continue;
        if (cudaMalloc(&attempt.workspace, attempt.workspace_bytes + 1) != cudaSuccess) {
            cudaGetLastError();
            continue;
        }
        const float time = msbench::milliseconds(stream, [&] { return run(attempt, from, to); });
        if (time < best) {
            best = time;
            std::swap(fastest, attempt);
            fastest.ready = true;
        }
        cudaFree(attempt.workspace);
    }
    plan = fastest;
    return plan.ready ? cudaSuccess : cudaErrorNotSupported;
}

static cudaError_t make_plan(Plan& plan, const scalar_t* from, scalar_t* to, float r, int rows, int columns,
                             int row_padding, cudaStream_t stream) {
    CUDNN(cudnnCreateTensorDescriptor(&plan.input));
    CUDNN(cudnnCreateTensorDescriptor(&plan.output));
    CUDNN(cudnnCreateFilterDescriptor(&plan.filter));
    CUDNN(cudnnCreateConvolutionDescriptor(&plan.convolution));
    CUDNN(cudnnSetTensor4dDescriptor(plan.input, CUDNN_TENSOR_NCHW, kType, 1, 1, rows, columns));
    CUDNN(cudnnSetTensor4dDescriptor(plan.output, CUDNN_TENSOR_NCHW, kType, 1, 1, rows - 2 + 2 * row_padding, columns));
    CUDNN(cudnnSetFilter4dDescriptor(plan.filter, kType, CUDNN_TENSOR_NCHW, 1, 1, 3, 3));
    CUDNN(cudnnSetConvolution2dDescriptor(plan.convolution, row_padding, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    CUDNN(cudnnSetConvolutionMathType(plan.convolution, kMath));
    MSBENCH_CUDA(cudaMalloc(&plan.weights, 9 * sizeof(scalar_t)));
    write_weights<<<1, 1, 0, stream>>>(plan.weights, r);
    MSBENCH_CUDA(cudaGetLastError());
    return choose_algorithm(plan, from, to, stream);
}

static cudaError_t convolve(const scalar_t* from, scalar_t* to, float r, int64_t rows, int64_t columns, int row_padding,
                            cudaStream_t stream) {
    static std::map<std::tuple<int64_t, int64_t, int, float>, Plan> plans;
    Plan& plan = plans[{rows, columns, row_padding, r}];
    if (!plan.ready) {
        MSBENCH_CUDA(make_plan(plan, from, to, r, static_cast<int>(rows), static_cast<int>(columns), row_padding, stream));
    }
    return run(plan, from, to);
}

extern "C" size_t stencil_2d_workspace(float r, int64_t nx, int64_t ny) {
    return 2 * msbench::Staging::room(nx * ny * sizeof(scalar_t));
}

extern "C" cudaError_t stencil_2d(const scalar_t* u_old, scalar_t* u_new, float r, int64_t nx, int64_t ny,
                                  void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    if (!handle) CUDNN(cudnnCreate(&handle));
    CUDNN(cudnnSetStream(handle, stream));
    const size_t bytes = nx * ny * sizeof(scalar_t);
    msbench::Staging staging(workspace, stream);
    const scalar_t* from = staging.input(u_old, bytes);
    scalar_t* to = staging.output(u_new, bytes);

    if (nx * ny <= kSlabPoints) {
        MSBENCH_CUDA(convolve(from, to, r, nx, ny, 1, stream));
    } else {
        const int64_t rows = kSlabPoints / ny;
        for (int64_t first = 1; first < nx - 1; first += rows) {
            const int64_t count = std::min(rows, nx - 1 - first);
            MSBENCH_CUDA(convolve(from + (first - 1) * ny, to + first * ny, r, count + 2, ny, 0, stream));
        }
    }
    const int threads = 256;
    const int64_t blocks = (std::max(nx, ny) + threads - 1) / threads;
    copy_boundary<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(from, to, nx, ny);
    return staging.finish();
}
