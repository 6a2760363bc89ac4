// The measuring side of a worker: maps the referee's memory, calls a candidate's launcher, and times it.
//
// Cold times come from a stream that is held: one thread spins on a host-mapped word while a whole batch is enqueued behind
// it, so that the host's launch cost is not in the figures (the method of NVIDIA's nvbench). The spin ends by itself after
// hold_ns, so a launcher that waits for the stream is found out instead of waiting for ever.
//
// The runner and the candidate link the same shared CUDA runtime: they share the primary context and the runtime's "last
// error", so a failed launch that the launcher did not report is still seen here.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" cudaError_t cudaProfilerStart(void);
extern "C" cudaError_t cudaProfilerStop(void);

namespace {

constexpr int kMaxRepetitions = 512;

// What a launch costs depends on its number in its stream, modulo four: on an H200 up to a microsecond lies between the
// cheapest and the dearest place. A memset of a few kilobytes is no launch, one of a megabyte is. See runner_cold.
constexpr int kPlaces = 4;

// Empty launches behind the last repetition of a batch: what is enqueued later slows a call a little, and the last three
// repetitions would be up to 0.7 us faster than the others.
constexpr int kTrailing = 32;
constexpr size_t kGuardBytes = 512;
constexpr int kGuardPattern = 0xA5;
constexpr int kMaxStirred = 16;
constexpr int kMaxElementBytes = 8;
constexpr int kPoison = 0xFF;  // NaN in both element types

// What is no CUDA error; worker.py has the same numbers.
constexpr int kBlocked = -1;
constexpr int kWorkspaceOverrun = -2;
constexpr int kEscaped = -3;
constexpr int kWroteElsewhere = -4;

// Where an error was seen; worker.py turns it into words.
enum Stage { kSetUp = 0, kLauncher = 1, kLastError = 2, kKernel = 3 };

using Launch = int (*)(void* const*, const double*, const int64_t*, void*, size_t, void*);
using Hook = int (*)(void* const*, const double*, const int64_t*);

}  // namespace

// One launcher with its arguments, mirrored by worker.py: `pointers` holds `sets` rows of `arrays` device pointers, inputs
// first; the last `outputs` of a row are written by the call and have output_bytes[i] bytes each.
extern "C" struct Call {
    Launch launch;
    const double* scalars;
    const int64_t* dims;
    size_t workspace_bytes;
    int32_t sets;
    int32_t arrays;
    int32_t outputs;
    int32_t poison;  // whether cold repetitions overwrite the outputs first
    void* const* pointers;
    const uint64_t* output_bytes;
    const uint64_t* stirred;  // of each array of a row: how many elements `stir` may swap, and an element's bytes; 0 for none
};

namespace {

struct Runner {
    cudaStream_t stream = nullptr;  // a blocking stream: work on the legacy default stream stays inside the timed region
    cudaStream_t side = nullptr;
    cudaEvent_t begin[kMaxRepetitions] = {};
    cudaEvent_t end[kMaxRepetitions] = {};
    unsigned* flags = nullptr;  // host-mapped: [0] last ticket released, [1] last ticket that timed out
    unsigned ticket = 0;
    uint64_t hold_ns = 0;
    void* flush = nullptr;
    size_t flush_bytes = 0;
    unsigned char* workspace = nullptr;
    size_t workspace_capacity = 0;
    unsigned long long* counter = nullptr;
    cudaGraphExec_t graph = nullptr;
    cudaGraph_t record = nullptr;
    int multiprocessors = 1;
    uint64_t stirs = uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
} runner;

__device__ unsigned long long global_timer() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Reads more than the cache holds. Lines that a write leaves behind would have to be written back while the next call runs
// (up to 14 us of an H200's bandwidth for its 60 MB); lines that were only read are simply replaced.
__global__ void read_over(const uint4* data, size_t packs, unsigned* never) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    unsigned mixed = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += step) {
        const uint4 pack = data[i];
        mixed |= pack.x | pack.y | pack.z | pack.w;
    }
    if (mixed) *never = mixed;  // the memory is zero, which only the host knows
}

