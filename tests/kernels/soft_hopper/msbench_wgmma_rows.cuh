// wgmma with A from registers for the emulator: see msbench_wgmma.cuh. Registers are read when it is waited for, so that they have to be kept.
#pragma once

#include "msbench_wgmma.cuh"

namespace msbench {

template <MmaType kType = MmaType::kBf16, int kCount>
inline void multiply_add_rows(float (&sums)[kCount], const unsigned (&a)[4], uint64_t b, bool keep) {
    SoftPending& pending = soft_pending();
    if (pending.count == 64) __builtin_trap();
    pending.of[pending.count++] = {sums, 0, b, keep, kType == MmaType::kBf16, 2 * kCount, a};
}

}  // namespace msbench
