// The measuring side of a worker: maps the referee's memory, calls a candidate's launcher, and times it.
//
// Cold times come from a stream that is held: one thread spins on a host-mapped word while a whole batch is enqueued behind
// it, so that the host's launch cost is not in the figures (the method of NVIDIA's nvbench). The spin ends by itself after
// hold_ns, so a launcher that waits for the stream is found out instead of waiting for ever.
//
// The runner and the candidate link the same shared CUDA runtime: they share the primary context and the runtime's "last
// error", so a failed launch that the launcher did not report is still seen here.
//
// Here is what the worker calls; what that is made of is in runner/.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runner/call.cuh"
#include "runner/hold.cuh"
#include "runner/kernels.cuh"
#include "runner/launch.cuh"
#include "runner/poison.cuh"
#include "runner/record.cuh"
#include "runner/repetition.cuh"
#include "runner/state.cuh"
#include "runner/variables.cuh"

extern "C" cudaError_t cudaProfilerStart(void);
extern "C" cudaError_t cudaProfilerStop(void);

namespace {

// What a launch costs depends on its number in its stream, modulo four: on an H200 up to a microsecond lies between the
// cheapest and the dearest place. A memset of a few kilobytes is no launch, one of a megabyte is. See runner_cold.
constexpr int kPlaces = 4;

// Empty launches behind the last repetition of a batch: what is enqueued later slows a call a little, and the last three
// repetitions would be up to 0.7 us faster than the others (H200, 2026-11-20).
constexpr int kTrailing = 32;

// How far apart the places of a workspace are: each has other lines of the cache.
constexpr size_t kPlaceBytes = 4096;

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
    if (int code = cudaMalloc(reinterpret_cast<void**>(&runner.counters), kCounters * sizeof(*runner.counters))) return code;
    if (runner.flush_bytes)
        if (int code = cudaMalloc(&runner.flush, runner.flush_bytes)) return code;
    // A kernel's first launch loads it, and loading may wait for the device: not while the stream is held.
    release();
    if (int code = hold()) return code;
    release();
    nothing<<<1, 1, 0, runner.stream>>>();
    busy<<<1, 32, 0, runner.stream>>>(0, reinterpret_cast<float*>(runner.counters));
    count_changed<<<1, 32, 0, runner.side>>>(nullptr, 0, kPoison, runner.counters);
    put_back<<<1, 32, 0, runner.stream>>>(nullptr, 0);
    count_unlike<<<1, 32, 0, runner.stream>>>(nullptr, 0, runner.counters);
    fingerprint<<<1, 32, 0, runner.stream>>>(nullptr, 0, runner.counters);
    if (int code = clear_counters()) return code;
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

int runner_allocate(size_t bytes, void** pointer) { return cudaMalloc(pointer, bytes); }

int runner_upload(void* device, const void* host, size_t bytes) {
    return cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);
}

// Memory of the referee's that workspaces lie in from here on, where they fit; null for none.
void runner_lend(void* memory, size_t bytes) {
    runner.lent = static_cast<unsigned char*>(memory);
    runner.lent_capacity = bytes;
}

int runner_unmap(void* pointer) {
    if (pointer == runner.lent) runner_lend(nullptr, 0);
    return cudaIpcCloseMemHandle(pointer);
}

// Gives its own workspace back until the next one is reserved.
int runner_rest() {
    const int code = runner.own ? cudaFree(runner.own) : cudaSuccess;
    runner.own = nullptr;
    runner.own_capacity = 0;
    return code;
}

// Makes room for a workspace and the guard behind it: in what was lent, else in memory of its own, which stays where it is while
// it is large enough.
int runner_reserve(size_t bytes) {
    if (!bytes) return 0;
    if (bytes + kGuardBytes <= runner.lent_capacity) {
        runner.workspace = runner.lent;
        return 0;
    }
    if (bytes + kGuardBytes > runner.own_capacity) {
        if (int code = runner_rest()) return code;
        if (int code = cudaMalloc(reinterpret_cast<void**>(&runner.own), bytes + kGuardBytes)) return code;
        runner.own_capacity = bytes + kGuardBytes;
    }
    runner.workspace = runner.own;
    return 0;
}

// Moves a workspace in lent memory to one of the places that it has room for, by the place's number.
void runner_place(size_t bytes, uint64_t place) {
    if (!bytes || bytes + kGuardBytes > runner.lent_capacity) return;
    const size_t places = (runner.lent_capacity - bytes - kGuardBytes) / kPlaceBytes + 1;
    runner.workspace = runner.lent + hashed(next_of(place)) % places * kPlaceBytes;
}