__global__ void hold_stream(volatile unsigned* flags, unsigned ticket, unsigned long long limit_ns) {
    const unsigned long long start = global_timer();
    while (flags[0] < ticket) {
        if (global_timer() - start > limit_ns) {
            flags[1] = ticket;
            __threadfence_system();
            return;
        }
        __nanosleep(200);
    }
}

// Two elements of each of a few arrays.
struct Swaps {
    unsigned char* first[kMaxStirred];
    unsigned char* second[kMaxStirred];
    unsigned bytes[kMaxStirred];
};

// Swaps them, so that no two repetitions have the same inputs: what a version remembers is worth nothing.
__global__ void stir(Swaps swaps) {
    if (threadIdx.x >= swaps.bytes[blockIdx.x]) return;
    unsigned char &first = swaps.first[blockIdx.x][threadIdx.x], &second = swaps.second[blockIdx.x][threadIdx.x];
    const unsigned char kept = first;
    first = second;
    second = kept;
}

__global__ void nothing() {}

// Arithmetic on every multiprocessor for a while: raises the clocks before anything is timed.
__global__ void busy(unsigned long long duration_ns, float* sink) {
    const unsigned long long start = global_timer();
    float x = threadIdx.x, y = 1.0001f;
    while (global_timer() - start < duration_ns) {
#pragma unroll 64
        for (int i = 0; i < 1024; ++i) x = fmaf(x, y, 0.5f);
    }
    if (x == 0.12345f) *sink = x;
}

// Counts the bytes of a buffer that differ from the poison.
__global__ void count_written(const unsigned char* data, size_t bytes, unsigned long long* count) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < bytes; i += size_t(gridDim.x) * blockDim.x)
        mine += data[i] != kPoison;
    if (mine) atomicAdd(count, mine);
}

// dims[0] empty kernels, one after another.
int launch_nothing(void* const*, const double*, const int64_t* dims, void*, size_t, void* stream) {
    for (int64_t i = 0; i < dims[0]; ++i) nothing<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>();
    return cudaPeekAtLastError();
}

void* workspace_of(const Call* call) { return call->workspace_bytes ? runner.workspace : nullptr; }

void* const* row_of(const Call* call, int set) { return call->pointers + size_t(set % call->sets) * call->arrays; }

int invoke_on(cudaStream_t stream, Launch launch, const Call* call, int set, int* stage) {
    cudaGetLastError();  // what an earlier call left behind is not this one's
    const int code = launch(row_of(call, set), call->scalars, call->dims, workspace_of(call), call->workspace_bytes, stream);
    const int last = cudaGetLastError();
    if (code || last) *stage = code ? kLauncher : kLastError;
    return code ? code : last;
}

int invoke(const Call* call, int set, int* stage) { return invoke_on(runner.stream, call->launch, call, set, stage); }

int synchronize(int* stage) {
    int code = cudaStreamSynchronize(runner.stream);
    if (!code) code = cudaDeviceSynchronize();
    if (code) *stage = kKernel;
    return code;
}

int hold() {
    ++runner.ticket;
    hold_stream<<<1, 1, 0, runner.stream>>>(runner.flags, runner.ticket, runner.hold_ns);
    return cudaGetLastError();
}

void release() { *static_cast<volatile unsigned*>(runner.flags) = runner.ticket; }

bool timed_out() { return static_cast<volatile unsigned*>(runner.flags)[1] == runner.ticket; }

int poison_outputs(const Call* call, int set) {
    void* const* outputs = row_of(call, set) + (call->arrays - call->outputs);
    for (int i = 0; i < call->outputs; ++i)
        if (int code = cudaMemsetAsync(outputs[i], kPoison, call->output_bytes[i], runner.stream)) return code;
    return 0;
}

