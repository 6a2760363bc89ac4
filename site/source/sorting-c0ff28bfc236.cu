// Merge sort from the bottom up: each thread sorts a few neighbours, then runs are merged in pairs until one is left. In a
// merge each thread writes a few outputs, and a binary search tells it where in the two runs they begin.

constexpr int kThreads = 256;
constexpr int kRun = 8;  // elements for each thread

// Whether a comes before b: ascending, NaN last.
__device__ bool before(scalar_t a, scalar_t b) {
    float x = static_cast<float>(a);
    float y = static_cast<float>(b);
    return x < y || (isnan(y) && !isnan(x));
}

// Insertion sort of each thread's own elements.
__global__ void sort_runs(const scalar_t* x, scalar_t* to, int64_t N) {
    int64_t start = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * kRun;
    scalar_t run[kRun];
    for (int i = 0; i < kRun && start + i < N; ++i) {
        scalar_t value = x[start + i];
        int place = i;
        for (; place > 0 && before(value, run[place - 1]); --place) run[place] = run[place - 1];
        run[place] = value;
    }
    for (int i = 0; i < kRun && start + i < N; ++i) to[start + i] = run[i];
}

__global__ void merge_runs(const scalar_t* from, scalar_t* to, int64_t length, int64_t N) {
    int64_t start = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * kRun;
    if (start >= N) return;
    int64_t pair = start / (2 * length) * (2 * length);
    int64_t a_length = N - pair < length ? N - pair : length;
    int64_t b_length = N - pair - a_length < length ? N - pair - a_length : length;
    const scalar_t* a = from + pair;
    const scalar_t* b = a + a_length;

    // How many of the outputs before this thread's own come from a. Of equal elements a's come first.
    int64_t outputs = start - pair;
    int64_t low = outputs > b_length ? outputs - b_length : 0;
    int64_t high = outputs < a_length ? outputs : a_length;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (before(b[outputs - 1 - middle], a[middle])) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }

    int64_t i = low;
    int64_t j = outputs - low;
    for (int64_t output = start; output < start + kRun && output < N; ++output) {
        bool take_a = j == b_length || (i < a_length && !before(b[j], a[i]));
        to[output] = take_a ? a[i++] : b[j++];
    }
}

extern "C" size_t sorting_workspace(int64_t N) {
    return N * sizeof(scalar_t);
}

extern "C" cudaError_t sorting(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    int merges = 0;
    while ((int64_t{kRun} << merges) < N) ++merges;
    const int64_t blocks = (N + kThreads * kRun - 1) / (kThreads * kRun);
    // Two buffers take turns so that the last pass writes y.
    scalar_t* to = merges % 2 ? static_cast<scalar_t*>(workspace) : y;
    scalar_t* other = merges % 2 ? y : static_cast<scalar_t*>(workspace);
    sort_runs<<<blocks, kThreads, 0, stream>>>(x, to, N);
    for (int merge = 0; merge < merges; ++merge) {
        merge_runs<<<blocks, kThreads, 0, stream>>>(to, other, int64_t{kRun} << merge, N);
        scalar_t* merged = other;
        other = to;
        to = merged;
    }
    return cudaGetLastError();
}
