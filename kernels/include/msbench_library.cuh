// What the library baselines share: statuses into CUDA errors, a stopwatch for choosing algorithms, aligned copies.
//
// A baseline may set itself up on the first call with a new shape (handles, plans, trying algorithms), which is never timed and
// never captured into a graph. After that a call only enqueues work on its stream. What it chose then, it may have chosen while
// others used the device, or for other data of that shape: so it chooses anew on the next call after `msbench_choose_anew`,
// which is called before a shape is timed, on a device that is otherwise idle.
//
// From there to the next such call, an array of integers at an address stays as it is. Who uses that to prepare for it, on the
// first call with the address, says so by its name, and by `msbench_untimed_ns` how long that took.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>

namespace msbench {

// Says when something has to be chosen: on first use, and whenever all choices of this process have been called old since.
class Due {
   public:
    static unsigned& round() {
        static unsigned round = 1;
        return round;
    }

    // Whether it has to be chosen now; then it is taken as done.
    bool take() {
        const bool due = chosen_ != round();
        chosen_ = round();
        return due;
    }

    // Whether what is to be timed has begun, so that arrays of integers stay as they are.
    static bool promised() { return round() > 1; }

   private:
    unsigned chosen_ = 0;
};

// What preparing for the arrays of the last call took, in nanoseconds, 0 where nothing is prepared. It is in no time of a call.
inline double& untimed_ns() {
    static double ns = 0;
    return ns;
}

// Turns a library's status, of which 0 is success, into a CUDA error. The first failure of a process is printed to stderr.
template <typename Status>
cudaError_t outcome(Status status, const char* (*text)(Status), const char* call) {
    if (static_cast<int>(status) == 0) return cudaSuccess;
    static bool printed = false;
    if (!printed) std::fprintf(stderr, "%s: %s (%d)\n", call, text(status), static_cast<int>(status));
    printed = true;
    return cudaErrorUnknown;
}

// Returns the status of a library's call from the calling function if it is no success.
#define MSBENCH_LIBRARY(text, call) \
    if (cudaError_t failure = msbench::outcome(call, text, #call); failure != cudaSuccess) return failure

// The same for a call that gives a cudaError_t.
#define MSBENCH_CUDA(call) \
    if (cudaError_t failure = (call); failure != cudaSuccess) return failure

// Puts work on a stream that leaves nothing of others in the L2 cache and takes long enough for a launch to be enqueued behind it,
// or several of them for a call of many launches. So what follows is timed cold, as most of the published figures are, and without
// the host's part in it. Where there is no memory for that, nothing happens.
class Flush {
   public:
    Flush() {
        int device = 0, cache = 0;
        const bool known = cudaGetDevice(&device) == cudaSuccess &&
                           cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device) == cudaSuccess;
        bytes_ = known ? size_t{4} * cache : 0;
        if (bytes_ && cudaMalloc(&memory_, bytes_) != cudaSuccess) memory_ = nullptr;
        cudaGetLastError();
    }
    Flush(const Flush&) = delete;
    ~Flush() { cudaFree(memory_); }

    cudaError_t operator()(cudaStream_t stream) const {
        return memory_ ? cudaMemsetAsync(memory_, 0, bytes_, stream) : cudaSuccess;
    }

   private:
    void* memory_ = nullptr;
    size_t bytes_ = 0;
};

// What a flush takes at least: 240 MB at the 4.8 TB/s of an H200's memory.
constexpr double kFlushMilliseconds = 0.05;
constexpr int kMostFlushes = 20;

// What loading a kernel may take where other processes do the same.
constexpr float kLoadingMilliseconds = 1000;

// Milliseconds of the fastest cold run of `launch` after one to warm up, of two or, while they are short, of up to ten, since
// others may be using the device; of one that took much longer than `best`, the time of what it has to beat, no more. Infinity
// if `launch` fails, or if warming up takes over ten times `best`. Synchronises. Who tries many has one `flush` for all, since
// making it takes longer than a short run.
template <typename Launch>
float milliseconds(cudaStream_t stream, Launch launch, float best = std::numeric_limits<float>::infinity(),
                   const Flush& flush = Flush()) {
    const float failed = std::numeric_limits<float>::infinity();
    cudaEvent_t start = nullptr, stop = nullptr;
    float fastest = failed;
    bool good = cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&stop) == cudaSuccess;
    int flushes = 1;  // as many as the last run's launch took the host
    for (int run = 0; good && (run < 3 || (run <= 10 && run * fastest < 1)); ++run) {
        float time = failed;
        for (int i = 0; good && i < flushes; ++i) good = flush(stream) == cudaSuccess;
        good = good && cudaEventRecord(start, stream) == cudaSuccess;
        const auto enqueuing = std::chrono::steady_clock::now();
        good = good && launch() == cudaSuccess && cudaEventRecord(stop, stream) == cudaSuccess;
        const std::chrono::duration<double, std::milli> host = std::chrono::steady_clock::now() - enqueuing;
        flushes = 1 + static_cast<int>(std::min<double>(host.count() / kFlushMilliseconds, kMostFlushes));
        good = good && cudaEventSynchronize(stop) == cudaSuccess && cudaEventElapsedTime(&time, start, stop) == cudaSuccess;
        if (run > 0 && time < fastest) fastest = time;
        good = good && (run > 0 || time < 10 * best + kLoadingMilliseconds);
        if (run > (fastest < 1 ? 3 : 0) && fastest > 1.5f * best) break;
    }
    if (start) cudaEventDestroy(start);
    if (stop) cudaEventDestroy(stop);
    cudaGetLastError();  // an algorithm that does not apply must not fail the next launch
    return good ? fastest : failed;
}

// The largest power of two, at most 16, that divides an address. No load is wider than 16 bytes.
inline uint32_t alignment(const void* pointer) {
    const uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | 16;
    return static_cast<uint32_t>(bits & -bits);
}

// Arrays for a library that wants them aligned to 16 bytes: those that are, as they are; others by copies in `workspace`.
//
//     Staging staging(workspace, stream);
//     library_call(staging.input(x, bytes), staging.output(y, bytes));
//     return staging.finish();
class Staging {
   public:
    Staging(void* workspace, cudaStream_t stream) : free_(static_cast<char*>(workspace)), stream_(stream) {}

