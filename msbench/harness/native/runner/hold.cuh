// A stream that waits until it is released, or until hold_ns have passed.
#pragma once

#include <cuda_runtime.h>

#include "kernels.cuh"
#include "state.cuh"

namespace {

int hold() {
    ++runner.ticket;
    hold_stream<<<1, 1, 0, runner.stream>>>(runner.flags, runner.ticket, runner.hold_ns);
    return cudaGetLastError();
}

void release() { *static_cast<volatile unsigned*>(runner.flags) = runner.ticket; }

// Whether work waits on the thread's own default stream while ours is held. Its handle is a number that no symbol shows, and work that
// is left there by an event of ours may end before anybody sees it: only while the event is held does it wait for certain.
bool waits_on_own_stream() {
    const bool waits = cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady;
    cudaGetLastError();
    return waits;
}

bool timed_out() { return static_cast<volatile unsigned*>(runner.flags)[1] == runner.ticket; }

}  // namespace
