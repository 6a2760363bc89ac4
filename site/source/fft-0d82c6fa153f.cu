// FFT by cuFFT. It takes complex numbers as pairs, so that small kernels interleave the two input arrays before and separate
// the result after it; in bf16 they convert as well, and cuFFT computes in fp32.
//
// Two plans are made for a size: an ordinary one, and one whose kernels cuFFT links just in time for it ("patient"), where it
// can. The first launch tries both. Their work area is the launcher's workspace.
// msbench: link cufft
#include <cufft.h>

#include <algorithm>
#include <map>

#include "msbench_library.cuh"

#define CUFFT(call) MSBENCH_LIBRARY(text, call)

constexpr int kThreads = 256;

struct Plan {
    cufftHandle transform = 0;
    size_t bytes = 0;
    bool made = false;
};

struct Plans {
    Plan candidates[2];
    Plan* chosen = nullptr;

    size_t bytes() const { return std::max(candidates[0].bytes, candidates[1].bytes); }
};

static const char* text(cufftResult) {
    return "a status of cuFFT";
}

__global__ void interleave(const scalar_t* re, const scalar_t* im, float2* pairs, int64_t N) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < N) pairs[i] = make_float2(static_cast<float>(re[i]), static_cast<float>(im[i]));
}

__global__ void separate(const float2* pairs, scalar_t* re, scalar_t* im, int64_t N) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    re[i] = static_cast<scalar_t>(pairs[i].x);
    im[i] = static_cast<scalar_t>(pairs[i].y);
}

static cudaError_t make(Plan& plan, int64_t N, bool patient) {
    CUFFT(cufftCreate(&plan.transform));
    CUFFT(cufftSetAutoAllocation(plan.transform, 0));
    if (patient) CUFFT(cufftSetPlanPropertyInt64(plan.transform, NVFFT_PLAN_PROPERTY_INT64_PATIENT_JIT, 1));
    CUFFT(cufftMakePlan1d(plan.transform, static_cast<int>(N), CUFFT_C2C, 1, &plan.bytes));
    plan.made = true;
    return cudaSuccess;
}

// The plans for a size, made when it is met for the first time. A transform of one number needs none.
static Plans& plans_for(int64_t N) {
    static std::map<int64_t, Plans> known;
    const auto [place, is_new] = known.try_emplace(N);
    if (is_new && N > 1) {
        for (bool patient : {false, true}) {
            Plan& plan = place->second.candidates[patient];
            if (make(plan, N, patient) != cudaSuccess) plan.bytes = 0;
        }
    }
    return place->second;
}

static cudaError_t run(const Plan& plan, float2* from, float2* to, void* area, cudaStream_t stream) {
    CUFFT(cufftSetStream(plan.transform, stream));
    CUFFT(cufftSetWorkArea(plan.transform, area));
    CUFFT(cufftExecC2C(plan.transform, from, to, CUFFT_FORWARD));
    return cudaSuccess;
}

// Tries the plans, on whatever the workspace holds.
static cudaError_t choose(Plans& plans, float2* from, float2* to, void* area, cudaStream_t stream) {
    float best = std::numeric_limits<float>::infinity();
    for (Plan& plan : plans.candidates) {
        if (!plan.made) continue;
        const float time = msbench::milliseconds(stream, [&] { return run(plan, from, to, area, stream); });
        if (time < best) {
            best = time;
            plans.chosen = &plan;
        }
    }
    return plans.chosen ? cudaSuccess : cudaErrorNotSupported;
}

extern "C" size_t fft_workspace(int64_t N) {
    return 2 * msbench::Staging::room(N * sizeof(float2)) + plans_for(N).bytes();
}

extern "C" cudaError_t fft(const scalar_t* re, const scalar_t* im, scalar_t* Re, scalar_t* Im, int64_t N,
                           void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    char* free = static_cast<char*>(workspace);
    const size_t room = msbench::Staging::room(N * sizeof(float2));
    float2* from = reinterpret_cast<float2*>(free);
    float2* to = reinterpret_cast<float2*>(free + room);
    void* area = free + 2 * room;
    const unsigned blocks = static_cast<unsigned>((N + kThreads - 1) / kThreads);

    if (N > 1) {
        Plans& plans = plans_for(N);
        if (!plans.chosen) MSBENCH_CUDA(choose(plans, from, to, area, stream));
        interleave<<<blocks, kThreads, 0, stream>>>(re, im, from, N);
        MSBENCH_CUDA(run(*plans.chosen, from, to, area, stream));
    } else {
        interleave<<<blocks, kThreads, 0, stream>>>(re, im, to, N);
    }
    separate<<<blocks, kThreads, 0, stream>>>(to, Re, Im, N);
    return cudaGetLastError();
}
