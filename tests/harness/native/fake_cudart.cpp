// A CUDA runtime without a GPU, preloaded into the worker so that native/runner.cu runs as it was compiled: streams are threads that
// take commands in order, device memory is host memory, IPC handles name files. Device code is not run, except for the runner's own
// kernels that matter here, which are done by name. A stream takes 1024 commands; then enqueuing waits, as on a GPU.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Command = std::function<void()>;

// As in runner/kernels.cuh.
struct Swaps {
    unsigned char* first[16];
    unsigned char* second[16];
    unsigned bytes[16];
};

struct Variable {
    unsigned char* data;
    unsigned char* saved;
    size_t bytes;
};

struct Stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Command> queue;
    bool running = false;
    struct Graph* captured = nullptr;
    std::thread thread{[this] { work(); }};

    void work() {
        for (;;) {
            std::unique_lock lock(mutex);
            changed.wait(lock, [this] { return !queue.empty(); });
            Command command = std::move(queue.front());
            queue.pop_front();
            running = true;
            lock.unlock();
            command();
            lock.lock();
            running = false;
            changed.notify_all();
        }
    }
    void put(Command command) {
        if (captured) return capture(std::move(command));
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return queue.size() < 1024; });
        queue.push_back(std::move(command));
        changed.notify_all();
    }
    void capture(Command command);
    bool idle() {
        std::unique_lock lock(mutex);
        return queue.empty() && !running;
    }
    void drain() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return queue.empty() && !running; });
    }
};

// Commands in a row; which of them start before the one before has ended.
struct Graph {
    std::vector<Command> commands;
    std::vector<bool> early;
};
thread_local bool next_starts_early = false;

void Stream::capture(Command command) {
    captured->commands.push_back(std::move(command));
    captured->early.push_back(next_starts_early);
    next_starts_early = false;
}

std::vector<Stream*> streams;
std::map<void*, size_t> mapped;
std::map<cudaEvent_t, Stream*> recorded;
std::map<const void*, std::string> kernels;
std::atomic<int> sticky{0};
thread_local int last_error = 0;

int fail(int code) {
    if (code) last_error = code;
    return code;
}
// The default stream waits for all others.
Stream* default_stream() {
    static Stream* const one = new Stream;
    for (Stream* stream : streams) stream->drain();
    return one;
}
Stream* own_stream() {
    static Stream* const one = streams.emplace_back(new Stream);
    return one;
}
Stream* of(cudaStream_t stream) { return stream == cudaStreamPerThread ? own_stream() : stream ? reinterpret_cast<Stream*>(stream) : default_stream(); }
double now_ms() { return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count(); }

