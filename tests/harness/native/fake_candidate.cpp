// Candidates for the fake runtime: y = a x, done by the stream's thread. What else it does, the scalar `mode` says.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

extern "C" void fake_set_sticky(int code);
extern "C" void fake_set_last_error(int code);
extern "C" void fake_next_starts_early();
extern "C" unsigned char fake_table[16];
extern "C" bool fake_is_capturing(cudaStream_t stream);

enum Mode { kRight, kReturns, kUnreported, kSticky, kSynchronizes, kEscapes, kOverruns, kCrashes, kHangs, kHugeWorkspace, kForks, kConnects, kWrites, kLocal, kSettings, kRounding, kKeeps, kEarly, kChained, kTires, kKnows, kLeaves, kIdle, kTable, kFinds, kUncaptured, kLater, kOneSet, kForksLater };

struct Work {
    const float* x;
    float* y;
    float a;
    int64_t n;
    unsigned char* workspace;
    size_t workspace_bytes;
    int mode;
    int spin_us;
};

static void work(void* data) {
    Work* w = static_cast<Work*>(data);
    if (w->spin_us) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(w->spin_us);
        while (std::chrono::steady_clock::now() < end) {
        }
    }
    if (w->mode == kHangs) std::this_thread::sleep_for(std::chrono::hours(1));
    static int calls = 0;
    if (w->mode == kTires && calls++ % 64) return;
    if (w->mode == kKnows) {  // the values of a row of calls, in whatever order
        static std::map<const float*, std::vector<float>> known;
        std::vector<float> x(w->x, w->x + w->n);
        std::sort(x.begin(), x.end());
        if (known.emplace(w->x, x).first->second == x) return;
    }
    for (int64_t i = 0; i < w->n; ++i) w->y[i] = w->a * w->x[i];
    if (w->mode == kFinds && fake_table[3]) w->y[0] = 77;
    if (w->mode == kTable || w->mode == kFinds) ++fake_table[3];
    if (w->mode == kLeaves) w->workspace[w->workspace_bytes + 600] = 1;
    if (w->mode == kKeeps) w->y[0] = w->workspace[0] = w->workspace[0] == 0xFF ? 1 : w->workspace[0] + 1;
    if (w->mode == kOverruns) w->workspace[w->workspace_bytes] = 1;
}

static cudaStream_t side_stream() {
    static const cudaStream_t side = [] {
        cudaStream_t created;
        cudaStreamCreate(&created);
        return created;
    }();
    return side;
}

extern "C" int msbench_launch(void* const* arrays, const double* scalars, const int64_t* dims, void* workspace,
                              size_t workspace_bytes, void* stream) {
    const int mode = int(scalars[1]);
    if (mode == kReturns) return 9;
    if (mode == kIdle) return 0;
    if (mode == kUncaptured && fake_is_capturing(static_cast<cudaStream_t>(stream))) return 9;
    if (mode == kUnreported) {
        fake_set_last_error(9);
        return 0;
    }
    if (mode == kCrashes) std::raise(SIGSEGV);
    if (mode == kSettings) cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 4096);
    if (mode == kRounding) std::fesetround(FE_UPWARD);
    if (mode == kSticky) fake_set_sticky(700);
    if (mode == kForks && fork() == 0) {
        setsid();
        sleep(300);
    }
    if (mode == kConnects) socket(AF_INET, SOCK_STREAM, 0);
    if (mode == kWrites && open("fake-written", O_CREAT | O_WRONLY, 0600) >= 0) return 9;
    if (mode == kLocal && (socket(AF_UNIX, SOCK_STREAM, 0) < 0 || open("/dev/null", O_WRONLY) < 0)) return 9;
    // One record a call that is never freed: commands of a captured graph run again.
    Work* w = new Work{static_cast<const float*>(arrays[0]), static_cast<float*>(arrays[1]), float(scalars[0]), dims[0],
                       static_cast<unsigned char*>(workspace), workspace_bytes, mode, int(scalars[2])};
    static const void* const first = arrays[0];
    if (mode == kOneSet && arrays[0] != first) return 0;
    if (mode == kEscapes)
        work(w);
    else if (mode == kLater)  // once its turn has come, on a stream that nothing joins
        cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), [](void* data) { cudaLaunchHostFunc(side_stream(), work, data); }, w);
    else if (static int calls = 0; mode == kForksLater && !fake_is_capturing(static_cast<cudaStream_t>(stream)) && ++calls > 24) {
        static cudaEvent_t turn = [] {
            cudaEvent_t created;
            cudaEventCreate(&created);
            return created;
        }();
        cudaEventRecord(turn, static_cast<cudaStream_t>(stream));
        cudaStreamWaitEvent(cudaStreamPerThread, turn, 0);
        cudaLaunchHostFunc(cudaStreamPerThread, work, w);
        cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, nullptr);
    } else {
        if (mode == kChained) cudaMemsetAsync(arrays[1], 0, sizeof(float), static_cast<cudaStream_t>(stream));
        if (mode == kEarly || mode == kChained) fake_next_starts_early();
        cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), work, w);
    }
    if (mode == kSynchronizes) cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
    return 0;
}

extern "C" size_t msbench_workspace(const double* scalars, const int64_t* dims) {
    return int(scalars[1]) == kHugeWorkspace ? size_t(1) << 45 : int(scalars[1]) == kOverruns || int(scalars[1]) == kKeeps || int(scalars[1]) == kLeaves ? size_t(dims[0]) : 0;
}

extern "C" double msbench_untimed_ns() { return 1500; }
