// What a kernel may ask of the runtime (msbench/emulator/runtime/*.cpp, compiled once and linked into every kernel).
// Everything that device headers do rests on these few functions.
#ifndef MSBENCH_CPU_RUNTIME_HPP
#define MSBENCH_CPU_RUNTIME_HPP

#include "errors.hpp"
#include "vector_types.hpp"

// Set by the scheduler whenever it resumes a thread. initial-exec: one load, no call, also from a shared library.
#define MSBENCH_CPU_TLS __attribute__((tls_model("initial-exec")))
extern constinit thread_local uint3 threadIdx MSBENCH_CPU_TLS;
extern constinit thread_local uint3 blockIdx MSBENCH_CPU_TLS;
extern constinit thread_local dim3 blockDim MSBENCH_CPU_TLS;
extern constinit thread_local dim3 gridDim MSBENCH_CPU_TLS;
static constexpr int warpSize = 32;

namespace msbench_cpu {

// ------------------------------------------------------------------ threads and blocks

/// x + y * Dx + z * Dx * Dy, the linear index by which threads are cut into warps.
MSBENCH_CPU_INLINE unsigned thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
MSBENCH_CPU_INLINE unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }
MSBENCH_CPU_INLINE unsigned lane() { return thread_rank() & 31u; }

/// Lets the other threads of the block run. What a thread that waits for another one's progress has to do.
void yield();

/// How many atomics a thread may run before it yields: enough that no ordinary kernel notices.
extern constinit thread_local int atomics_left MSBENCH_CPU_TLS;
MSBENCH_CPU_INLINE void count_atomic() {
    if (--atomics_left < 0) yield();
}

/// The block's clock: each call advances it, each block begins at 0. 0 outside of kernels.
long long ticks();

/// Ends the launch with an error that names the place. Does not return.
[[noreturn]] void fail(cudaError_t error, const char* message, const Site& site);

// ------------------------------------------------------------------ barriers

/// What __syncthreads_count/_and/_or return.
struct Votes {
    int count, all, any;
};

void block_barrier(const Site& site);
Votes block_barrier_vote(int predicate, const Site& site);
void grid_barrier(const Site& site);
bool cooperative();

// ------------------------------------------------------------------ warps

/// The warp-wide operations; all lanes of a mask have to be in the same one.
enum class Collective : unsigned char { sync, shuffle, vote, match, reduce };

constexpr unsigned slot_bytes = 16;
struct alignas(16) Slot {
    unsigned char bytes[slot_bytes];
};

/// What the lanes of a mask deposited, and which of them were there.
struct Exchange {
    const Slot* slots;
    uint32_t present;
};

/// Deposits `size` bytes, waits for every live lane of `mask`, returns all lanes' deposits. A lane that did not take
/// part reads as 0xFF bytes (NaN for every float type).
Exchange warp_exchange(uint32_t mask, const void* value, unsigned size, Collective kind, const Site& site);

/// The lanes that run together with the caller, found by letting every other thread run up to its next wait.
uint32_t active_mask(const Site& site);

// ------------------------------------------------------------------ shared memory

/// A number for one __shared__ declaration (in one instantiation of its function).
unsigned new_shared_slot();

/// The block's own copy of variable number `slot`; filled with 0xFF when a block first comes by.
void* shared_variable(unsigned slot, size_t size, size_t align, const char* name);

/// extern __shared__: as many bytes as the launch asked for, filled with 0xFF.
void* dynamic_shared();
size_t dynamic_shared_size();

template <class S>
inline const unsigned shared_slot = new_shared_slot();

template <class S>
inline S& shared(const char* name) {
    return *static_cast<S*>(shared_variable(shared_slot<S>, sizeof(S), alignof(S), name));
}

/// `extern __shared__ T name[];` outside of any function.
template <class T>
struct DynamicShared {
    operator T*() const { return static_cast<T*>(dynamic_shared()); }
    T* operator+() const { return *this; }  // the rewriter's, where a cast asks for a pointer and takes no class
};

// ------------------------------------------------------------------ launches

/// One launch as the runtime sees it: `call(context)` runs the kernel for the thread that threadIdx names.
struct Launch {
    const char* kernel;
    const void* function;  // what cudaFuncSetAttribute knows the kernel by; null where that can't be told
    dim3 grid, block;
    size_t shared_bytes;
    bool cooperative;
    void (*call)(const void* context);
    const void* context;
};

/// Runs all blocks and returns; an error is what cudaGetLastError then answers.
cudaError_t run(const Launch& launch);

/// Remembers that a kernel was launched on the default stream; see exports.cpp.
void count_default_stream();

/// The dynamic shared memory that a kernel was allowed by cudaFuncSetAttribute (48 KiB without; the most that any
/// kernel was allowed where `kernel` is null).
size_t allowed_shared_bytes(const void* kernel);
void allow_shared_bytes(const void* kernel, size_t bytes);

}  // namespace msbench_cpu

#endif
