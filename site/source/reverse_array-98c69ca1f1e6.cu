// Array reversal by thrust::reverse_copy, which under this policy does not wait for the stream. It takes no memory.
#include <thrust/execution_policy.h>
#include <thrust/reverse.h>
#include <thrust/system_error.h>

extern "C" cudaError_t reverse_array(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                                     cudaStream_t stream) {
    try {
        thrust::reverse_copy(thrust::cuda::par_nosync.on(stream), x, x + N, y);
    } catch (const thrust::system_error& error) {
        return static_cast<cudaError_t>(error.code().value());
    }
    return cudaGetLastError();
}
