// Candidates for the fake runtime: y = a x, by kernels that are functions of the host. What else they do, the scalar `mode` says.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

extern "C" void fake_set_sticky(int code);
extern "C" void fake_set_last_error(int code);

enum Mode { kRight, kReturns, kUnreported, kSticky, kSynchronizes, kEscapes, kOverruns, kCrashes, kHangs, kHugeWorkspace, kForks, kConnects, kWrites, kLocal, kKeeps, kEarly, kChained, kTires, kKnows, kLeaves, kIdle, kTable, kCounter, kHostWork, kElsewhere, kWindow, kForeign, kOneSet, kUnsupported, kRefused, kTwoLimits };

// What stands for a fat binary: a header of a part without contents.
__attribute__((section(".nv_fatbin"), used)) static const unsigned long long fat_binary[2] = {0x00100001BA55ED50ull, 0};

extern "C" {

unsigned char table[16];
size_t table_bytes = sizeof table;

struct Work {
    const float* x;
    float* y;
    unsigned char* workspace;
    int64_t workspace_bytes;
    int64_t n;
    float a;
    int mode, spin_us;
};

size_t scale_sizes[] = {sizeof(Work), 0};
void scale(void** arguments) {
    const Work* w = static_cast<const Work*>(arguments[0]);
    if (w->spin_us) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(w->spin_us);
        while (std::chrono::steady_clock::now() < end) {
        }
    }
    if (w->mode == kSticky) return fake_set_sticky(700);
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
    if (w->mode == kTable) ++table[3];
    if (w->mode == kCounter) {  // which resets itself
        w->y[0] += table[3]++;
        table[3] = 0;
    }
    if (w->mode == kLeaves) w->workspace[w->workspace_bytes + 600] = 1;
    if (w->mode == kKeeps) {
        w->y[0] = w->workspace[0] == 1 && w->workspace[1] == 2 ? 1 : 0;
        w->workspace[0] = 1, w->workspace[1] = 2;
    }
    if (w->mode == kOverruns) w->workspace[w->workspace_bytes] = 1;
}

size_t foreign_sizes[] = {0};  // which the fat binary does not hold
void foreign(void**) {}

int msbench_launch(void* const* arrays, const double* scalars, const int64_t* dims, void* workspace, size_t workspace_bytes,
                   void* opaque) {
    const int mode = int(scalars[1]);
    const auto stream = static_cast<cudaStream_t>(opaque);
    if (mode == kReturns) return 9;
    if (mode == kUnsupported) return 801;
    if (mode == kIdle) return 0;
    if (mode == kUnreported) {
        fake_set_last_error(9);
        return 0;
    }
    if (mode == kCrashes) std::raise(SIGSEGV);
    if (mode == kForks && fork() == 0) {
        setsid();
        sleep(300);
    }
    if (mode == kConnects) socket(AF_INET, SOCK_STREAM, 0);
    if (mode == kWrites && open("fake-written", O_CREAT | O_WRONLY, 0600) >= 0) return 9;
    if (mode == kLocal && (socket(AF_UNIX, SOCK_STREAM, 0) < 0 || open("/dev/null", O_WRONLY) < 0)) return 9;
    if (mode == kSynchronizes) return cudaStreamSynchronize(stream);
    static float kept[1];
    if (mode == kHostWork) return cudaMemcpyAsync(arrays[1], kept, sizeof kept, cudaMemcpyDefault, stream);
    if (mode == kElsewhere) return cudaMemsetAsync(kept, 0, sizeof kept, stream);
    if (mode == kEscapes) return cudaLaunchHostFunc(stream, [](void*) {}, nullptr);
    static const void* const first = arrays[0];
    Work work{static_cast<const float*>(arrays[0]), static_cast<float*>(arrays[1]), static_cast<unsigned char*>(workspace),
              int64_t(workspace_bytes), mode == kOneSet && arrays[0] != first ? 0 : dims[0], float(scalars[0]), mode, int(scalars[2])};
    void* arguments[] = {&work};
    cudaLaunchAttribute attribute{};
    attribute.id = mode == kWindow ? cudaLaunchAttributeAccessPolicyWindow : cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    if (mode == kWindow) attribute.val.accessPolicyWindow = {arrays[0], 4, 1, cudaAccessPropertyPersisting, cudaAccessPropertyNormal};
    cudaLaunchConfig_t config{};
    config.gridDim = config.blockDim = dim3(1, 1, 1);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = mode == kEarly || mode == kChained || mode == kWindow;
    if (mode == kChained) cudaMemsetAsync(arrays[1], 0, sizeof(float), stream);
    if (mode == kRefused) {  // by the runtime, which also ends the capture; the launcher tells nothing
        config.dynamicSmemBytes = 1 << 20;
        const int code = cudaLaunchKernelExC(&config, reinterpret_cast<void*>(scale), arguments);
        cudaStreamSynchronize(stream);
        fake_set_last_error(code);
        return 0;
    }
    if (mode == kTwoLimits) {  // of shared memory, the larger one first
        cudaFuncSetAttribute(reinterpret_cast<void*>(scale), cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10);
        config.dynamicSmemBytes = 100 << 10;
        if (const int code = cudaLaunchKernelExC(&config, reinterpret_cast<void*>(scale), arguments)) return code;
        cudaFuncSetAttribute(reinterpret_cast<void*>(scale), cudaFuncAttributeMaxDynamicSharedMemorySize, 60 << 10);
        config.dynamicSmemBytes = 60 << 10;
    }
    return cudaLaunchKernelExC(&config, mode == kForeign ? reinterpret_cast<void*>(foreign) : reinterpret_cast<void*>(scale), arguments);
}

size_t msbench_workspace(const double* scalars, const int64_t* dims) {
    const int mode = int(scalars[1]);
    return mode == kHugeWorkspace ? size_t(1) << 45 : mode == kOverruns || mode == kKeeps || mode == kLeaves ? size_t(dims[0]) : 0;
}

double msbench_untimed_ns() { return 1500; }

}  // extern "C"
