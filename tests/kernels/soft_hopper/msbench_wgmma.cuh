// wgmma for the emulator: what msbench_split_tiles.cuh uses of kernels/include/msbench_wgmma.cuh. A multiplication reads shared memory by its
// descriptors' fields and keeps fewer bits than the hardware; it is done when it is waited for, the latest moment at which it may read.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "msbench_mma.cuh"

namespace msbench {

constexpr int kGroupThreads = 128, kGroupRows = 64, kMmaK = 16;

inline uint64_t descriptor_cores(SharedAddress start, int k_bytes, int row_bytes) {
    return uint64_t(row_bytes >> 4) << 32 | uint64_t(k_bytes >> 4) << 16 | (start & 0x3ffff) >> 4;
}

struct SoftMma {
    float* sums;
    uint64_t a, b;
    bool keep, bf16;
    int columns = 128;
    const unsigned* rows = nullptr;  // A in registers
};
struct SoftPending {
    int count;
    SoftMma of[64];
};
inline SoftPending& soft_pending() {  // of this thread of the block
    static thread_local SoftPending* all = new SoftPending[1024]();
    return all[threadIdx.x];
}

inline float soft_truncated(double x) {
    const float nearest = float(x);
    return std::isfinite(nearest) && std::fabs(double(nearest)) > std::fabs(x) ? std::nextafterf(nearest, 0.0f) : nearest;
}

inline __attribute__((noinline)) void soft_multiply(const SoftMma& mma) {
    const auto* shared = static_cast<const unsigned char*>(msbench_cpu::dynamic_shared());
    const int own = threadIdx.x % kGroupThreads, warp = own / 32, lane = own % 32;
    const auto at = [&](uint64_t descriptor, int line, int k) {
        const auto field = [&](int shift) { return unsigned(descriptor >> shift & 0x3fff) << 4; };
        uint16_t bits;
        std::memcpy(&bits, shared + field(0) + line / 8 * field(32) + k / 8 * field(16) + line % 8 * 16 + k % 8 * 2, 2);
        return soft_number(bits, mma.bf16);
    };
    double a[2][kMmaK], b[kMmaK];
    for (int h = 0; h < 2; ++h) {
        for (int k = 0; k < kMmaK; ++k) {
            a[h][k] = mma.rows ? soft_of_lanes(mma.rows[h], mma.rows[2 + h], lane / 4 * 4, k, mma.bf16) : at(mma.a, warp * 16 + 8 * h + lane / 4, k);
        }
    }
    for (int column = 0; column < mma.columns / 4; ++column) {  // of the thread's
        for (int k = 0; k < kMmaK; ++k) b[k] = at(mma.b, column / 2 * 8 + lane % 4 * 2 + column % 2, k);
        for (int h = 0; h < 2; ++h) {
            float& sum = mma.sums[column / 2 * 4 + 2 * h + column % 2];
            double exact = mma.keep ? sum : 0.0;
            for (int k = 0; k < kMmaK; ++k) exact += a[h][k] * b[k];
            sum = soft_truncated(exact);
        }
    }
}

inline void mma_fence() {}
inline void mma_commit() {}
template <int kPending>
inline void mma_wait() {
    static_assert(kPending == 0);
    SoftPending& pending = soft_pending();
    for (int i = 0; i < pending.count; ++i) soft_multiply(pending.of[i]);
    pending.count = 0;
    __syncwarp();  // warps wait as one
}
template <int kCount>
inline void hold(float (&)[kCount]) {}
template <int kCount>
inline void hold(unsigned (&)[kCount]) {}

template <MmaType kType>
inline void multiply_add(float (&sums)[64], uint64_t a, uint64_t b, bool keep = true) {
    SoftPending& pending = soft_pending();
    if (pending.count == 64) __builtin_trap();
    pending.of[pending.count++] = {sums, a, b, keep, kType == MmaType::kBf16};
}

}  // namespace msbench
