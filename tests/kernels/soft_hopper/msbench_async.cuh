// Bulk copies, their barriers and named barriers for the emulator: what msbench_split_tiles.cuh uses of kernels/include/msbench_async.cuh.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "msbench_mma.cuh"

namespace msbench {

// Threads take turns, so nothing else runs between two lines that don't yield.
struct Barrier {
    int arrivals, missing, bytes, phase;

    void init(int count) {
        arrivals = missing = count;
        bytes = phase = 0;
    }
    void arrive(int more_bytes = 0) {
        bytes += more_bytes, --missing;
        turn();
    }
    void expect(int more_bytes) { arrive(more_bytes); }
    void complete(int count) {
        bytes -= count;
        turn();
    }
    void turn() {
        if (missing == 0 && bytes == 0) missing = arrivals, phase ^= 1;
    }
    void wait(int parity) {
        while (*static_cast<volatile int*>(&phase) == parity) msbench_cpu::yield();
    }
};

template <int kStages>
struct RingPosition {
    int stage = 0, parity = 0;

    void advance() {
        if (++stage == kStages) stage = 0, parity ^= 1;
    }
};

template <int kStages>
struct Ring {
    Barrier filled[kStages], emptied[kStages];

    void init(int consumers, int producers = 1) {
        for (int s = 0; s < kStages; ++s) filled[s].init(producers), emptied[s].init(consumers);
    }
    void acquire(RingPosition<kStages> at, int bytes) {
        emptied[at.stage].wait(at.parity ^ 1);
        filled[at.stage].arrive(bytes);
    }
    void wait(RingPosition<kStages> at) { filled[at.stage].wait(at.parity); }
    void release(int stage) { emptied[stage].arrive(); }
};

inline void copy_bulk(void* shared, const void* global, int bytes, Barrier& barrier) {
    std::memcpy(shared, global, bytes);
    barrier.complete(bytes);
}

inline void fence_barriers() {}
inline void fence_shared_writes() {}
template <int kCount>
inline void give_up_registers() {}
template <int kCount>
inline void get_registers() {}

inline void sync_named(int barrier, int threads) {
    static thread_local int arrived[16], turns[16];
    const int turn = turns[barrier];
    if (++arrived[barrier] == threads) {
        arrived[barrier] = 0, ++turns[barrier];
    } else {
        while (*static_cast<volatile int*>(&turns[barrier]) == turn) msbench_cpu::yield();
    }
}

}  // namespace msbench
