// Indices, shared memory, block barriers, and every way to launch a kernel.
#include "testing.cuh"

// ------------------------------------------------------------------ indices

__global__ void indices(unsigned* out) {
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + threadIdx.z * 100 + threadIdx.y * 10 + threadIdx.x;
}

TEST(three_dimensional_indices) {
    Device<unsigned> out(2 * 3 * 2 * 24);
    indices<<<dim3(2, 3, 2), dim3(4, 3, 2)>>>(out);
    EXPECT_OK();
    for (unsigned block = 0; block < 12; ++block)
        for (unsigned t = 0; t < 24; ++t) EXPECT_EQ(out[block * 24 + t], block * 1000 + t / 12 * 100 + t / 4 % 3 * 10 + t % 4);
}

TEST(many_blocks) {
    Device<unsigned> out(100003 * 8);
    indices<<<100003, 8>>>(out);
    EXPECT_OK();
    for (unsigned i = 0; i < out.size; i += 777) EXPECT_EQ(out[i], i / 8 * 1000 + i % 8);
}

__global__ __launch_bounds__(128, 2) void grid_stride(const float* __restrict__ x, float* y, size_t n) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) y[i] = 2 * x[i];
}

TEST(grid_stride_loop) {
    Device<float> x(1000, 1.5f), y(1000);
    grid_stride<<<3, 128>>>(x, y, 1000);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(y[i], 3.0f);
}

// ------------------------------------------------------------------ shared memory

template <typename T, int N>
__global__ void reverse(T* data) {
    __shared__ T tile[N];
    tile[threadIdx.x] = data[blockIdx.x * N + threadIdx.x];
    __syncthreads();
    data[blockIdx.x * N + threadIdx.x] = tile[N - 1 - threadIdx.x];
}

TEST(static_shared_in_a_template) {
    Device<int> a(4 * 64);
    Device<double> b(3 * 100);
    for (int i = 0; i < 256; ++i) a[i] = i;
    for (int i = 0; i < 300; ++i) b[i] = i;
    reverse<int, 64><<<4, 64>>>(a);
    reverse<double, 100><<<3, 100>>>(b);
    for (int i = 0; i < 256; ++i) EXPECT_EQ(a[i], i / 64 * 64 + 63 - i % 64);
    for (int i = 0; i < 300; ++i) EXPECT_EQ(b[i], i / 100 * 100 + 99 - i % 100);
}

struct Pair {
    int key;
    float value;
};

__global__ void declarations(float* out) {
    __shared__ float a[32], b[2][16 + 1], total;
    __shared__ __align__(16) Pair pairs[32];
    volatile __shared__ int flags[32];
    static __shared__ struct { int x; float y[4]; } record;
    const int i = threadIdx.x;
    a[i] = i, b[i / 16][i % 16] = 2 * i, pairs[i] = {i, 3.0f * i}, flags[i] = 4 * i;
    if (i == 0) total = 100, record.x = 7, record.y[3] = 0.5f;
    __syncthreads();
    const int j = 31 - i;
    static_assert(sizeof(a) == 128, "the array keeps its type");
    out[i] = a[j] + b[j / 16][j % 16] + pairs[j].value + flags[j] + total + record.x + record.y[3] + sizeof(b) / sizeof(b[0]);
}

TEST(forms_of_shared_declarations) {
    Device<float> out(32);
    declarations<<<1, 32>>>(out);
    EXPECT_OK();
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 10.0f * (31 - i) + 109.5f);
}

__device__ float block_sum(float x) {
    __shared__ float scratch[32];
    scratch[threadIdx.x] = x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 32; ++i) sum += scratch[i];
    __syncthreads();
    return sum;
}
template <int k>
__device__ int own_copy() {
    __shared__ int value[k];
    if (threadIdx.x == 0) value[k - 1] = k;
    __syncthreads();
    return value[k - 1];
}
__global__ void shared_in_functions(float* out) {
    float first = block_sum(threadIdx.x), second = block_sum(1.0f);
    out[threadIdx.x] = first + 1000 * second + own_copy<3>() * 0.25f + own_copy<5>() * 0.5f;
}
TEST(shared_in_device_functions) {
    Device<float> out(32);
    shared_in_functions<<<1, 32>>>(out);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 496 + 32000 + 0.75f + 2.5f);
}

