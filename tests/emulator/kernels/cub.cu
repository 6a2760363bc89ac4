// Block- and warp-wide CUB against loops.
#include "testing.cuh"

#include <cub/cub.cuh>
#include <cuda/functional>

template <int threads, int items>
__global__ void block_collectives(const int* in, int* out, int valid) {
    typedef cub::BlockLoad<int, threads, items, cub::BLOCK_LOAD_TRANSPOSE> Load;
    typedef cub::BlockScan<int, threads> Scan;
    typedef cub::BlockReduce<int, threads, cub::BLOCK_REDUCE_RAKING> Reduce;
    typedef cub::BlockStore<int, threads, items, cub::BLOCK_STORE_WARP_TRANSPOSE> Store;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
        typename Store::TempStorage store;
    } temp;
    const int base = blockIdx.x * threads * items;
    int x[items], sums[items], total;
    Load(temp.load).Load(in + base, x, valid - base, 0);
    __syncthreads();
    Scan(temp.scan).InclusiveSum(x, sums, total);
    __syncthreads();
    int largest = Reduce(temp.reduce).Reduce(x, cuda::maximum<>{});
    __syncthreads();
    int first = Reduce(temp.reduce).Sum(x[0]);
    __syncthreads();
    Store(temp.store).Store(out + base, sums, valid - base);
    if (threadIdx.x == 0) out[valid + blockIdx.x * 3] = total, out[valid + blockIdx.x * 3 + 1] = largest, out[valid + blockIdx.x * 3 + 2] = first;
}
TEST(load_scan_reduce_store) {
    const int n = 1000, tile = 128 * 3, blocks = 3;
    Device<int> in(n), out(n + blocks * 3);
    for (int i = 0; i < n; ++i) in[i] = i * 7 % 31 - 5;
    block_collectives<128, 3><<<blocks, 128>>>(in, out, n);
    EXPECT_OK();
    for (int b = 0; b < blocks; ++b) {
        int sum = 0, largest = 0, first = 0;
        for (int i = b * tile; i < std::min(n, b * tile + tile); ++i) {
            sum += in[i], largest = std::max(largest, in[i]), first += i % 3 == 0 ? in[i] : 0;
            EXPECT_EQ(out[i], sum);
        }
        EXPECT_EQ(out[n + b * 3], sum);
        EXPECT_EQ(out[n + b * 3 + 1], largest);
        EXPECT_EQ(out[n + b * 3 + 2], first);
    }
}

struct Prefix {
    int running;
    __device__ int operator()(int aggregate) { return running += aggregate, running - aggregate; }
};
__global__ void scans(int* out) {
    typedef cub::BlockScan<int, 64, cub::BLOCK_SCAN_WARP_SCANS> Scan;
    __shared__ typename Scan::TempStorage temp;
    const int i = threadIdx.x;
    int *o = out + i * 6, aggregate;
    Scan(temp).ExclusiveSum(i, o[0]);
    __syncthreads();
    Scan(temp).ExclusiveSum(1, o[1], aggregate);
    o[1] += 1000 * aggregate;
    __syncthreads();
    Scan(temp).ExclusiveScan(i % 7, o[2], -1, cuda::maximum<>{});
    __syncthreads();
    Scan(temp).InclusiveScan(i ^ 5, o[3], cuda::minimum<>{});
    __syncthreads();
    Prefix prefix{100};
    Scan(temp).ExclusiveSum(2, o[4], prefix);
    __syncthreads();
    Scan(temp).InclusiveSum(1, o[5], prefix);
}
TEST(scans_of_single_items) {
    Device<int> out(64 * 6);
    scans<<<1, 64>>>(out);
    EXPECT_OK();
    int largest = -1, least = 100;
    for (int i = 0; i < 64; ++i) {
        int* o = out + i * 6;
        least = std::min(least, i ^ 5);
        EXPECT_EQ(o[0], i * (i - 1) / 2);
        EXPECT_EQ(o[1], 64000 + i);
        EXPECT_EQ(o[2], largest);
        EXPECT_EQ(o[3], least);
        EXPECT_EQ(o[4], 100 + 2 * i);
        EXPECT_EQ(o[5], 228 + i + 1);
        largest = std::max(largest, i % 7);
    }
}

