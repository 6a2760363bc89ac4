// The k largest values by k searches for a maximum: each takes the first element, in the order of the output, of those that
// come after the one found before. Blocks search parts of x, then one block searches what they found.

constexpr int kBlocks = 256;
constexpr int kThreads = 256;

struct Found {
    float value;
    int32_t index;  // -1: nothing
};

// Whether a comes before b in the output: NaN, then the larger value, then the lower index; nothing comes last.
__device__ bool before(Found a, Found b) {
    if (a.index < 0 || b.index < 0) return a.index >= 0;
    if (isnan(a.value) != isnan(b.value)) return isnan(a.value);
    if (a.value < b.value || a.value > b.value) return a.value > b.value;
    return a.index < b.index;
}

// The first of what all threads of a block hold, in thread 0.
__device__ Found first_of_block(Found own) {
    __shared__ Found found[kThreads];
    found[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && before(found[threadIdx.x + half], found[threadIdx.x])) {
            found[threadIdx.x] = found[threadIdx.x + half];
        }
        __syncthreads();
    }
    return found[0];
}

__global__ void search_parts(const scalar_t* x, const scalar_t* values, const int32_t* indices, Found* parts, int round,
                             int64_t N) {
    Found previous{0, -1};
    if (round > 0) previous = Found{static_cast<float>(values[round - 1]), indices[round - 1]};
    Found first{0, -1};
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < N; i += gridDim.x * kThreads) {
        Found own{static_cast<float>(x[i]), static_cast<int32_t>(i)};
        if ((round == 0 || before(previous, own)) && before(own, first)) first = own;
    }
    first = first_of_block(first);
    if (threadIdx.x == 0) parts[blockIdx.x] = first;
}

__global__ void search_found(const Found* parts, int count, scalar_t* values, int32_t* indices, int round) {
    Found first{0, -1};
    if (threadIdx.x < count) first = parts[threadIdx.x];
    first = first_of_block(first);
    if (threadIdx.x == 0) {
        values[round] = static_cast<scalar_t>(first.value);
        indices[round] = first.index;
    }
}

extern "C" size_t top_k_workspace(int64_t N, int64_t k) {
    return kBlocks * sizeof(Found);
}

extern "C" cudaError_t top_k(const scalar_t* x, scalar_t* values, int32_t* indices, int64_t N, int64_t k,
                             void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    Found* parts = static_cast<Found*>(workspace);
    const int64_t wanted = (N + 8 * kThreads - 1) / (8 * kThreads);
    const int blocks = wanted < kBlocks ? wanted : kBlocks;
    for (int round = 0; round < k; ++round) {
        search_parts<<<blocks, kThreads, 0, stream>>>(x, values, indices, parts, round, N);
        search_found<<<1, kThreads, 0, stream>>>(parts, blocks, values, indices, round);
    }
    return cudaGetLastError();
}
