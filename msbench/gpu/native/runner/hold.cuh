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

bool timed_out() { return static_cast<volatile unsigned*>(runner.flags)[1] == runner.ticket; }

}  // namespace
