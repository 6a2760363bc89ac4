// Ends the process.
#include <cuda_runtime.h>
#include <stdlib.h>

extern "C" void row_tanh_optimized(float* out, const float* input, const int N) {
    abort();
}