int poison_workspace(const Call* call) {
    if (!call->workspace_bytes) return 0;
    return cudaMemsetAsync(runner.workspace, kPoison, call->workspace_bytes, runner.stream);
}

int fill_workspace(const Call* call) {
    if (!call->workspace_bytes) return 0;
    if (int code = poison_workspace(call)) return code;
    return cudaMemsetAsync(runner.workspace + call->workspace_bytes, kGuardPattern, kGuardBytes, runner.stream);
}

int check_guard(const Call* call) {
    if (!call->workspace_bytes) return 0;
    unsigned char guard[kGuardBytes];
    if (int code = cudaMemcpy(guard, runner.workspace + call->workspace_bytes, kGuardBytes, cudaMemcpyDeviceToHost)) return code;
    for (unsigned char byte : guard)
        if (byte != kGuardPattern) return kWorkspaceOverrun;
    return 0;
}

uint64_t hashed(uint64_t z) {  // SplitMix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int stir_inputs(const Call* call, int set) {
    if (!call->stirred) return 0;
    void* const* row = call->pointers + size_t(set % call->sets) * call->arrays;
    Swaps swaps{};
    int used = 0;
    for (int i = 0; i < call->arrays && used < kMaxStirred; ++i) {
        const uint64_t count = call->stirred[2 * i], bytes = call->stirred[2 * i + 1];
        if (!count) continue;
        auto* data = static_cast<unsigned char*>(row[i]);
        runner.stirs += 0x9E3779B97F4A7C15u;
        swaps.first[used] = data + hashed(runner.stirs) % count * bytes;
        swaps.second[used] = data + hashed(~runner.stirs) % count * bytes;
        swaps.bytes[used++] = unsigned(bytes);
    }
    if (used) stir<<<used, kMaxElementBytes, 0, runner.stream>>>(swaps);
    return cudaGetLastError();
}

// Nothing that was in L2 is there afterwards.
cudaError_t empty_cache() {
    read_over<<<4 * runner.multiprocessors, 512, 0, runner.stream>>>(
        static_cast<const uint4*>(runner.flush), runner.flush_bytes / sizeof(uint4), reinterpret_cast<unsigned*>(runner.counter));
    return cudaGetLastError();
}

bool on_device(const void* pointer) {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
}

// What one recorded operation is: "kernel" and its name, "memset", "copy", or what it should not be.
std::string node_name(cudaGraphNode_t node) {
    cudaGraphNodeType type;
    if (cudaGraphNodeGetType(node, &type)) return "unknown";
    switch (type) {
        case cudaGraphNodeTypeKernel: {
            const char* name = "";
#if CUDART_VERSION >= 12030
            cudaKernelNodeParams kernel{};
            if (cudaGraphKernelNodeGetParams(node, &kernel) || cudaFuncGetName(&name, kernel.func)) name = "?";
            cudaGetLastError();
#endif
            return std::string("kernel ") + name;
        }
        case cudaGraphNodeTypeMemset: return "memset";
        case cudaGraphNodeTypeEmpty: return "empty";
        case cudaGraphNodeTypeMemcpy: {
            cudaMemcpy3DParms copy{};
            if (cudaGraphMemcpyNodeGetParams(node, &copy)) return "unknown copy";
            return on_device(copy.srcPtr.ptr) && on_device(copy.dstPtr.ptr) ? "copy" : "host copy";
        }
        case cudaGraphNodeTypeHost: return "host function";
        case cudaGraphNodeTypeMemAlloc: return "allocation";
        case cudaGraphNodeTypeMemFree: return "free";
        default: return "node of type " + std::to_string(int(type));
    }
}

}  // namespace