__global__ void warp_collectives(int* out) {
    typedef cub::WarpReduce<int> Reduce;
    typedef cub::WarpReduce<int, 8> Reduce8;
    typedef cub::WarpScan<int> Scan;
    __shared__ typename Reduce::TempStorage reduce[2];
    __shared__ typename Reduce8::TempStorage reduce8[8];
    __shared__ typename Scan::TempStorage scan[2];
    const int i = threadIdx.x, w = i / 32, l = i % 32;
    int *o = out + i * 8, aggregate;
    int sum = Reduce(reduce[w]).Sum(i);
    int eight = Reduce8(reduce8[i / 8]).Reduce(i, cuda::maximum<>{});
    int some = Reduce(reduce[w]).Sum(1, 20);
    o[0] = l == 0 ? sum : 0, o[1] = i % 8 == 0 ? eight : 0, o[2] = l == 0 ? some : 0;
    Scan(scan[w]).InclusiveSum(1, o[3]);
    Scan(scan[w]).ExclusiveSum(l, o[4], aggregate);
    o[5] = aggregate;
    Scan(scan[w]).ExclusiveScan(l, o[6], 100, cuda::std::plus<>{});
    o[7] = Reduce(reduce[w]).HeadSegmentedSum(1, l % 10 == 0);
}
TEST(warp_reduce_and_scan) {
    Device<int> out(64 * 8);
    warp_collectives<<<1, 64>>>(out);
    EXPECT_OK();
    for (int i = 0; i < 64; ++i) {
        int *o = out + i * 8, l = i % 32;
        EXPECT_EQ(o[0], l ? 0 : 496 + i / 32 * 1024);
        EXPECT_EQ(o[1], i % 8 ? 0 : i + 7);
        EXPECT_EQ(o[2], l ? 0 : 20);
        EXPECT_EQ(o[3], l + 1);
        EXPECT_EQ(o[4], l * (l - 1) / 2);
        EXPECT_EQ(o[5], 496);
        EXPECT_EQ(o[6], 100 + l * (l - 1) / 2);
        if (l % 10 == 0) EXPECT_EQ(o[7], l == 30 ? 2 : 10);
    }
}

__global__ void exchange_and_sort(int* striped, int* blocked, float* keys, int* values) {
    typedef cub::BlockExchange<int, 32, 4> Exchange;
    typedef cub::BlockRadixSort<float, 32, 4, int> Sort;
    __shared__ typename Exchange::TempStorage a;
    __shared__ typename Sort::TempStorage b;
    int x[4], v[4];
    float k[4];
    for (int i = 0; i < 4; ++i) x[i] = threadIdx.x * 4 + i, v[i] = x[i], k[i] = keys[x[i]];
    Exchange(a).BlockedToStriped(x, x);
    for (int i = 0; i < 4; ++i) striped[threadIdx.x * 4 + i] = x[i];
    __syncthreads();
    Exchange(a).StripedToBlocked(x, x);
    for (int i = 0; i < 4; ++i) blocked[threadIdx.x * 4 + i] = x[i];
    Sort(b).SortDescending(k, v);
    for (int i = 0; i < 4; ++i) keys[threadIdx.x * 4 + i] = k[i], values[threadIdx.x * 4 + i] = v[i];
}
TEST(block_exchange_and_radix_sort) {
    Device<int> striped(128), blocked(128), values(128);
    Device<float> keys(128);
    for (int i = 0; i < 128; ++i) keys[i] = i * 37 % 128 - 64;
    exchange_and_sort<<<1, 32>>>(striped, blocked, keys, values);
    EXPECT_OK();
    for (int i = 0; i < 128; ++i) {
        EXPECT_EQ(striped[i], i % 4 * 32 + i / 4);
        EXPECT_EQ(blocked[i], i);
        EXPECT_EQ(keys[i], 63.0f - i);
        EXPECT_EQ(values[i] * 37 % 128, 127 - i);
    }
}
