// y = A·x.
//
// Bound: A's bytes, one launch. A team of kTeam threads has kRows rows at once, so that what it reads of x serves all of them: a packet
// of x comes from L1 or L2 for each packet of A, and L2 can't deliver as much again as the memory does. A team loads kHeld packets of
// every row before it uses the first. Short rows go to warps, one each; where rows don't begin on 16 bytes, elements go one by one.
//
// Measured (H200, 2026-11-23) at 32768 x 32768: 915 us in fp32 and 460 in bf16, 4.7 TB/s. Of 1 to 8 rows and teams of 128 to 1024, pairs
// of rows and teams of 256 were the fastest or within 2 % of it from N = 4096 on; 8 rows lose 5 to 40 %.

#include "msbench_packets.cuh"
#include "msbench_reduce.cuh"

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int kWarpThreads = 128;  // of a block whose warps are teams

template <int kWidth>
__device__ float product(const msbench::Group<float, kWidth>& a, const msbench::Group<float, kWidth>& x, float sum) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum = fmaf(a.lane[k], x.lane[k], sum);
    return sum;
}

// Rows of `groups` of kWidth.
template <int kWidth, int kTeam, int kRows, int kHeld>
__global__ void __launch_bounds__(kTeam == 32 ? kWarpThreads : kTeam)
    team_rows(const scalar_t* A, const scalar_t* x, scalar_t* y, int M, int groups) {
    constexpr int kTeams = kTeam == 32 ? kWarpThreads / 32 : 1;
    const int member = threadIdx.x % kTeam, first = (static_cast<int>(blockIdx.x) * kTeams + threadIdx.x / kTeam) * kRows;
    float sum[kRows] = {};
    for (int begin = member; begin < groups; begin += kHeld * kTeam) {
        msbench::Group<scalar_t, kWidth> a[kRows][kHeld], from_x[kHeld];
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            const int at = begin + i * kTeam;
            if (at >= groups) break;
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                const int64_t row = min(first + r, M - 1);  // rows beyond the last are computed and not stored
                a[r][i] = msbench::load_group_once<kWidth>(A, row * groups + at);
            }
            from_x[i] = msbench::load_group<kWidth>(x, at);
        }
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (begin + i * kTeam >= groups) break;
            const auto factors = msbench::operands(from_x[i]);
#pragma unroll
            for (int r = 0; r < kRows; ++r) sum[r] = product(msbench::operands(a[r][i]), factors, sum[r]);
        }
    }
    msbench::block_sums<kTeam>(sum);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        if (member == 0 && first + r < M) y[first + r] = msbench::from_float<scalar_t>(sum[r]);
    }
}

template <int kWidth, int kTeam, int kRows, int kHeld>
cudaError_t launch(const scalar_t* A, const scalar_t* x, scalar_t* y, int64_t M, int64_t groups, cudaStream_t stream) {
    constexpr int kThreads = kTeam == 32 ? kWarpThreads : kTeam, kBlockRows = kThreads / kTeam * kRows;
    const auto blocks = static_cast<unsigned>(msbench::ceil_div(M, kBlockRows));
    team_rows<kWidth, kTeam, kRows, kHeld>
        <<<blocks, kThreads, 0, stream>>>(A, x, y, static_cast<int>(M), static_cast<int>(groups));
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t matrix_vector_mul(const scalar_t* A, const scalar_t* x, scalar_t* y, int64_t M, int64_t N, void*,
                                         size_t, cudaStream_t stream) {
    const int64_t groups = N / kPacket;
    if (N % kPacket != 0 || !msbench::packets_allowed(A, x)) {
        return N <= 1024 ? launch<1, 32, 1, 8>(A, x, y, M, N, stream) : launch<1, 256, 2, 8>(A, x, y, M, N, stream);
    }
    if (groups <= 64) return launch<kPacket, 32, 1, 2>(A, x, y, M, groups, stream);
    if (groups <= 128) return launch<kPacket, 32, 1, 4>(A, x, y, M, groups, stream);
    if (groups <= 256) return launch<kPacket, 32, 1, 8>(A, x, y, M, groups, stream);
    return launch<kPacket, 256, 2, 4>(A, x, y, M, groups, stream);
}