extern "C" {

// Opens device 0 of what CUDA_VISIBLE_DEVICES leaves visible. Call once, before anything else.
int runner_open(double flush_factor, double hold_seconds) {
    cudaDeviceProp properties;
    if (int code = cudaSetDevice(0)) return code;
    if (int code = cudaGetDeviceProperties(&properties, 0)) return code;
    runner.multiprocessors = properties.multiProcessorCount;
    runner.hold_ns = uint64_t(hold_seconds * 1e9);
    runner.flush_bytes = size_t(double(properties.l2CacheSize) * flush_factor);
    if (int code = cudaStreamCreate(&runner.stream)) return code;
    if (int code = cudaStreamCreateWithFlags(&runner.side, cudaStreamNonBlocking)) return code;
    for (int i = 0; i < kMaxRepetitions; ++i) {
        if (int code = cudaEventCreate(&runner.begin[i])) return code;
        if (int code = cudaEventCreate(&runner.end[i])) return code;
    }
    if (int code = cudaHostAlloc(reinterpret_cast<void**>(&runner.flags), 2 * sizeof(unsigned), cudaHostAllocMapped)) return code;
    std::memset(runner.flags, 0, 2 * sizeof(unsigned));
    if (int code = cudaMalloc(reinterpret_cast<void**>(&runner.counter), sizeof(*runner.counter))) return code;
    if (runner.flush_bytes)
        if (int code = cudaMalloc(&runner.flush, runner.flush_bytes)) return code;
    // A kernel's first launch loads it, and loading may wait for the device: not while the stream is held.
    release();
    if (int code = hold()) return code;
    release();
    nothing<<<1, 1, 0, runner.stream>>>();
    busy<<<1, 32, 0, runner.stream>>>(0, reinterpret_cast<float*>(runner.counter));
    count_written<<<1, 32, 0, runner.side>>>(nullptr, 0, runner.counter);
    if (int code = cudaMemsetAsync(runner.counter, 0, sizeof(*runner.counter), runner.stream)) return code;
    stir<<<1, kMaxElementBytes, 0, runner.stream>>>(Swaps{});
    if (runner.flush) {
        if (int code = cudaMemsetAsync(runner.flush, 0, runner.flush_bytes, runner.stream)) return code;
        if (int code = empty_cache()) return code;
    }
    if (int code = cudaGetLastError()) return code;
    return cudaDeviceSynchronize();
}

int runner_max_repetitions() { return kMaxRepetitions; }

// "cudaErrorIllegalAddress" and "an illegal memory access was encountered".
const char* runner_error_name(int code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }
const char* runner_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

// Whether the context still works: a sticky error makes every later call fail.
int runner_alive() { return cudaDeviceSynchronize(); }

Launch runner_nothing() { return launch_nothing; }

int runner_map(const char* handle, void** pointer) {
    cudaIpcMemHandle_t opened;
    std::memcpy(&opened, handle, sizeof(opened));
    return cudaIpcOpenMemHandle(pointer, opened, cudaIpcMemLazyEnablePeerAccess);
}

int runner_unmap(void* pointer) { return cudaIpcCloseMemHandle(pointer); }

int runner_allocate(size_t bytes, void** pointer) { return cudaMalloc(pointer, bytes); }

int runner_upload(void* device, const void* host, size_t bytes) {
    return cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);
}

// Makes room for a workspace and the guard behind it; one that is large enough stays where it is.
int runner_reserve(size_t bytes) {
    if (!bytes || bytes + kGuardBytes <= runner.workspace_capacity) return 0;
    if (runner.workspace)
        if (int code = cudaFree(runner.workspace)) return code;
    runner.workspace = nullptr;
    runner.workspace_capacity = 0;
    if (int code = cudaMalloc(reinterpret_cast<void**>(&runner.workspace), bytes + kGuardBytes)) return code;
    runner.workspace_capacity = bytes + kGuardBytes;
    return 0;
}

// One call and its end. The workspace is poisoned before (`fresh`), and the guard behind it is looked at afterwards.
int runner_once(const Call* call, int set, int fresh, int* stage) {
    *stage = kSetUp;
    if (fresh)
        if (int code = fill_workspace(call)) return code;
    if (int code = invoke(call, set, stage)) {
        cudaDeviceSynchronize();
        return code;
    }
    if (int code = synchronize(stage)) return code;
    return check_guard(call);
}

