// A CUDA runtime and driver without a GPU, preloaded into workers and recorders so that native/runner.cu runs as it was compiled:
// streams are threads that take commands in order, device memory is host memory, IPC handles name files. Device code is functions
// of the host: those of the library that FAKE_KERNELS names, which stands for the fat binary of a version, and the runner's own
// kernels that matter here, which are done by name. A stream takes 1024 commands; then enqueuing waits, as on a GPU.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
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
#include <utility>
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

struct Node;

struct Stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Command> queue;
    bool running = false;
    struct Graph* captured = nullptr;
    bool invalid = false;  // its capture
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
        if (captured) return capture_host();
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return queue.size() < 1024; });
        queue.push_back(std::move(command));
        changed.notify_all();
    }
    void capture(Node* node);
    void capture_host();
    void drain() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return queue.empty() && !running; });
    }
};

// A kernel: a function of the host, whose parameters have these sizes.
struct Function {
    std::string name;
    std::vector<size_t> sizes;
    std::function<void(void**, dim3)> run;
    int most_shared = 0;  // dynamic shared memory that a launch may have
};

// An operation of a captured call.
struct Node {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_HOST;
    Function* function = nullptr;
    unsigned shared = 0;
    dim3 grid, block;
    std::vector<std::vector<unsigned char>> bytes;
    std::vector<void*> parameters;
    std::vector<CUlaunchAttribute> attributes;
    CUDA_MEMSET_NODE_PARAMS set{};
    CUDA_MEMCPY3D copy{};

    bool has(CUlaunchAttributeID id) const {
        return std::any_of(attributes.begin(), attributes.end(), [&](auto& attribute) { return attribute.id == id; });
    }
};

struct Graph {
    std::vector<Node*> nodes;
};

void Stream::capture_host() { capture(new Node); }
void Stream::capture(Node* node) { captured->nodes.push_back(node); }

std::vector<Stream*> streams;
std::map<void*, size_t> mapped;
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
Stream* of(cudaStream_t stream) { return stream ? reinterpret_cast<Stream*>(stream) : default_stream(); }
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

// The runner's own kernels, by name.
std::function<void(void**, dim3)> own_kernel(const std::string& name) {
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (is("hold_stream"))
        return [](void** a, dim3) {
            auto* flags = *static_cast<volatile unsigned**>(a[0]);
            const unsigned ticket = *static_cast<unsigned*>(a[1]);
            const auto limit = std::chrono::nanoseconds(*static_cast<unsigned long long*>(a[2]));
            const auto start = Clock::now();
            while (flags[0] < ticket) {
                if (Clock::now() - start > limit) {
                    flags[1] = ticket;
                    return;
                }
                std::this_thread::sleep_for(std::chrono::microseconds(20));
            }
        };
    if (is("count_changed"))
        return [](void** a, dim3) {
            auto* data = *static_cast<const unsigned char**>(a[0]);
            for (size_t i = 0; i < *static_cast<size_t*>(a[1]); ++i)
                **static_cast<unsigned long long**>(a[3]) += data[i] != *static_cast<unsigned char*>(a[2]);
        };
    if (is("put_back"))
        return [](void** a, dim3) {
            auto* variables = *static_cast<const Variable**>(a[0]);
            for (int i = 0; i < *static_cast<int*>(a[1]); ++i) std::memcpy(variables[i].data, variables[i].saved, variables[i].bytes);
        };
    if (is("count_unlike"))
        return [](void** a, dim3) {
            auto* variables = *static_cast<const Variable**>(a[0]);
            for (int i = 0; i < *static_cast<int*>(a[1]); ++i)
                **static_cast<unsigned long long**>(a[2]) += std::memcmp(variables[i].data, variables[i].saved, variables[i].bytes) != 0;
        };
    if (is("redraw"))
        return [](void** a, dim3) {
            std::memset(*static_cast<unsigned char**>(a[0]), *static_cast<unsigned char*>(a[2]), *static_cast<size_t*>(a[1]));
        };
    if (is("permute"))
        return [](void** a, dim3 grid) {
            const Swaps& swaps = *static_cast<Swaps*>(a[0]);
            for (unsigned i = 0; i < grid.x; ++i) std::swap_ranges(swaps.first[i], swaps.first[i] + swaps.bytes[i], swaps.second[i]);
        };
    return [](void**, dim3) {};
}

// The sizes of the parameters of those of them that do something.
std::vector<size_t> own_sizes(const std::string& name) {
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (is("hold_stream")) return {8, 4, 8};
    if (is("count_changed")) return {8, 8, 1, 8};
    if (is("put_back")) return {8, 4};
    if (is("count_unlike")) return {8, 4, 8};
    if (is("redraw")) return {8, 8, 8};
    if (is("permute")) return {sizeof(Swaps)};
    return {};
}

