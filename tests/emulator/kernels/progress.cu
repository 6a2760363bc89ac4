// Atomics between blocks that run at the same time, and threads that wait for others by reading memory.
#include "testing.cuh"

__global__ void all_atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(i, 1), atomicSub(i + 1, 2), atomicMax(i + 2, t), atomicMin(i + 3, -t);
    atomicAdd(u, 2u), atomicInc(u + 1, 9u), atomicDec(u + 2, 9u), atomicOr(u + 3, 1u << t % 32), atomicAnd(u + 4, ~(1u << t % 16));
    atomicXor(u + 5, 3u);
    atomicAdd(l, 1ull << 33), atomicMax(l + 1, (unsigned long long)t << 32);
    atomicAdd(f, 1.0f), atomicAdd(d, 0.5), atomicAdd_block(f + 1, 2.0f);
    unsigned long long seen = l[2], assumed;
    do {
        assumed = seen;
        seen = atomicCAS(l + 2, assumed, assumed + 3);
    } while (seen != assumed);
    if (atomicExch(i + 4, t) == -1) atomicAdd(i + 5, 1);
}
TEST(atomics_of_all_types) {
    Device<int> i(6);
    Device<unsigned> u(6);
    Device<unsigned long long> l(3);
    Device<float> f(2);
    Device<double> d(1);
    i[4] = -1, u[4] = ~0u;
    const int n = 40 * 128;
    all_atomics<<<40, 128>>>(i, u, l, f, d);
    EXPECT_OK();
    EXPECT_EQ(i[0], n);
    EXPECT_EQ(i[1], -2 * n);
    EXPECT_EQ(i[2], n - 1);
    EXPECT_EQ(i[3], 1 - n);
    EXPECT_EQ(i[5], 1);
    EXPECT_EQ(u[0], 2u * n);
    EXPECT_EQ(u[1], n % 10);
    EXPECT_EQ(u[2], (10 - n % 10) % 10);
    EXPECT_EQ(u[3], ~0u);
    EXPECT_EQ(u[4], 0xffff0000u);
    EXPECT_EQ(u[5], 0u);
    EXPECT_EQ(l[0], (unsigned long long)n << 33);
    EXPECT_EQ(l[1], (unsigned long long)(n - 1) << 32);
    EXPECT_EQ(l[2], 3ull * n);
    EXPECT_EQ(f[0], float(n));
    EXPECT_EQ(f[1], 2.0f * n);
    EXPECT_EQ(d[0], 0.5 * n);
}

__global__ void vector_atomics(float2* two, float4* four) {
    atomicAdd(two, make_float2(1, 2));
    if (atomicAdd_system(four, make_float4(1, 2, 3, 4)).w < 0) atomicAdd_block(four + 1, make_float4(1, 1, 1, 1));
}
TEST(atomics_of_vectors) {
    Device<float2> two(1);
    Device<float4> four(2);
    four[0].w = -8;
    vector_atomics<<<40, 128>>>(two, four);
    EXPECT_OK();
    const float n = 40 * 128;
    EXPECT_EQ(two[0].x, n);
    EXPECT_EQ(two[0].y, 2 * n);
    EXPECT_EQ(four[0].x, n);
    EXPECT_EQ(four[0].z, 3 * n);
    EXPECT_EQ(four[0].w, 4 * n - 8);
    EXPECT_EQ(four[1].y, 2.0f);  // by those that saw -8 and -4
}

// Decoupled look-back (Merrill and Garland 2016): every block waits for the one before it.
__global__ void look_back(const int* in, int* out, volatile int* inclusive, volatile int* ready) {
    __shared__ int s[128], before;
    int i = blockIdx.x * 128 + threadIdx.x;
    s[threadIdx.x] = in[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 128; ++k) s[k] += s[k - 1];
        before = 0;
        if (blockIdx.x > 0) {
            while (ready[blockIdx.x - 1] == 0) {
            }
            __threadfence();
            before = inclusive[blockIdx.x - 1];
        }
        inclusive[blockIdx.x] = before + s[127];
        __threadfence();
        ready[blockIdx.x] = 1;
    }
    __syncthreads();
    out[i] = before + s[threadIdx.x];
}
TEST(blocks_that_wait_for_earlier_ones) {
    Device<int> in(128 * 300, 1), out(128 * 300), sums(300), ready(300, 0);
    look_back<<<300, 128>>>(in, out, sums, ready);
    EXPECT_OK();
    for (int i = 0; i < 128 * 300; ++i) EXPECT_EQ(out[i], i + 1);
}

// A grid barrier by hand: right on a GPU, where 16 small blocks are resident together.
__global__ void own_grid_barrier(unsigned* arrived, int* out) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile unsigned*)arrived < gridDim.x) {
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = *arrived;
}
TEST(blocks_that_wait_for_later_ones) {
    Device<unsigned> arrived(1);
    Device<int> out(16);
    own_grid_barrier<<<16, 32>>>(arrived, out);
    EXPECT_OK();
    for (int b = 0; b < 16; ++b) EXPECT_EQ(out[b], 16);
}

__global__ void flag_between_warps(int* out) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x / 32 == 0) {
        while (flag == 0) {
        }
        out[threadIdx.x] = flag;
    } else if (threadIdx.x == 63) {
        flag = 5;
    }
}
TEST(threads_that_read_a_flag_of_their_own_block) {
    Device<int> out(32);
    flag_between_warps<<<1, 64>>>(out);
    EXPECT_OK();
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 5);
}

__global__ void chain(int* turn, int* out) {
    while (atomicAdd(turn, 0) != int(blockDim.x - 1 - threadIdx.x)) __nanosleep(20);
    out[threadIdx.x] = atomicAdd(turn, 1);
}
TEST(threads_that_take_turns) {
    Device<int> turn(1), out(100);
    chain<<<1, 100>>>(turn, out);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(out[i], 99 - i);
}

__global__ void spin_lock(int* lock, int* plain) {
    for (int done = 0; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *plain = *plain + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = 1;
        }
    }
}
TEST(spin_locks) {
    Device<int> lock(1), plain(1);
    spin_lock<<<20, 64>>>(lock, plain);
    EXPECT_EQ(plain[0], 1280);
}

__global__ void long_threads(double* out) {
    double x = threadIdx.x;
    for (int i = 0; i < 300000; ++i) x = x * 0.999999 + 1e-6;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
TEST(long_threads_are_interrupted_without_harm) {
    Device<double> out(4 * 64);
    long_threads<<<4, 64>>>(out);
    EXPECT_OK();
    for (int t = 0; t < 64; ++t) {
        double x = t;
        for (int i = 0; i < 300000; ++i) x = x * 0.999999 + 1e-6;
        EXPECT_EQ(out[t], x);
        EXPECT_EQ(out[192 + t], x);
    }
}