// Whether the launcher keeps to its stream: with the stream held, no byte of the outputs may change.
int runner_keeps_stream(const Call* call, double wait_seconds, int* stage) {
    *stage = kSetUp;
    if (int code = poison_outputs(call, 0)) return code;
    if (int code = synchronize(stage)) return code;
    if (int code = cudaMemsetAsync(runner.counter, 0, sizeof(*runner.counter), runner.side)) return code;
    if (int code = hold()) return code;
    const int launched = invoke(call, 0, stage);
    const bool blocked = timed_out();
    int code = launched;
    unsigned long long written = 0;
    if (!launched && !blocked) {
        std::this_thread::sleep_for(std::chrono::duration<double>(wait_seconds));
        void* const* outputs = call->pointers + (call->arrays - call->outputs);
        for (int i = 0; i < call->outputs; ++i)
            count_written<<<4 * runner.multiprocessors, 256, 0, runner.side>>>(
                static_cast<const unsigned char*>(outputs[i]), call->output_bytes[i], runner.counter);
        code = cudaGetLastError();
        if (!code) code = cudaMemcpyAsync(&written, runner.counter, sizeof(written), cudaMemcpyDeviceToHost, runner.side);
        if (!code) code = cudaStreamSynchronize(runner.side);
    }
    // No symbol shows the thread's own default stream, whose handle is a number: a kernel may stay there from call to call.
    const bool elsewhere = cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady;
    cudaGetLastError();
    const bool held = !timed_out();
    release();
    if (int ended = synchronize(stage)) return code ? code : ended;
    if (code) return code;
    if (blocked) return kBlocked;
    return elsewhere || (held && written) ? kEscaped : 0;
}

// Keeps all multiprocessors busy, so that the clocks are up.
int runner_busy(double seconds) {
    busy<<<2 * runner.multiprocessors, 256, 0, runner.stream>>>(
        static_cast<unsigned long long>(seconds * 1e9), reinterpret_cast<float*>(runner.counter));
    if (int code = cudaGetLastError()) return code;
    return cudaStreamSynchronize(runner.stream);
}

// Cold repetitions first_set, first_set + 1, …: outputs and workspace poisoned, two elements of each array of floats swapped
// (where the call says so), L2 emptied, then the call between two events.
//
// An empty kernel after every fourth repetition moves the following ones on by one place: so in any kPlaces² repetitions a
// call is launched equally often at each place, however many launches a repetition has. Without it, a call with an even
// number of launches would see two places of the four, which ones being a matter of what ran before. Where a batch begins is
// drawn, so that what else goes with the place (the first and the last repetitions) is not the same in all batches of a process.
//
// ms[i] is the device time of repetition i and host_ns[i] what its launcher cost the host. At most kMaxRepetitions. With
// `held`, the caller keeps repetitions x commands within what a stream queues (about a thousand), since a full queue makes
// the host wait for a stream that waits for the host.
int runner_cold(const Call* call, int first_set, int repetitions, int held, float* ms, double* host_ns, int* stage) {
    *stage = kSetUp;
    if (repetitions > kMaxRepetitions) return cudaErrorInvalidValue;
    int code = cudaMemsetAsync(runner.counter, 0, sizeof(*runner.counter), runner.stream);
    if (!code && held) code = hold();
    runner.stirs += 0x9E3779B97F4A7C15u;
    for (uint64_t i = hashed(runner.stirs) % kPlaces; i && !code; --i) nothing<<<1, 1, 0, runner.stream>>>();
    for (int i = 0; i < repetitions && !code; ++i) {
        if (i && i % kPlaces == 0) nothing<<<1, 1, 0, runner.stream>>>();
        if (call->poison) code = poison_outputs(call, first_set + i);
        if (!code && call->poison) code = poison_workspace(call);
        if (!code) code = stir_inputs(call, first_set + i);
        if (!code && runner.flush) code = empty_cache();
        if (!code) code = cudaEventRecord(runner.begin[i], runner.stream);
        if (code) break;
        const auto start = std::chrono::steady_clock::now();
        code = invoke(call, first_set + i, stage);
        host_ns[i] = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
        if (!code) code = cudaEventRecord(runner.end[i], runner.stream);
        if (held && timed_out()) break;
    }
    const bool blocked = held && timed_out();
    for (int i = 0; held && i < kTrailing && !code && !blocked; ++i) nothing<<<1, 1, 0, runner.stream>>>();
    release();
    const int ended = synchronize(stage);
    if (code || ended) return code ? code : ended;
    if (blocked) return kBlocked;
    unsigned found = 0;  // by read_over, in memory that holds zeros
    if (int failed = cudaMemcpy(&found, runner.counter, sizeof(found), cudaMemcpyDeviceToHost)) return failed;
    if (found) return kWroteElsewhere;
    for (int i = 0; i < repetitions; ++i)
        if (int failed = cudaEventElapsedTime(&ms[i], runner.begin[i], runner.end[i])) return failed;
    return 0;
}