extern __shared__ __align__(16) unsigned char outside[];

template <typename T>
__global__ void dynamic(T* data) {
    extern __shared__ float4 raw[];
    T* tile = reinterpret_cast<T*>(raw);
    tile[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
__global__ void dynamic_outside(int* data, int rows) {
    extern __shared__ int grid[][4];
    int* flat = (int*)(unsigned char*)outside;
    grid[threadIdx.x / 4][threadIdx.x % 4] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = flat[(rows - 1 - threadIdx.x / 4) * 4 + threadIdx.x % 4];
}
TEST(dynamic_shared) {
    Device<float> a(77);
    Device<long long> b(50);
    Device<int> c(40);
    for (int i = 0; i < 77; ++i) a[i] = i;
    for (int i = 0; i < 50; ++i) b[i] = i;
    for (int i = 0; i < 40; ++i) c[i] = i;
    dynamic<float><<<1, 77, 77 * sizeof(float)>>>(a);
    dynamic<<<1, 50, 50 * sizeof(long long), nullptr>>>(b.data);
    dynamic_outside<<<1, 40, 160>>>(c, 10);
    EXPECT_OK();
    for (int i = 0; i < 77; ++i) EXPECT_EQ(a[i], 76 - i);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(b[i], 49 - i);
    for (int i = 0; i < 40; ++i) EXPECT_EQ(c[i], (9 - i / 4) * 4 + i % 4);
}

__global__ void uninitialised(unsigned* out) {
    __shared__ unsigned a[32];
    extern __shared__ unsigned d[];
    out[blockIdx.x * 64 + threadIdx.x] = a[threadIdx.x];
    out[blockIdx.x * 64 + 32 + threadIdx.x] = d[threadIdx.x];
    a[threadIdx.x] = d[threadIdx.x] = 0;
}
TEST(shared_memory_starts_as_garbage_in_every_block) {
    Device<unsigned> out(64 * 50);
    uninitialised<<<50, 32, 128>>>(out);
    for (size_t i = 0; i < out.size; ++i) EXPECT_EQ(out[i], 0xffffffffu);
}

__global__ void captured(float* out) {
    __shared__ float tile[32];
    const int last = 31;
    auto put = [=](int i, float v) { tile[i] = v; };
    auto twice = [](int i) { tile[i] *= 2; };
    put(threadIdx.x, threadIdx.x * 0.5f);
    twice(threadIdx.x);
    auto get = [=](int i) { return tile[last - i]; };
    __syncthreads();
    out[threadIdx.x] = get(threadIdx.x);
}
TEST(shared_memory_in_lambdas) {
    Device<float> out(32);
    captured<<<1, 32>>>(out);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 31 - i);
}

// ------------------------------------------------------------------ barriers

__global__ void tree(const int* in, int* out, int n) {
    __shared__ int s[1024];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = s[0] + n;
}
TEST(tree_reduction) {
    Device<int> in(1024), out(1);
    for (int i = 0; i < 1024; ++i) in[i] = i;
    tree<<<1, 1024>>>(in, out, 1);
    EXPECT_EQ(out[0], 1024 * 1023 / 2 + 1);
}

__global__ void votes(int* out) {
    int i = threadIdx.x;
    int count = __syncthreads_count(i % 3 == 0), all = __syncthreads_and(i < 100), none = __syncthreads_and(i < 99);
    int some = __syncthreads_or(i == 57), no = __syncthreads_or(i == 100);
    out[i] = count * 10000 + (all != 0) * 1000 + (none != 0) * 100 + (some != 0) * 10 + (no != 0);
}
TEST(barriers_that_vote) {
    Device<int> out(100);
    votes<<<1, 100>>>(out);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(out[i], 341010);
}

__global__ void early_exit(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __syncthreads();
    out[i] = i;
    __syncthreads();
    __syncwarp();
}
TEST(threads_that_leave_early) {
    Device<int> out(100, -1);
    early_exit<<<2, 64>>>(out, 71);
    EXPECT_OK();
    EXPECT_EQ(out[70], 70);
    EXPECT_EQ(out[71], -1);
}

// ------------------------------------------------------------------ launches

#define LAUNCH(kernel, blocks, ...) \
    do {                            \
        kernel<<<(blocks), 32>>>(   \
            __VA_ARGS__);           \
    } while (0)

__global__ void put(int* out, int value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void put(float* out, double value) { out[threadIdx.x] = value; }
template <typename T>
__global__ void put_t(T* out, T value) {
    out[threadIdx.x] = value;
}
template <typename T, int a, int b = 2>
__global__ void put_n(T* out) {
    out[threadIdx.x] = a * 10 + b;
}
namespace deep {
namespace er {
static __global__ void put(int* out) { out[threadIdx.x] = 99; }
}
}
struct Holder {
    static __global__ void put(int* out);
};
__global__ void Holder::put(int* out) { out[threadIdx.x] = 98; }
template <bool wide>
void launch_dependent(int* out) {
    constexpr int threads = wide ? 64 : 32;
    put_n<int, threads, (wide > 0) ? 1 : 0><<<1, threads>>>(out);
}

TEST(forms_of_launches) {
    Device<int> out(64, 0);
    Device<float> f(64, 0);
    LAUNCH(put, 2, out, 5);
    EXPECT_EQ(out[63], 5);
    put<<<1, 32>>>(f, 2.5);
    EXPECT_EQ(f[31], 2.5f);
    put_t<<<1, 1>>>(out.data, 6);
    EXPECT_EQ(out[0], 6);
    put_t<int> <<< /* a comment with >>> in it */ dim3(1),
        32 >>> (out, 7);
    EXPECT_EQ(out[31], 7);
    put_n<int, (8 > 4)><<<1, 1>>>(out);
    EXPECT_EQ(out[0], 12);
    ::deep::er::put<<<1, 1>>>(out);
    EXPECT_EQ(out[0], 99);
    Holder::put<<<1, 1>>>(out);
    EXPECT_EQ(out[0], 98);
    launch_dependent<true>(out);
    EXPECT_EQ(out[63], 641);
    void (*pointer)(int*, int) = put;
    pointer<<<1, 1>>>(out, 8);
    EXPECT_EQ(out[0], 8);
    (pointer)<<<1, 1>>>(out, 9);
    EXPECT_EQ(out[0], 9);
    auto chosen = out[0] == 9 ? &put_t<int> : nullptr;
    if (out[0] == 9) chosen<<<1, 1>>>(out, 10); else chosen<<<1, 1>>>(out, 11);
    EXPECT_EQ(out[0], 10);
    EXPECT_OK();
}

TEST(launches_by_pointer) {
    Device<int> out(64, 0);
    int* data = out;
    int value = 21;
    void* arguments[] = {&data, &value};
    EXPECT_EQ(int(cudaLaunchKernel((void*)put_t<int>, dim3(1), dim3(32), arguments, 0, 0)), 0);
    EXPECT_EQ(out[31], 21);
    value = 22;
    EXPECT_EQ(int(cudaLaunchKernel(reinterpret_cast<const void*>(&put_t<int>), 1, 32, arguments)), 0);
    EXPECT_EQ(out[31], 22);
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 16;
    EXPECT_EQ(int(cudaLaunchKernelEx(&config, put_t<int>, data, 23)), 0);
    EXPECT_EQ(out[15], 23);
}

TEST(launches_by_a_variable) {
    Device<int> out(64, 0);
    int* data = out;
    int value = 21;
    void* arguments[] = {&data, &value};
    const void* kernel = value > 20 ? (const void*)put_t<int> : reinterpret_cast<const void*>(&put_t<float>);
    EXPECT_EQ(int(cudaLaunchKernel(kernel, dim3(1), dim3(32), arguments)), 0);
    EXPECT_EQ(out[31], 21);
    value = 22;
    EXPECT_EQ(int(cudaLaunchCooperativeKernel(kernel, 1, 32, arguments)), 0);
    EXPECT_EQ(out[31], 22);
    value = 23;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 16;
    EXPECT_EQ(int(cudaLaunchKernelExC(&config, kernel, arguments)), 0);
    EXPECT_EQ(out[15], 23);
    EXPECT_EQ(out[16], 22);
    EXPECT_EQ(int(cudaLaunchKernel(static_cast<const void*>(data), 1, 32, arguments)), int(cudaErrorInvalidDeviceFunction));
    EXPECT_EQ(int(cudaGetLastError()), int(cudaErrorInvalidDeviceFunction));
}

TEST(variables_that_are_called_what_a_kernel_is) {
    Device<int> out(64, 7);
    float symbols = 2.5f;
    EXPECT_EQ(static_cast<int>(symbols), 2);
    const int* put_t = out;
    EXPECT_EQ(*static_cast<const int*>((const void*)put_t), 7);
    EXPECT_EQ(*static_cast<const int*>(static_cast<const void*>(put_t)), 7);
}

TEST(refused_launches) {
    Device<int> out(64, 0);
    put_t<int><<<1, 1025>>>(out, 1);
    EXPECT_EQ(int(cudaPeekAtLastError()), int(cudaErrorInvalidConfiguration));
    EXPECT_EQ(int(cudaGetLastError()), int(cudaErrorInvalidConfiguration));
    EXPECT_EQ(int(cudaGetLastError()), 0);
}

__constant__ float table[4];
__device__ int counter;
__global__ void symbols(float* out) { out[threadIdx.x] = table[threadIdx.x], atomicAdd(&counter, 1); }
TEST(device_variables) {
    const float values[4] = {1, 2, 3, 4};
    const int zero = 0;
    int count = 0;
    Device<float> out(4);
    cudaMemcpyToSymbol(table, values, sizeof values);
    cudaMemcpyToSymbol(counter, &zero, sizeof zero);
    symbols<<<5, 4>>>(out);
    cudaMemcpyFromSymbol(&count, counter, sizeof count);
    EXPECT_EQ(out[3], 4.0f);
    EXPECT_EQ(count, 20);
}

static unsigned long long host_clock() {
#ifdef __x86_64__
    unsigned low, high;
    asm volatile("rdtsc" : "=a"(low), "=d"(high));
    return (static_cast<unsigned long long>(high) << 32) | low;
#else
    return 1;
#endif
}
TEST(host_assembly_is_left_alone) { EXPECT(host_clock() > 0); }

TEST(questions_about_the_device) {
    int device = -1, processors = 0, blocks = 0;
    cudaDeviceProp properties;
    EXPECT_EQ(int(cudaGetDevice(&device)), 0);
    EXPECT_EQ(int(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)), 0);
    EXPECT_EQ(int(cudaGetDeviceProperties(&properties, device)), 0);
    EXPECT_EQ(properties.multiProcessorCount, processors);
    EXPECT_EQ(properties.major, 9);
    EXPECT_EQ(int(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, put_t<int>, 256, 0)), 0);
    EXPECT_EQ(blocks, 8);
    EXPECT_EQ(int(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, put_t<int>, 256, 100 * 1024)), 0);
    EXPECT_EQ(blocks, 2);
}

