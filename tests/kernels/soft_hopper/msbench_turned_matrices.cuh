// ldmatrix that turns, for the emulator: see kernels/include/msbench_turned_matrices.cuh.
#pragma once

#include "msbench_mma.cuh"

namespace msbench {

inline void load_turned(unsigned (&v)[4], SharedAddress address) {
    for (int m = 0; m < 4; ++m) {
        uint16_t first[8], second[8];
        soft_row(first, address, m * 8 + threadIdx.x % 4 * 2);
        soft_row(second, address, m * 8 + threadIdx.x % 4 * 2 + 1);
        v[m] = first[threadIdx.x % 32 / 4] | unsigned(second[threadIdx.x % 32 / 4]) << 16;
    }
}

}  // namespace msbench