Function* function_in(void* library, const char* name) {
    static std::map<std::string, Function*> known;
    auto* run = reinterpret_cast<void (*)(void**)>(dlsym(library, name));
    auto* sizes = static_cast<const size_t*>(dlsym(library, (std::string(name) + "_sizes").c_str()));
    if (!run || !sizes) return nullptr;
    Function*& made = known[name];
    if (!made) {
        made = new Function{name, {}, [run](void** a, dim3) { run(a); }};
        for (; *sizes; ++sizes) made->sizes.push_back(*sizes);
    }
    return made;
}

// Of a kernel's address on the host.
Function* function_of(const void* host) {
    static std::map<const void*, Function*> known;
    Function*& made = known[host];
    Dl_info info{};
    if (!made && kernels.count(host)) made = new Function{kernels[host], own_sizes(kernels[host]), own_kernel(kernels[host])};
    if (!made && dladdr(host, &info) && info.dli_sname) made = function_in(dlopen(std::getenv("FAKE_KERNELS"), RTLD_NOW), info.dli_sname);
    return made;
}

// Parameters are copied, as a launch does.
cudaError_t launch(Function* function, dim3 grid, dim3 block, void** arguments, const CUlaunchAttribute* attributes, unsigned count, cudaStream_t stream,
                   unsigned shared = 0) {
    if (int(shared) > function->most_shared) return cudaErrorInvalidValue;
    auto* node = new Node;
    node->shared = shared;
    node->type = CU_GRAPH_NODE_TYPE_KERNEL;
    node->function = function;
    node->grid = grid;
    node->block = block;
    for (size_t i = 0; i < function->sizes.size(); ++i) {
        auto* data = static_cast<const unsigned char*>(arguments[i]);
        node->bytes.emplace_back(data, data + function->sizes[i]);
    }
    for (auto& bytes : node->bytes) node->parameters.push_back(bytes.data());
    node->attributes.assign(attributes, attributes + count);
    if (of(stream)->captured) {
        of(stream)->capture(node);
        return cudaSuccess;
    }
    of(stream)->put([node] {
        node->function->run(node->parameters.data(), node->grid);
        delete node;
    });
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t stream) {
    return launch(function_of(kernel), grid, block, arguments, nullptr, 0, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** arguments) {
    return launch(function_of(host), config->gridDim, config->blockDim, arguments,
                  reinterpret_cast<const CUlaunchAttribute*>(config->attrs), config->numAttrs, config->stream,
                  unsigned(config->dynamicSmemBytes));
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
    *function = reinterpret_cast<cudaFunction_t>(function_of(symbol));
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && function_of(host)) function_of(host)->most_shared = value;
    return cudaSuccess;
}

// ---------------------------------------------------------------- the driver