TEST(copies) {
    Device<int> a(64, 3), b(64, 0);
    EXPECT_EQ(int(cudaMemcpyAsync(b, a, 32 * sizeof(int), cudaMemcpyDeviceToDevice, nullptr)), 0);
    EXPECT_EQ(b[31], 3);
    EXPECT_EQ(b[32], 0);
    EXPECT_EQ(int(cudaMemsetAsync(b, 0xff, 8, nullptr)), 0);
    EXPECT_EQ(b[1], -1);
    EXPECT_EQ(b[2], 3);
    EXPECT_EQ(int(cudaMemcpy2DAsync(b, 16, a, 8, 8, 4, cudaMemcpyDefault)), 0);
    EXPECT_EQ(b[4], 3);
}

__global__ void large_shared(float* out) {
    extern __shared__ float s[];
    s[49999] = 1.5f;
    *out = s[49999];
}
TEST(more_dynamic_shared_memory_than_the_default) {
    Device<float> out(1);
    large_shared<<<1, 1, 200000>>>(out);
    EXPECT_EQ(int(cudaGetLastError()), int(cudaErrorInvalidValue));
    EXPECT_EQ(int(cudaFuncSetAttribute(large_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 200000)), 0);
    large_shared<<<1, 1, 200000>>>(out);
    EXPECT_OK();
    EXPECT_EQ(out[0], 1.5f);
}