    // Workspace for staging an array of this size.
    static size_t room(size_t bytes) { return (bytes + 255) / 256 * 256; }

    template <typename T>
    const T* input(const T* array, size_t bytes) {
        if (alignment(array) >= 16) return array;
        void* copy = take(bytes);
        note(cudaMemcpyAsync(copy, array, bytes, cudaMemcpyDeviceToDevice, stream_));
        return static_cast<const T*>(copy);
    }

    // One output, which `finish` copies back to where it belongs.
    template <typename T>
    T* output(T* array, size_t bytes) {
        if (alignment(array) >= 16) return array;
        target_ = array;
        staged_ = take(bytes);
        bytes_ = bytes;
        return static_cast<T*>(staged_);
    }

    cudaError_t finish() {
        if (staged_) note(cudaMemcpyAsync(target_, staged_, bytes_, cudaMemcpyDeviceToDevice, stream_));
        return error_ == cudaSuccess ? cudaGetLastError() : error_;
    }

   private:
    void* take(size_t bytes) {
        void* taken = free_;
        free_ += room(bytes);
        return taken;
    }

    void note(cudaError_t error) {
        if (error_ == cudaSuccess) error_ = error;
    }

    char* free_;
    cudaStream_t stream_;
    cudaError_t error_ = cudaSuccess;
    void* target_ = nullptr;
    void* staged_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace msbench

// Calls every choice of this process old.
extern "C" __attribute__((used, visibility("default"))) void msbench_choose_anew() {
    ++msbench::Due::round();
    msbench::untimed_ns() = 0;
}

extern "C" __attribute__((used, visibility("default"))) double msbench_untimed_ns() { return msbench::untimed_ns(); }
