// Kernels whose only purpose is to move as many bytes as the device can; ceilings.py times them. Compiled at run time.

// One read and one write of 16 bytes for each of `count` float4.
extern "C" __global__ void copy(const float4* __restrict__ in, float4* __restrict__ out, long long count) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) out[i] = in[i];
}

// Reads only; the sum keeps the compiler from dropping the loads, and is written where it is improbable.
extern "C" __global__ void read(const float4* __restrict__ in, float* out, long long count) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    float sum = 0.0f;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {
        const float4 a = in[i], b = in[i + stride], c = in[i + 2 * stride], d = in[i + 3 * stride];
        sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w + c.x + c.y + c.z + c.w + d.x + d.y + d.z + d.w;
    }
    for (; i < count; i += stride) {
        const float4 a = in[i];
        sum += a.x + a.y + a.z + a.w;
    }
    if (sum == 0.123456f) *out = sum;
}

extern "C" __global__ void write(float4* out, float value, long long count) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    const float4 filled = make_float4(value, value, value, value);
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) out[i] = filled;
}

// Copies to and fro past the L1 caches: with buffers that fit into L2, all traffic after the first pass is L2's.
extern "C" __global__ void copy_in_l2(float4* a, float4* b, long long count, int passes) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (int pass = 0; pass < passes; ++pass) {
        const float4* from = pass % 2 ? b : a;
        float4* to = pass % 2 ? a : b;
        for (long long i = first; i < count; i += stride) __stcg(&to[i], __ldcg(&from[i]));
    }
}
