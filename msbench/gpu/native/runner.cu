// The measuring side of a worker, and the recorder of launchers.
//
// A recorder loads a version's library and captures what its launcher puts into a stream (runner/record.cuh). A worker plays
// that (runner/play.cuh) on the referee's memory: it loads a version's device code alone, so no host code of it runs where time is
// taken. Only versions of vendor libraries are recorded in the worker itself.
//
// Cold times come from a stream that is held: one thread spins on a host-mapped word while a whole batch is enqueued behind
// it, so that the host's launch cost is not in the figures (the method of NVIDIA's nvbench). The spin ends by itself after
// hold_ns.
//
// The runner and the candidate link the same shared CUDA runtime: they share the primary context and the runtime's "last
// error", so a failed launch that the launcher did not report is still seen here.
//
// Here is what the worker and the recorder call; what that is made of is in runner/.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>

#include "runner/call.cuh"
#include "runner/driver.cuh"
#include "runner/hold.cuh"
#include "runner/kernels.cuh"
#include "runner/launch.cuh"
#include "runner/play.cuh"
#include "runner/poison.cuh"
#include "runner/record.cuh"
#include "runner/repetition.cuh"
#include "runner/state.cuh"
#include "runner/variables.cuh"

extern "C" cudaError_t cudaProfilerStart(void);
extern "C" cudaError_t cudaProfilerStop(void);

namespace {

// What a launch costs depends on its number in its stream, modulo four: on an H200 up to a microsecond lies between the
// cheapest and the dearest place. A memset of a few kilobytes is no launch, one of a megabyte is. See cold.
constexpr int kPlaces = 4;

// Empty launches behind the last repetition of a batch: what is enqueued later slows a call a little, and the last three
// repetitions would be up to 0.7 us faster than the others (H200, 2026-11-20).
constexpr int kTrailing = 32;

std::string recorded_text;

Record& record_of(int set) { return records[size_t(set) % records.size()]; }

// What precedes a repetition that is timed, so that nothing of earlier ones is left.
int make_fresh(const Call* call, int set, uint64_t seed, bool local) {
    int code = poison_outputs(call, set);
    if (!code) code = redraw_workspace(call, seed);
    if (!code) code = put_variables_back();
    return code ? code : scrub(local, unsigned(seed));
}

// One repetition after another between two events each. An empty kernel after every fourth repetition moves the following ones
// on by one place: so in any kPlaces² repetitions a call is launched equally often at each place, however many launches a
// repetition has. Without it, a call with an even number of launches would see two places of the four, which ones being a matter
// of what ran before. Where a batch begins is drawn, so that what else goes with the place (the first and the last repetitions)
// is not the same in all batches of a process.
//
// `drawn` is where the row of drawn numbers begins. What repetition `kept` has written (-1: none) is copied aside behind it,
// and back at the end. With `held`, the caller keeps repetitions x commands within what a stream queues (about a thousand), since
// a full queue makes the host wait for a stream that waits for the host.
int cold(const Call* call, Record* empty, int first_set, int repetitions, int held, uint64_t drawn, int kept, float* ms, int* stage) {
    *stage = kSetUp;
    if (repetitions > kMaxRepetitions) return cudaErrorInvalidValue;
    int code = clear_counters();
    if (!code) code = set_guard(call);
    if (!code && kept >= 0) code = reserve_aside(call);
    const bool local = call->poison && uses_local(empty ? *empty : record_of(first_set));
    const uint64_t seed = drawn;
    if (!code && held) code = hold();
    for (uint64_t i = hashed(next_of(drawn)) % kPlaces; i && !code; --i) nothing<<<1, 1, 0, runner.stream>>>();
    for (int i = 0; i < repetitions && !code; ++i) {
        const int set = first_set + i;
        if (i && i % kPlaces == 0) nothing<<<1, 1, 0, runner.stream>>>();
        if (call->poison) code = make_fresh(call, set, hashed(seed + i), local);
        if (!code) code = permute_inputs(call, set, drawn);
        if (!code && runner.flush) code = empty_cache();
        if (!code) code = cudaEventRecord(runner.begin[i], runner.stream);
        if (!code) code = play(empty ? *empty : record_of(set));
        if (!code) code = cudaEventRecord(runner.end[i], runner.stream);
        if (!code && i == kept) code = copy_outputs(call, set, false);
    }
    if (!code && kept >= 0) code = copy_outputs(call, first_set + kept, true);
    for (int i = 0; held && i < kTrailing && !code; ++i) nothing<<<1, 1, 0, runner.stream>>>();
    const bool blocked = held && timed_out();
    release();
    const int ended = synchronize(stage);
    if (code || ended) return code ? code : ended;
    if (blocked) return kBlocked;
    if (int failed = count_overrun(call)) return failed;
    if (int failed = count_changes()) return failed;
    if (int failed = wrote_elsewhere()) return failed;
    for (int i = 0; i < repetitions; ++i)
        if (int failed = cudaEventElapsedTime(&ms[i], runner.begin[i], runner.end[i])) return failed;
    return 0;
}

}  // namespace