// One call and its end. The workspace is poisoned before (`fresh`), and the guard around it is looked at afterwards.
int runner_once(const Call* call, int set, int fresh, int* stage) {
    *stage = kSetUp;
    if (fresh)
        if (int code = fill_workspace(call)) return code;
    if (int code = clear_counters()) return code;
    if (int code = invoke(call, set, stage)) {
        cudaDeviceSynchronize();
        return code;
    }
    if (int code = synchronize(stage)) return code;
    if (int code = count_overrun(call)) return code;
    if (int code = count_changes()) return code;
    return wrote_elsewhere();
}

// Whether the launcher keeps to its stream: with the stream held, no byte of the outputs may change.
int runner_keeps_stream(const Call* call, double wait_seconds, int* stage) {
    *stage = kSetUp;
    if (int code = poison_outputs(call, 0)) return code;
    if (int code = synchronize(stage)) return code;
    unsigned long long* const count = runner.counters + kWritten;
    if (int code = cudaMemsetAsync(count, 0, sizeof(*count), runner.side)) return code;
    if (int code = hold()) return code;
    const int launched = invoke(call, 0, stage);
    const bool blocked = timed_out();
    int code = launched;
    unsigned long long written = 0;
    if (!launched && !blocked) {
        std::this_thread::sleep_for(std::chrono::duration<double>(wait_seconds));
        void* const* outputs = call->pointers + (call->arrays - call->outputs);
        for (int i = 0; i < call->outputs; ++i)
            count_changed<<<4 * runner.multiprocessors, 256, 0, runner.side>>>(
                static_cast<const unsigned char*>(outputs[i]), call->output_bytes[i], kPoison, count);
        code = cudaGetLastError();
        if (!code) code = cudaMemcpyAsync(&written, count, sizeof(written), cudaMemcpyDeviceToHost, runner.side);
        if (!code) code = cudaStreamSynchronize(runner.side);
    }
    const bool elsewhere = waits_on_own_stream();
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
        static_cast<unsigned long long>(seconds * 1e9), reinterpret_cast<float*>(runner.counters));
    if (int code = cudaGetLastError()) return code;
    return cudaStreamSynchronize(runner.stream);
}

