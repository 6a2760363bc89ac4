// Radix-2 FFT in Stockham's order: log2(N) passes, one thread per butterfly. The first reads the inputs, the last writes the
// outputs, and those between alternate between two pairs of fp32 arrays.

template <typename From, typename To>
__global__ void butterflies(const From* re, const From* im, To* to_re, To* to_im, int64_t N, int64_t stride) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N / 2) return;
    int64_t q = i % stride;
    int64_t p = i / stride;
    float a_re = static_cast<float>(re[i]), a_im = static_cast<float>(im[i]);
    float b_re = static_cast<float>(re[i + N / 2]), b_im = static_cast<float>(im[i + N / 2]);
    float sine, cosine;
    sincospif(-2.0f * p / (N / stride), &sine, &cosine);  // the argument is exact: the divisor is a power of two
    float d_re = a_re - b_re, d_im = a_im - b_im;
    int64_t at = q + 2 * stride * p;
    to_re[at] = static_cast<To>(a_re + b_re);
    to_im[at] = static_cast<To>(a_im + b_im);
    to_re[at + stride] = static_cast<To>(d_re * cosine - d_im * sine);
    to_im[at + stride] = static_cast<To>(d_re * sine + d_im * cosine);
}

__global__ void copy_one(const scalar_t* re, const scalar_t* im, scalar_t* Re, scalar_t* Im) {
    Re[0] = re[0];
    Im[0] = im[0];
}

template <typename From, typename To>
static void pass(const From* re, const From* im, To* to_re, To* to_im, int64_t N, int64_t stride, cudaStream_t stream) {
    const int threads = 256;
    const unsigned blocks = static_cast<unsigned>((N / 2 + threads - 1) / threads);
    butterflies<<<blocks, threads, 0, stream>>>(re, im, to_re, to_im, N, stride);
}

extern "C" size_t fft_workspace(int64_t N) {
    return 4 * N * sizeof(float);
}

extern "C" cudaError_t fft(const scalar_t* re, const scalar_t* im, scalar_t* Re, scalar_t* Im, int64_t N,
                           void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    float* now = static_cast<float*>(workspace);
    float* next = now + 2 * N;
    if (N == 1) {
        copy_one<<<1, 1, 0, stream>>>(re, im, Re, Im);
    } else if (N == 2) {
        pass(re, im, Re, Im, N, 1, stream);
    } else {
        pass(re, im, now, now + N, N, 1, stream);
        for (int64_t stride = 2; stride < N / 2; stride *= 2) {
            pass(now, now + N, next, next + N, N, stride, stream);
            float* before = now;
            now = next;
            next = before;
        }
        pass(now, now + N, Re, Im, N, N / 2, stream);
    }
    return cudaGetLastError();
}
