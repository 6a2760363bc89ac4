// Division by a number that the host knows, without dividing on the device.
#pragma once

#include <cstdint>

namespace msbench {

// n / d for 0 <= n < 2^31, 0 < d < 2^31, by one multiplication (Granlund and Montgomery 1994): with 2^(log - 1) < d <= 2^log the factor
// ceil(2^(31 + log) / d) is below 2^32, and its rounding adds less than 1/d to the quotient.
struct Divisor {
    uint32_t d, factor, shift;

    explicit Divisor(uint32_t d) : d(d), shift(31) {
        while ((uint64_t(1) << (shift - 31)) < d) ++shift;
        factor = uint32_t(((uint64_t(1) << shift) + d - 1) / d);
    }
    __device__ __forceinline__ uint32_t quotient(uint32_t n) const { return uint32_t((uint64_t(n) * factor) >> shift); }
};

}  // namespace msbench