// Cold repetitions first_set, first_set + 1, …: outputs and workspace poisoned, variables put back, two elements of each array of
// floats swapped (where the call says so), L2 emptied, then the call between two events.
//
// An empty kernel after every fourth repetition moves the following ones on by one place: so in any kPlaces² repetitions a
// call is launched equally often at each place, however many launches a repetition has. Without it, a call with an even
// number of launches would see two places of the four, which ones being a matter of what ran before. Where a batch begins is
// drawn, so that what else goes with the place (the first and the last repetitions) is not the same in all batches of a process.
//
// `stirs` is where the row of drawn numbers begins. What is around the workspace must be as it was once the batch is over, and what
// the last call has written must not change any more once its turn in the stream is over: no call knows that it is the last.
//
// ms[i] is the device time of repetition i and host_ns[i] what its launcher cost the host. At most kMaxRepetitions. With
// `held`, the caller keeps repetitions x commands within what a stream queues (about a thousand), since a full queue makes
// the host wait for a stream that waits for the host.
int runner_cold(const Call* call, int first_set, int repetitions, int held, uint64_t stirs, float* ms, double* host_ns, int* stage) {
    *stage = kSetUp;
    if (repetitions > kMaxRepetitions) return cudaErrorInvalidValue;
    int code = clear_counters();
    if (!code) code = set_guard(call);
    if (!code && held) code = hold();
    for (uint64_t i = hashed(next_of(stirs)) % kPlaces; i && !code; --i) nothing<<<1, 1, 0, runner.stream>>>();
    for (int i = 0; i < repetitions && !code; ++i) {
        if (i && i % kPlaces == 0) nothing<<<1, 1, 0, runner.stream>>>();
        if (call->poison) code = poison_outputs(call, first_set + i);
        if (!code && call->poison) code = poison_workspace(call);
        if (!code && call->poison) code = put_variables_back();
        if (!code) code = stir_inputs(call, first_set + i, stirs);
        if (!code && runner.flush) code = empty_cache();
        if (!code) code = cudaEventRecord(runner.begin[i], runner.stream);
        if (code) break;
        const auto start = std::chrono::steady_clock::now();
        code = invoke(call, first_set + i, stage);
        host_ns[i] = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
        if (!code) code = cudaEventRecord(runner.end[i], runner.stream);
        if (held && timed_out()) break;
    }
    const bool elsewhere = held && waits_on_own_stream();
    const bool blocked = held && timed_out();
    const int last = first_set + repetitions - 1;
    if (call->poison && !code && !blocked) code = fingerprint_outputs(call, last, kInTurn);
    for (int i = 0; held && i < kTrailing && !code && !blocked; ++i) nothing<<<1, 1, 0, runner.stream>>>();
    release();
    const int ended = synchronize(stage);
    if (code || ended) return code ? code : ended;
    if (blocked) return kBlocked;
    if (elsewhere) return kEscaped;
    if (call->poison)
        if (int failed = fingerprint_outputs(call, last, kAfterwards)) return failed;
    if (int failed = count_overrun(call)) return failed;
    if (int failed = count_changes()) return failed;
    if (int failed = wrote_elsewhere()) return failed;
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

// Whether a call waits for what precedes it in its stream. A first kernel that need not would overlap the call before: in a row of
// calls it would look faster than it is, and in a program it could read its inputs before they are written.
int runner_starts_in_turn(const Call* call, int* stage) {
    *stage = kSetUp;
    cudaGraph_t graph = nullptr;
    if (int code = cudaStreamBeginCapture(runner.stream, cudaStreamCaptureModeThreadLocal)) return code;
    nothing<<<1, 1, 0, runner.stream>>>();
    int code = invoke(call, 0, stage);
    const int ended = cudaStreamEndCapture(runner.stream, &graph);
    cudaGetLastError();
    if (!code) code = ended;
    bool early = false;
    if (!code) *stage = kSetUp;
    if (!code) code = follows_early(graph, &early);
    if (graph) cudaGraphDestroy(graph);
    return code ? code : early ? kStartsEarly : 0;
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
    return code ? code : ended ? ended : variables_unchanged();
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

// Finds a version's variables by their names on the device, in what a call would launch, and saves what they hold. The call
// is recorded for that, and not run. `count` comes back 0 where it launches no kernel. `missing`: see find_variables.
int runner_find_variables(const Call* call, const char* const* names, int* count, int* missing) {
    int stage = kSetUp;
    *missing = -1;
    cudaGraph_t graph = nullptr;
    if (int code = cudaStreamBeginCapture(runner.stream, cudaStreamCaptureModeThreadLocal)) return code;
    const int failed = invoke(call, 0, &stage), ended = cudaStreamEndCapture(runner.stream, &graph);
    cudaGetLastError();
    std::vector<CUmodule> modules;
    int code = failed || ended ? kUnrecorded : modules_of(graph, &modules);
    if (!code && !modules.empty()) code = find_variables(modules, names, *count, missing);
    if (!code) code = save_variables();
    if (code) variables.clear();  // whoever asks again finds all of them, or none
    if (graph) cudaGraphDestroy(graph);
    *count = int(variables.size());
    return code;
}

// Which variable does not hold what was saved, by its number; -1 where all do.
int runner_changed_variable(int* changed) {
    *changed = -1;
    for (int i = 0; i < int(variables.size()) && *changed < 0; ++i) {
        if (int code = clear_counters()) return code;
        if (int code = count_changes(i, 1)) return code;
        if (wrote_elsewhere() == kVariableChanged) *changed = i;
    }
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
// `fresh`, or null: before each of them what that call may write is poisoned and its inputs stirred, as in runner_cold.
int runner_capture(const Call* call, const Call* fresh, int copies, uint64_t stirs, uint64_t* nodes, int* stage) {
    *stage = kSetUp;
    if (runner.graph) {
        cudaGraphExecDestroy(runner.graph);
        runner.graph = nullptr;
    }
    if (int code = cudaStreamBeginCapture(runner.stream, cudaStreamCaptureModeThreadLocal)) return code;
    int code = 0;
    for (int i = 0; i < copies && !code; ++i) {
        if (fresh) code = poison_outputs(fresh, 0);
        if (fresh && !code) code = poison_workspace(fresh);
        if (fresh && !code) code = put_variables_back();
        if (fresh && !code) code = stir_inputs(fresh, 0, stirs);
        if (!code) code = invoke(call, 0, stage);
    }
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
    return code ? code : variables_unchanged();
}

// One untimed call, then one that a profiler started with "--profile-from-start off" sees.
int runner_profile(const Call* call, int* stage) {
    if (int code = runner_once(call, 0, 1, stage)) return code;
    if (int code = fill_workspace(call)) return code;
    if (int code = synchronize(stage)) return code;
    if (int code = cudaProfilerStart()) return code;
    int code = invoke(call, 0, stage);
    if (!code) code = synchronize(stage);
    cudaProfilerStop();
    return code;
}

}  // extern "C"