cudaError_t finish() {
    default_stream()->drain();
    return static_cast<cudaError_t>(fail(sticky));
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) { return reinterpret_cast<void**>(1); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    kernels[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void* stream);
thread_local void* configured = nullptr;
thread_local dim3 configured_grid;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3, size_t, void* stream) {
    configured_grid = grid;
    configured = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3*, size_t*, void* stream) {
    *grid = configured_grid;
    *static_cast<void**>(stream) = configured;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(entry));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3, void** arguments, size_t, cudaStream_t stream) {
    const std::string& name = kernels[kernel];
    if (name.find("hold_stream") != std::string::npos) {
        auto* flags = *static_cast<volatile unsigned**>(arguments[0]);
        const unsigned ticket = *static_cast<unsigned*>(arguments[1]);
        const auto limit = std::chrono::nanoseconds(*static_cast<unsigned long long*>(arguments[2]));
        of(stream)->put([=] {
            const auto start = Clock::now();
            while (flags[0] < ticket) {
                if (Clock::now() - start > limit) {
                    flags[1] = ticket;
                    return;
                }
                std::this_thread::sleep_for(std::chrono::microseconds(20));
            }
        });
    } else if (name.find("count_changed") != std::string::npos) {
        auto* data = *static_cast<const unsigned char**>(arguments[0]);
        const size_t bytes = *static_cast<size_t*>(arguments[1]);
        const unsigned char filled = *static_cast<unsigned char*>(arguments[2]);
        auto* count = *static_cast<unsigned long long**>(arguments[3]);
        of(stream)->put([=] {
            for (size_t i = 0; i < bytes; ++i) *count += data[i] != filled;
        });
    } else if (name.find("fingerprint") != std::string::npos) {
        auto* data = *static_cast<const unsigned char**>(arguments[0]);
        const size_t bytes = *static_cast<size_t*>(arguments[1]);
        auto* sum = *static_cast<unsigned long long**>(arguments[2]);
        of(stream)->put([=] {
            for (size_t i = 0; i < bytes; ++i) *sum += (i + 1) * data[i];
        });
    } else if (name.find("put_back") != std::string::npos) {
        auto* variables = *static_cast<const Variable**>(arguments[0]);
        const int count = *static_cast<int*>(arguments[1]);
        of(stream)->put([=] {
            for (int i = 0; i < count; ++i) std::memcpy(variables[i].data, variables[i].saved, variables[i].bytes);
        });
    } else if (name.find("count_unlike") != std::string::npos) {
        auto* variables = *static_cast<const Variable**>(arguments[0]);
        const int count = *static_cast<int*>(arguments[1]);
        auto* sum = *static_cast<unsigned long long**>(arguments[2]);
        of(stream)->put([=] {
            for (int i = 0; i < count; ++i) *sum += std::memcmp(variables[i].data, variables[i].saved, variables[i].bytes) != 0;
        });
    } else if (name.find("stir") != std::string::npos) {
        const Swaps swaps = *static_cast<Swaps*>(arguments[0]);
        of(stream)->put([=] {
            for (unsigned i = 0; i < grid.x; ++i)
                std::swap_ranges(swaps.first[i], swaps.first[i] + swaps.bytes[i], swaps.second[i]);
        });
    } else {
        of(stream)->put([] {});
    }
    return cudaSuccess;
}

// A version's one variable on the device, "table", and the driver's functions that find it.
unsigned char fake_table[16];
CUresult fake_module_of(CUmodule* module, CUfunction) {
    *module = reinterpret_cast<CUmodule>(fake_table);
    return CUDA_SUCCESS;
}
CUresult fake_variable(CUdeviceptr* data, size_t* bytes, CUmodule module, const char* name) {
    if (std::string(name) != "table") return CUDA_ERROR_NOT_FOUND;
    *data = reinterpret_cast<CUdeviceptr>(module);
    *bytes = sizeof(fake_table);
    return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* told) {
    const std::string asked = name;
    *found = asked == "cuFuncGetModule"     ? reinterpret_cast<void*>(fake_module_of)
             : asked == "cuModuleGetGlobal" ? reinterpret_cast<void*>(fake_variable)
                                            : nullptr;
    *told = *found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
    *function = static_cast<cudaFunction_t>(const_cast<void*>(symbol));
    return cudaSuccess;
}