extern "C" {

// Opens device 0 of what CUDA_VISIBLE_DEVICES leaves visible, for recording. Call this or runner_open, before anything else.
int recorder_open() {
    if (int code = cudaSetDevice(0)) return code;
    if (int code = cudaStreamCreate(&runner.stream)) return code;
    return find_driver();
}

// The same for playing and timing.
int runner_open(double flush_factor, double hold_seconds) {
    if (int code = recorder_open()) return code;
    cudaDeviceProp properties;
    if (int code = cudaGetDeviceProperties(&properties, 0)) return code;
    runner.multiprocessors = properties.multiProcessorCount;
    runner.shared_bytes = int(properties.sharedMemPerBlockOptin);
    runner.hold_ns = uint64_t(hold_seconds * 1e9);
    runner.flush_bytes = size_t(double(properties.l2CacheSize) * flush_factor);
    for (int i = 0; i < kMaxRepetitions; ++i) {
        if (int code = cudaEventCreate(&runner.begin[i])) return code;
        if (int code = cudaEventCreate(&runner.end[i])) return code;
    }
    if (int code = cudaHostAlloc(reinterpret_cast<void**>(&runner.flags), 2 * sizeof(unsigned), cudaHostAllocMapped)) return code;
    std::memset(runner.flags, 0, 2 * sizeof(unsigned));
    if (int code = cudaMalloc(reinterpret_cast<void**>(&runner.counters), kCounters * sizeof(*runner.counters))) return code;
    if (runner.flush_bytes)
        if (int code = cudaMalloc(&runner.flush, runner.flush_bytes)) return code;
    if (int code = cudaFuncSetAttribute(scrub_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, runner.shared_bytes)) return code;
    // A kernel's first launch loads it, and loading may wait for the device: not while the stream is held.
    release();
    if (int code = hold()) return code;
    release();
    nothing<<<1, 1, 0, runner.stream>>>();
    busy<<<1, 32, 0, runner.stream>>>(0, reinterpret_cast<float*>(runner.counters));
    count_changed<<<1, 32, 0, runner.stream>>>(nullptr, 0, kPoison, runner.counters);
    put_back<<<1, 32, 0, runner.stream>>>(nullptr, 0);
    count_unlike<<<1, 32, 0, runner.stream>>>(nullptr, 0, runner.counters);
    redraw<<<1, 32, 0, runner.stream>>>(nullptr, 0, 0);
    permute<<<1, kMaxElementBytes, 0, runner.stream>>>(Swaps{});
    if (int code = scrub(true, 0)) return code;
    if (int code = clear_counters()) return code;
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

// Loads a version's device code, `bytes` of a section .nv_fatbin, and finds and saves its variables. `missing`: see find_variables.
int runner_load(const unsigned char* image, size_t bytes, const char* const* names, int count, int* missing) {
    *missing = -1;
    if (int code = load_device_code(image, bytes)) return code;
    if (int code = find_variables(names, count, missing)) return code;
    return save_variables();
}

int runner_map(const char* handle, void** pointer) {
    cudaIpcMemHandle_t opened;
    std::memcpy(&opened, handle, sizeof(opened));
    return cudaIpcOpenMemHandle(pointer, opened, cudaIpcMemLazyEnablePeerAccess);
}

int runner_allocate(size_t bytes, void** pointer) { return cudaMalloc(pointer, bytes); }

int runner_copy(void* to, const void* from, size_t bytes) { return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice); }

// Memory of the referee's that workspaces lie in from here on, where they fit; null for none.
void runner_lend(void* memory, size_t bytes) {
    runner.lent = static_cast<unsigned char*>(memory);
    runner.lent_capacity = bytes;
}

int runner_unmap(void* pointer) {
    if (pointer == runner.lent) runner_lend(nullptr, 0);
    return cudaIpcCloseMemHandle(pointer);
}

// Gives its own memory back until it is needed again.
int runner_rest() {
    int code = runner.own ? cudaFree(runner.own) : cudaSuccess;
    if (!code && runner.aside) code = cudaFree(runner.aside);
    runner.own = runner.aside = nullptr;
    runner.own_capacity = runner.aside_capacity = 0;
    return code;
}

// Makes room for a workspace and the guard behind it: in what was lent, else in memory of its own, which stays where it is while
// it is large enough. `workspace` is where, or null for none.
int runner_reserve(size_t bytes, void** workspace) {
    *workspace = nullptr;
    if (!bytes) return 0;
    runner.workspace = runner.lent;
    if (bytes + kGuardBytes > runner.lent_capacity) {
        if (bytes + kGuardBytes > runner.own_capacity) {
            if (int code = runner_rest()) return code;
            if (int code = cudaMalloc(reinterpret_cast<void**>(&runner.own), bytes + kGuardBytes)) return code;
            runner.own_capacity = bytes + kGuardBytes;
        }
        runner.workspace = runner.own;
    }
    *workspace = runner.workspace;
    return 0;
}

// Records one call on input set `set`: its operations as a list of JSON, and what the launcher took the host. With `keep`
// they are kept as the next record of the current call, to be played here.
int runner_record(const Call* call, void* workspace, int set, int keep, const char** text, double* host_ns, int* stage) {
    runner.workspace = static_cast<unsigned char*>(workspace);
    cudaGraph_t graph = nullptr;
    Record record;
    int code = capture(call, set, &graph, host_ns, stage);
    if (!code) code = read_graph(graph, &record, &recorded_text);
    for (size_t i = 0; keep && !code && i < record.size(); ++i)
        if (record[i].function) code = allow_shared(record[i]);
    if (keep && !code) {
        if (!record.empty()) record.front().node.early = 0;  // nothing of a repetition may begin before it
        records.push_back(std::move(record));
        graphs.push_back(graph);
    } else if (graph) {
        cudaGraphDestroy(graph);
    }
    *text = recorded_text.c_str();
    return code;
}

void runner_forget_records() {
    records.clear();
    for (cudaGraph_t graph : graphs) cudaGraphDestroy(graph);
    graphs.clear();
}

// Takes what another process recorded as the next record of the current call. `unknown` is the last operation that was looked at.
int runner_take(const Node* nodes, int count, int* unknown) {
    Record record;
    const int code = take(nodes, count, &record);
    *unknown = int(record.size()) - 1;
    if (!code) records.push_back(std::move(record));
    return code;
}

// One call and its end: its record is played, or where there is none the launcher is called. Before, the workspace is redrawn and
// what is left in shared and local memory is scrubbed (`fresh`), every second time also between its operations, which share global
// memory alone; the other times they may overlap. The guard around the workspace is looked at afterwards.
int runner_once(const Call* call, int fresh, uint64_t seed, int* stage) {
    *stage = kSetUp;
    const auto scrubbed = [&] { return int(scrub(!records.empty() && uses_local(records[0]), unsigned(seed))); };
    if (fresh) {
        if (int code = fill_workspace(call, seed)) return code;
        if (int code = scrubbed()) return code;
    }
    if (int code = clear_counters()) return code;
    const bool apart = fresh && seed % 2;
    if (int code = records.empty() ? invoke(call, 0, stage) : play(records[0], apart ? scrubbed : std::function<int()>())) {
        cudaDeviceSynchronize();
        return code;
    }
    if (int code = synchronize(stage)) return code;
    if (int code = count_overrun(call)) return code;
    if (int code = count_changes()) return code;
    return wrote_elsewhere();
}

// Calls a library's launcher on every input set, so that it sets itself up. The outputs stay as they are.
int runner_prepare(const Call* call, int* stage) {
    *stage = kSetUp;
    if (int code = reserve_aside(call)) return code;
    for (int set = 0; set < call->sets; ++set) {
        int code = copy_outputs(call, set, false);
        if (!code) code = invoke(call, set, stage);
        if (!code) code = synchronize(stage);
        if (!code) code = copy_outputs(call, set, true);
        if (code) return code;
    }
    return synchronize(stage);
}

// Keeps all multiprocessors busy, so that the clocks are up.
int runner_busy(double seconds) {
    busy<<<2 * runner.multiprocessors, 256, 0, runner.stream>>>(
        static_cast<unsigned long long>(seconds * 1e9), reinterpret_cast<float*>(runner.counters));
    if (int code = cudaGetLastError()) return code;
    return cudaStreamSynchronize(runner.stream);
}

// Cold repetitions on the input sets first_set, first_set + 1, …: ms[i] is the device time of repetition i. At most
// kMaxRepetitions. See cold.
int runner_cold(const Call* call, int first_set, int repetitions, int held, uint64_t drawn, int kept, float* ms, int* stage) {
    return cold(call, nullptr, first_set, repetitions, held, drawn, kept, ms, stage);
}

// The same with so many empty kernels as a call, and no arrays.
int runner_floor(int launches, int repetitions, uint64_t drawn, float* ms, int* stage) {
    Record record;
    if (int code = record_nothing(launches, &record)) return code;
    const Call call{};
    return cold(&call, &record, 0, repetitions, 1, drawn, -1, ms, stage);
}

// Plays calls in a row on all input sets in turn, with nothing between them (`launches` above 0: so many empty kernels as a call):
// ms[i] is the device time of `plays` of them, of `samples` rows. `warm`: behind a call on each set.
int runner_hot(int launches, int plays, int samples, int warm, float* ms, int* stage) {
    *stage = kSetUp;
    if (samples > kMaxRepetitions) return cudaErrorInvalidValue;
    Record empty;
    if (launches)
        if (int code = record_nothing(launches, &empty)) return code;
    const auto one = [&](int i) { return play(launches ? empty : record_of(i)); };
    int code = clear_counters();
    for (int s = 0; s < samples && !code; ++s) {
        if (warm && runner.flush) code = empty_cache();  // who had L2 keep something is not to slow its rivals down
        if (!code) code = hold();
        for (size_t i = 0; warm && i < (launches ? 1 : records.size()) && !code; ++i) code = one(int(i));
        if (!code) code = cudaEventRecord(runner.begin[s], runner.stream);
        for (int i = 0; i < plays && !code; ++i) code = one(i);
        if (!code) code = cudaEventRecord(runner.end[s], runner.stream);
        const bool blocked = timed_out();
        release();
        const int ended = synchronize(stage);
        if (!code) code = ended ? ended : blocked ? kBlocked : 0;
        if (!code) code = cudaEventElapsedTime(&ms[s], runner.begin[s], runner.end[s]);
    }
    if (!code) code = count_changes();
    return code ? code : wrote_elsewhere();
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
// `launch` is what is timed, call->launch or a part of it, or null for an empty kernel; `before` and `after` (or null) surround
// it and are not timed. `cold`: L2 is emptied first. At most kMaxRepetitions.
int runner_whole(const Call* call, Launch launch, Hook before, Hook after, int first_set, int repetitions, int cold, double* ns,
                 int* stage) {
    *stage = kSetUp;
    if (repetitions > kMaxRepetitions) return cudaErrorInvalidValue;
    for (int i = 0; i < repetitions; ++i) {
        const int set = first_set + i;
        if (i && i % kPlaces == 0) nothing<<<1, 1>>>();  // as in cold
        int code = call->poison ? poison_outputs(call, set) : 0;
        if (!code) code = synchronize(stage);
        if (!code && before) code = before(row_of(call, set), call->scalars, call->dims);
        if (!code && cold && runner.flush) code = empty_cache();
        if (!code) code = synchronize(stage);
        if (code) return code;
        const auto start = std::chrono::steady_clock::now();
        if (launch) {
            code = invoke_on(nullptr, launch, call, set, stage);
        } else {
            nothing<<<1, 1>>>();
        }
        const int ended = cudaDeviceSynchronize();
        ns[i] = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
        if (!code && ended) *stage = kKernel;
        if (code || ended) return code ? code : ended;
        if (after)
            if (int failed = after(row_of(call, set), call->scalars, call->dims)) return failed;
    }
    return 0;
}

// One untimed call, then one that a profiler started with "--profile-from-start off" sees, in a stream of its own, by which its
// kernels are told from another call's.
int runner_profile(const Call* call, int* stage) {
    if (int code = runner_once(call, 1, 1, stage)) return code;
    if (int code = fill_workspace(call, 2)) return code;
    if (int code = synchronize(stage)) return code;
    if (int code = cudaStreamCreate(&runner.stream)) return code;
    if (int code = cudaProfilerStart()) return code;
    int code = invoke(call, 0, stage);
    if (!code) code = synchronize(stage);
    cudaProfilerStop();
    return code;
}

}  // extern "C"
