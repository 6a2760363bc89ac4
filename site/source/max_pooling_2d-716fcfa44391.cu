// Max pooling by cuDNN, in the form that propagates NaN. The first call with a shape tries the tensor layouts that describe the
// arrays: images of C channels, and N·C images of one channel, which may also lie last.
// msbench: link cudnn
#include <array>
#include <map>

#include "msbench_cudnn.cuh"

struct Layout {
    cudnnTensorFormat_t format;
    int images, channels;
};

struct Plan {
    cudnnPoolingDescriptor_t pooling = nullptr;
    cudnnTensorDescriptor_t input = nullptr, output = nullptr;
    bool ready = false;

    void destroy() {
        if (pooling) cudnnDestroyPoolingDescriptor(pooling);
        if (input) cudnnDestroyTensorDescriptor(input);
        if (output) cudnnDestroyTensorDescriptor(output);
    }
};

using Key = std::array<int64_t, 7>;  // N, C, H, W, k, stride, padding

static int windows(int64_t size, int64_t k, int64_t stride, int64_t padding) {
    return static_cast<int>((size + 2 * padding - k) / stride + 1);
}

static cudaError_t describe(Plan& plan, const Layout& layout, const Key& key) {
    const auto [N, C, H, W, k, stride, padding] = key;
    const int window = static_cast<int>(k), step = static_cast<int>(stride), border = static_cast<int>(padding);
    MSBENCH_CUDNN(cudnnCreatePoolingDescriptor(&plan.pooling));
    MSBENCH_CUDNN(cudnnCreateTensorDescriptor(&plan.input));
    MSBENCH_CUDNN(cudnnCreateTensorDescriptor(&plan.output));
    MSBENCH_CUDNN(cudnnSetPooling2dDescriptor(plan.pooling, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN, window,
                                              window, border, border, step, step));
    MSBENCH_CUDNN(cudnnSetTensor4dDescriptor(plan.input, layout.format, msbench::cudnn::kType, layout.images,
                                             layout.channels, static_cast<int>(H), static_cast<int>(W)));
    MSBENCH_CUDNN(cudnnSetTensor4dDescriptor(plan.output, layout.format, msbench::cudnn::kType, layout.images,
                                             layout.channels, windows(H, k, stride, padding),
                                             windows(W, k, stride, padding)));
    return cudaSuccess;
}

static cudaError_t run(cudnnHandle_t handle, const Plan& plan, const scalar_t* x, scalar_t* y) {
    const float one = 1, zero = 0;
    MSBENCH_CUDNN(cudnnPoolingForward(handle, plan.pooling, &one, plan.input, x, &zero, plan.output, y));
    return cudaSuccess;
}

static cudaError_t make_plan(cudnnHandle_t handle, Plan& fastest, const Key& key, const scalar_t* x, scalar_t* y,
                             cudaStream_t stream) {
    const int N = static_cast<int>(key[0]), C = static_cast<int>(key[1]);
    const Layout layouts[] = {{CUDNN_TENSOR_NCHW, N, C}, {CUDNN_TENSOR_NCHW, N * C, 1}, {CUDNN_TENSOR_NHWC, N * C, 1}};
    float best = std::numeric_limits<float>::infinity();
    for (const Layout& layout : layouts) {
        Plan plan;
        const float time = describe(plan, layout, key) == cudaSuccess
                               ? msbench::milliseconds(stream, [&] { return run(handle, plan, x, y); })
                               : std::numeric_limits<float>::infinity();
        if (time < best) {
            best = time;
            std::swap(fastest, plan);
            fastest.ready = true;
        }
        plan.destroy();
    }
    return fastest.ready ? cudaSuccess : cudaErrorNotSupported;
}

extern "C" size_t max_pooling_2d_workspace(int64_t N, int64_t C, int64_t H, int64_t W, int64_t k, int64_t stride,
                                           int64_t padding) {
    using msbench::Staging;
    const int64_t outputs = N * C * windows(H, k, stride, padding) * windows(W, k, stride, padding);
    return Staging::room(N * C * H * W * sizeof(scalar_t)) + Staging::room(outputs * sizeof(scalar_t));
}

extern "C" cudaError_t max_pooling_2d(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, int64_t H, int64_t W,
                                      int64_t k, int64_t stride, int64_t padding, void* workspace,
                                      size_t workspace_bytes, cudaStream_t stream) {
    static std::map<Key, Plan> plans;
    const cudnnHandle_t handle = msbench::cudnn::handle_on(stream);
    if (!handle) return cudaErrorUnknown;
    const int64_t outputs = N * C * windows(H, k, stride, padding) * windows(W, k, stride, padding);
    msbench::Staging staging(workspace, stream);
    const scalar_t* from = staging.input(x, N * C * H * W * sizeof(scalar_t));
    scalar_t* to = staging.output(y, outputs * sizeof(scalar_t));

    const Key key{N, C, H, W, k, stride, padding};
    Plan& plan = plans[key];
    if (!plan.ready) MSBENCH_CUDA(make_plan(handle, plan, key, from, to, stream));
    MSBENCH_CUDA(run(handle, plan, from, to));
    return staging.finish();
}