// Records one call in a graph and says what is in it, a line a node: a kernel's name, or what else it is. Not instantiated
// before the caller has read it, since some nodes would act: runner_replay_record does that, and runs it.
int runner_record(const Call* call, char* text, size_t size, int* stage) {
    *stage = kSetUp;
    if (runner.record) {
        cudaGraphDestroy(runner.record);
        runner.record = nullptr;
    }
    if (int code = cudaStreamBeginCapture(runner.stream, cudaStreamCaptureModeThreadLocal)) return code;
    int code = invoke(call, 0, stage);
    const int ended = cudaStreamEndCapture(runner.stream, &runner.record);
    cudaGetLastError();
    if (code || ended) return code ? code : ended;
    *stage = kSetUp;
    size_t count = 0;
    if (int failed = cudaGraphGetNodes(runner.record, nullptr, &count)) return failed;
    std::vector<cudaGraphNode_t> nodes(count);
    if (int failed = cudaGraphGetNodes(runner.record, nodes.data(), &count)) return failed;
    std::string said;
    for (cudaGraphNode_t node : nodes) said += node_name(node) + "\n";
    std::strncpy(text, said.c_str(), size - 1);
    return 0;
}

int runner_replay_record(const Call* call, int* stage) {
    *stage = kSetUp;
    cudaGraphExec_t instance = nullptr;
    if (!runner.record) return cudaErrorInvalidValue;
    if (int code = fill_workspace(call)) return code;
    if (int code = cudaGraphInstantiate(&instance, runner.record, 0)) return code;
    int code = cudaGraphLaunch(instance, runner.stream);
    const int ended = synchronize(stage);
    cudaGraphExecDestroy(instance);
    return code ? code : ended;
}

// The device's settings that a launcher may not leave changed, in the order of worker.py's names. What can't be told is 0.
int runner_settings(int64_t* values) {
    int device = 0;
    cudaFuncCache cache = cudaFuncCachePreferNone;
    cudaStreamAttrValue window{};
    cudaGetDevice(&device);
    cudaDeviceGetCacheConfig(&cache);
    cudaStreamGetAttribute(runner.stream, cudaStreamAttributeAccessPolicyWindow, &window);
    *values++ = device;
    *values++ = cache;
    *values++ = int64_t(window.accessPolicyWindow.num_bytes);
    for (cudaLimit limit : {cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitMaxL2FetchGranularity,
                            cudaLimitPersistingL2CacheSize}) {
        size_t value = 0;
        cudaDeviceGetLimit(&value, limit);
        *values++ = int64_t(value);
    }
    cudaGetLastError();
    return 0;
}

