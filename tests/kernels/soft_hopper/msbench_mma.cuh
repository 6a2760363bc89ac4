// mma.sync and ldmatrix for the emulator, exact but for the last rounding: what msbench_few_rows.cuh and msbench_tiny_product.cuh use of
// kernels/include/msbench_mma.cuh.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace msbench {

enum class MmaType { kBf16, kFp16 };

using SharedAddress = unsigned;

inline SharedAddress shared_address(const void* p) {
    return SharedAddress(__cvta_generic_to_shared(p));
}

inline double soft_number(uint16_t bits, bool bf16) {
    float x;
    if (bf16) {
        const uint32_t word = uint32_t(bits) << 16;
        std::memcpy(&x, &word, 4);
        return x;
    }
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return float(half);
}

// Number k of 16 that four neighbouring lanes hold in pairs, lane q numbers 2 q, 2 q + 1 in `first` and 8 further in `second`.
inline double soft_of_lanes(unsigned first, unsigned second, int lane0, int k, bool bf16) {
    const unsigned word = __shfl_sync(0xffffffffu, k < 8 ? first : second, lane0 + k % 8 / 2);
    return soft_number(uint16_t(word >> k % 2 * 16), bf16);
}

// The 16 bytes that lane `lane` has given the address of.
inline void soft_row(uint16_t (&row)[8], SharedAddress address, int lane) {
    const auto* shared = static_cast<const unsigned char*>(msbench_cpu::dynamic_shared());
    std::memcpy(row, shared + __shfl_sync(0xffffffffu, address, lane), 16);
}

inline void load_matrices(unsigned (&v)[4], SharedAddress address) {
    for (int m = 0; m < 4; ++m) {
        uint16_t row[8];
        soft_row(row, address, m * 8 + threadIdx.x % 32 / 4);
        std::memcpy(&v[m], row + threadIdx.x % 4 * 2, 4);
    }
}

template <MmaType kType>
inline void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const int lane = threadIdx.x % 32;
    double sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = d[i];
    for (int k = 0; k < 16; ++k) {
        for (int i = 0; i < 4; ++i) {
            const double x = soft_of_lanes(a[i / 2], a[2 + i / 2], lane / 4 * 4, k, kType == MmaType::kBf16);
            sums[i] += x * soft_of_lanes(b0, b1, (lane % 4 * 2 + i % 2) * 4, k, kType == MmaType::kBf16);
        }
    }
    for (int i = 0; i < 4; ++i) d[i] = float(sums[i]);
}

}  // namespace msbench