// The device is lost while the file that FAKE_LOST names is there.
cudaError_t cudaSetDevice(int) {
    const char* lost = std::getenv("FAKE_LOST");
    return lost && access(lost, F_OK) == 0 ? cudaErrorDevicesUnavailable : cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    std::memset(static_cast<void*>(properties), 0, sizeof(*properties));
    properties->multiProcessorCount = 4;
    properties->l2CacheSize = 4096;
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    streams.push_back(new Stream);
    *stream = reinterpret_cast<cudaStream_t>(streams.back());
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    of(stream)->drain();
    return static_cast<cudaError_t>(fail(sticky));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return of(stream)->idle() ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaDeviceSynchronize() { return finish(); }
cudaError_t cudaGetLastError() {
    const int code = sticky ? sticky.load() : last_error;
    last_error = 0;
    return static_cast<cudaError_t>(code);
}
cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(last_error); }
const char* cudaGetErrorName(cudaError_t code) { return code == 700 ? "cudaErrorIllegalAddress" : "cudaErrorFake"; }
const char* cudaGetErrorString(cudaError_t code) { return code == 700 ? "an illegal memory access was encountered" : "fake"; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = reinterpret_cast<cudaEvent_t>(new double(0));
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    of(stream)->put([=] { *reinterpret_cast<double*>(event) = now_ms(); });
    recorded[event] = of(stream);
    return cudaSuccess;
}
// Waits for what was recorded last, which is what precedes the wait in the event's stream if nothing was enqueued in between.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    auto* over = new std::atomic<bool>(false);
    recorded.at(event)->put([=] { *over = true; });
    of(stream)->put([=] {
        while (!*over) std::this_thread::yield();
    });
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
    *ms = float(*reinterpret_cast<double*>(end) - *reinterpret_cast<double*>(begin));
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    if (bytes > (size_t(1) << 40)) return static_cast<cudaError_t>(fail(cudaErrorMemoryAllocation));
    *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
    finish();
    std::free(pointer);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return cudaMalloc(pointer, bytes); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    finish();
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    finish();
    std::memset(to, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    of(stream)->put([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    of(stream)->put([=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    of(stream)->put([=] { function(data); });
    return cudaSuccess;
}
bool fake_is_capturing(cudaStream_t stream) { return of(stream)->captured != nullptr; }
void fake_set_sticky(int code) { sticky = code; }
void fake_set_last_error(int code) { last_error = code; }
void fake_next_starts_early() { next_starts_early = true; }

// A handle is the path of a file and the size of the mapping behind it.
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned) {
    const int fd = open(handle.reserved, O_RDWR);
    if (fd < 0) return cudaErrorInvalidResourceHandle;
    const off_t bytes = lseek(fd, 0, SEEK_END);
    *pointer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    mapped[*pointer] = bytes;
    close(fd);
    return *pointer == MAP_FAILED ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
    munmap(pointer, mapped[pointer]);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    of(stream)->drain();
    of(stream)->captured = new Graph;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = reinterpret_cast<cudaGraph_t>(of(stream)->captured);
    of(stream)->captured = nullptr;
    return cudaSuccess;
}
cudaGraphNode_t node(size_t number) { return reinterpret_cast<cudaGraphNode_t>(number + 1); }
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    *count = reinterpret_cast<Graph*>(graph)->commands.size();
    for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = node(i);
    return cudaSuccess;
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data, size_t* count) {
    const Graph& g = *reinterpret_cast<Graph*>(graph);
    if (!data) return cudaErrorLossyQuery;
    *count = std::min(*count, g.commands.empty() ? 0 : g.commands.size() - 1);
    for (size_t i = 0; i < *count; ++i) {
        from[i] = node(i);
        to[i] = node(i + 1);
        data[i] = {};
        data[i].type = g.early[i + 1] ? cudaGraphDependencyTypeProgrammatic : cudaGraphDependencyTypeDefault;
    }
    return cudaSuccess;
}
// Every command passes for a kernel of the candidate's own.
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType* type) {
    *type = cudaGraphNodeTypeKernel;
    return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t, cudaKernelNodeParams*) { return cudaSuccess; }
cudaError_t cudaFuncGetName(const char** name, const void*) {
    *name = "msbench_launch";
    return cudaSuccess;
}
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t, cudaMemcpy3DParms*) { return cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
std::atomic<size_t> persisting{0};
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t value) {
    persisting = value;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
    *value = persisting;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache*) { return cudaSuccess; }
cudaError_t cudaStreamGetAttribute(cudaStream_t, cudaStreamAttrID, cudaStreamAttrValue*) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long) {
    *instance = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
    of(stream)->put([=] {
        for (auto& command : reinterpret_cast<Graph*>(instance)->commands) command();
    });
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