// Whole calls, for functions that wait, allocate, copy through the host or choose their own stream: ns[i] is the host's time
// from an idle device to an idle device. All work is on the legacy default stream, where such functions put theirs.
//
// `launch` is what is timed, call->launch or a part of it; `before` and `after` (or null) surround it and are not timed.
// `cold`: L2 is emptied first. At most kMaxRepetitions.
int runner_whole(const Call* call, Launch launch, Hook before, Hook after, int first_set, int repetitions, int cold, double* ns,
                 int* stage) {
    *stage = kSetUp;
    if (repetitions > kMaxRepetitions) return cudaErrorInvalidValue;
    for (int i = 0; i < repetitions; ++i) {
        const int set = first_set + i;
        if (i && i % kPlaces == 0) nothing<<<1, 1>>>();  // as in runner_cold
        int code = call->poison ? poison_outputs(call, set) : 0;
        if (!code) code = synchronize(stage);
        if (!code && before) code = before(row_of(call, set), call->scalars, call->dims);
        if (!code && cold && runner.flush) code = empty_cache();
        if (!code) code = synchronize(stage);
        if (code) return code;
        const auto start = std::chrono::steady_clock::now();
        code = invoke_on(nullptr, launch, call, set, stage);
        const int ended = cudaDeviceSynchronize();
        ns[i] = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
        if (!code && ended) *stage = kKernel;
        if (code || ended) return code ? code : ended;
        if (after)
            if (int failed = after(row_of(call, set), call->scalars, call->dims)) return failed;
    }
    return 0;
}

// Captures `copies` calls on input set 0 into a graph that runner_replay plays; `nodes` is how many device operations that is.
int runner_capture(const Call* call, int copies, uint64_t* nodes, int* stage) {
    *stage = kSetUp;
    if (runner.graph) {
        cudaGraphExecDestroy(runner.graph);
        runner.graph = nullptr;
    }
    if (int code = cudaStreamBeginCapture(runner.stream, cudaStreamCaptureModeThreadLocal)) return code;
    int code = 0;
    for (int i = 0; i < copies && !code; ++i) code = invoke(call, 0, stage);
    cudaGraph_t graph = nullptr;
    const int ended = cudaStreamEndCapture(runner.stream, &graph);
    cudaGetLastError();
    if (!code) code = ended;
    size_t count = 0;
    if (!code) code = cudaGraphGetNodes(graph, nullptr, &count);
    if (!code) code = cudaGraphInstantiate(&runner.graph, graph, 0);
    if (!code) code = cudaGraphUpload(runner.graph, runner.stream);
    if (!code) code = cudaStreamSynchronize(runner.stream);
    if (graph) cudaGraphDestroy(graph);
    if (code) {
        cudaGetLastError();
        if (runner.graph) cudaGraphExecDestroy(runner.graph);
        runner.graph = nullptr;
    }
    *nodes = count;
    return code;
}

// Replays the captured graph; ms[i] is the device time of `replays` replays in a row.
int runner_replay(int replays, int samples, float* ms, int* stage) {
    *stage = kSetUp;
    if (!runner.graph || samples > kMaxRepetitions) return cudaErrorInvalidValue;
    int code = cudaGraphLaunch(runner.graph, runner.stream);
    if (!code) code = synchronize(stage);
    for (int s = 0; s < samples && !code; ++s) {
        code = hold();
        if (!code) code = cudaEventRecord(runner.begin[s], runner.stream);
        for (int i = 0; i < replays && !code; ++i) code = cudaGraphLaunch(runner.graph, runner.stream);
        if (!code) code = cudaEventRecord(runner.end[s], runner.stream);
        release();
        const int ended = synchronize(stage);
        if (!code) code = ended;
        if (!code) code = cudaEventElapsedTime(&ms[s], runner.begin[s], runner.end[s]);
    }
    return code;
}

// One untimed call, then one that a profiler started with "--profile-from-start off" sees.
int runner_profile(const Call* call, int* stage) {
    if (int code = runner_once(call, 0, 1, stage)) return code;
    if (int code = cudaProfilerStart()) return code;
    const int code = runner_once(call, 0, 1, stage);
    cudaProfilerStop();
    return code;
}

}  // extern "C"
