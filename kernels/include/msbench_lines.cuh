// fp32 matrices by lines: what a product sums along, a row of A or a column of B, wherever its elements lie.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace msbench {

// Element k of line n lies at data[n / inner * outer_step + n % inner * line_step + k / run * run_step + k % run * k_step].
struct Lines {
    const float* data;
    int count, K;
    int inner, run;
    int64_t outer_step, line_step, run_step, k_step;

    __device__ __forceinline__ const float* at(int line, int k) const {
        const int64_t outer = inner == count ? line * line_step : line / inner * outer_step + line % inner * line_step;
        return data + outer + (run == K ? k * k_step : k / run * run_step + k % run * k_step);
    }
    __device__ __forceinline__ float value(int line, int k) const { return *at(line, k); }
    // Whether lines are neighbours in memory, and not their elements.
    __host__ __device__ bool across() const { return line_step == 1 && k_step != 1; }
    // Whether groups of four elements, along k or across lines, can be loaded at once.
    bool vectors() const {
        const int64_t steps = across() ? k_step | inner | count : line_step | run | run_step | outer_step | K;
        return steps % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
    }
};

// x becomes element k0 and the next ones of a line, zeros from `end` on; of lines without a division for each, which takes long to compile, too.
template <int kCount>
__device__ __forceinline__ void take_values(float (&x)[kCount], const Lines& of, int line, int k0, int end) {
    const float* from = of.at(line, k0);
    int in_run = k0 % of.run;
    const int64_t to_next = of.run_step - (of.run - 1) * of.k_step;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        x[i] = k0 + i < end ? *from : 0.0f;
        const bool is_last = ++in_run == of.run;
        from += is_last ? to_next : of.k_step;
        in_run = is_last ? 0 : in_run;
    }
}
template <class Of, int kCount>
__device__ __forceinline__ void take_values(float (&x)[kCount], const Of& of, int line, int k0, int end) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = k0 + i < end ? of.value(line, k0 + i) : 0.0f;
}

// The rows of a row-major matrix [rows, K], and the columns of one [K, columns].
inline Lines rows_of(const float* matrix, int64_t rows, int64_t K) {
    return {matrix, int(rows), int(K), int(rows), int(K), 0, K, 0, 1};
}
inline Lines columns_of(const float* matrix, int64_t K, int64_t columns) {
    return {matrix, int(columns), int(K), int(columns), int(K), 0, 1, 0, columns};
}

}  // namespace msbench