CUresult fake_cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    const bool is_limit = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    return *value = is_limit ? reinterpret_cast<Function*>(function)->most_shared : 0, CUDA_SUCCESS;
}
CUresult fake_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) reinterpret_cast<Function*>(function)->most_shared = value;
    return CUDA_SUCCESS;
}
CUresult fake_cuFuncGetName(const char** name, CUfunction function) {
    *name = reinterpret_cast<Function*>(function)->name.c_str();
    return CUDA_SUCCESS;
}
CUresult fake_cuFuncGetParamInfo(CUfunction function, size_t number, size_t* offset, size_t* size) {
    const auto& sizes = reinterpret_cast<Function*>(function)->sizes;
    if (number >= sizes.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = 8 * number;
    *size = sizes[number];
    return CUDA_SUCCESS;
}
CUresult fake_cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
    *type = reinterpret_cast<Node*>(node)->type;
    return CUDA_SUCCESS;
}
CUresult fake_cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* made) {
    auto* n = reinterpret_cast<Node*>(node);
    made->func = reinterpret_cast<CUfunction>(n->function);
    made->gridDimX = n->grid.x, made->gridDimY = n->grid.y, made->gridDimZ = n->grid.z;
    made->blockDimX = n->block.x, made->blockDimY = n->block.y, made->blockDimZ = n->block.z;
    made->sharedMemBytes = n->shared;
    made->kernelParams = n->parameters.data();
    return CUDA_SUCCESS;
}
CUresult fake_cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
    *value = {};
    for (auto& attribute : reinterpret_cast<Node*>(node)->attributes)
        if (attribute.id == id) *value = attribute.value;
    return CUDA_SUCCESS;
}
CUresult fake_cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* set) {
    *set = reinterpret_cast<Node*>(node)->set;
    return CUDA_SUCCESS;
}
CUresult fake_cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* copy) {
    *copy = reinterpret_cast<Node*>(node)->copy;
    return CUDA_SUCCESS;
}
CUresult fake_cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
}
CUresult fake_cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function, void** parameters, void**) {
    return static_cast<CUresult>(launch(reinterpret_cast<Function*>(function), dim3(c->gridDimX, c->gridDimY, c->gridDimZ),
                                        dim3(c->blockDimX, c->blockDimY, c->blockDimZ), parameters, c->attrs, c->numAttrs, c->hStream,
                                        c->sharedMemBytes));
}
CUresult fake_cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned) {
    *library = reinterpret_cast<CUlibrary>(dlopen(std::getenv("FAKE_KERNELS"), RTLD_NOW));
    return *library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
CUresult fake_cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    *kernel = reinterpret_cast<CUkernel>(std::strcmp(name, "foreign") ? function_in(library, name) : nullptr);
    return *kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult fake_cuLibraryGetGlobal(CUdeviceptr* data, size_t* bytes, CUlibrary library, const char* name) {
    auto* size = static_cast<size_t*>(dlsym(library, (std::string(name) + "_bytes").c_str()));
    if (!size) return CUDA_ERROR_NOT_FOUND;
    *data = reinterpret_cast<CUdeviceptr>(dlsym(library, name));
    *bytes = *size;
    return CUDA_SUCCESS;
}
CUresult fake_cuLibraryGetModule(CUmodule*, CUlibrary) { return CUDA_ERROR_NOT_FOUND; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* told) {
#define FAKE(function) {#function, reinterpret_cast<void*>(fake_##function)}
    static const std::map<std::string, void*> known = {
        FAKE(cuFuncGetAttribute), FAKE(cuFuncSetAttribute), FAKE(cuFuncGetName), FAKE(cuFuncGetParamInfo), FAKE(cuGraphNodeGetType),
        {"cuGraphKernelNodeGetParams", reinterpret_cast<void*>(fake_cuGraphKernelNodeGetParams)},
        FAKE(cuGraphKernelNodeGetAttribute), FAKE(cuGraphMemsetNodeGetParams),
        FAKE(cuGraphMemcpyNodeGetParams), FAKE(cuKernelGetFunction), FAKE(cuLaunchKernelEx), FAKE(cuLibraryLoadData),
        FAKE(cuLibraryGetKernel), FAKE(cuLibraryGetGlobal), FAKE(cuLibraryGetModule)};
    const auto place = known.find(name);
    *found = place == known.end() ? const_cast<int*>(&last_error) : place->second;  // the rest is not called here
    *told = cudaDriverEntryPointSuccess;
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
    if (of(stream)->captured) {
        of(stream)->invalid = true;
        return static_cast<cudaError_t>(fail(cudaErrorStreamCaptureUnsupported));
    }
    of(stream)->drain();
    return static_cast<cudaError_t>(fail(sticky));
}
cudaError_t cudaDeviceSynchronize() { return finish(); }
cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
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
    if (of(stream)->captured) {
        auto* node = new Node;
        node->type = CU_GRAPH_NODE_TYPE_MEMCPY;
        node->copy.dstDevice = reinterpret_cast<CUdeviceptr>(to);
        node->copy.srcDevice = reinterpret_cast<CUdeviceptr>(from);
        node->copy.WidthInBytes = bytes;
        of(stream)->capture(node);
        return cudaSuccess;
    }
    of(stream)->put([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    if (of(stream)->captured) {
        auto* node = new Node;
        node->type = CU_GRAPH_NODE_TYPE_MEMSET;
        node->set = {reinterpret_cast<CUdeviceptr>(to), 0, unsigned(value), 1, bytes, 1};
        of(stream)->capture(node);
        return cudaSuccess;
    }
    of(stream)->put([=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    of(stream)->put([=] { function(data); });
    return cudaSuccess;
}
void fake_set_sticky(int code) { sticky = code; }
void fake_set_last_error(int code) { last_error = code; }

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
    const bool invalid = std::exchange(of(stream)->invalid, false);
    return invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    const auto& all = reinterpret_cast<Graph*>(graph)->nodes;
    *count = all.size();
    for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = reinterpret_cast<cudaGraphNode_t>(all[i]);
    return cudaSuccess;
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data, size_t* count) {
    const auto& all = reinterpret_cast<Graph*>(graph)->nodes;
    *count = all.empty() ? 0 : all.size() - 1;
    for (size_t i = 0; i < *count; ++i) {
        from[i] = reinterpret_cast<cudaGraphNode_t>(all[i]);
        to[i] = reinterpret_cast<cudaGraphNode_t>(all[i + 1]);
        data[i] = {};
        const bool early = all[i + 1]->has(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
        data[i].type = early ? cudaGraphDependencyTypeProgrammatic : cudaGraphDependencyTypeDefault;
    }
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
