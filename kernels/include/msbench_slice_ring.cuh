// Entries of slices (msbench_slice_layout.cuh) on their way through shared memory: each warp has a ring of its own, which cp.async fills.
#pragma once

#include "msbench_slice_layout.cuh"
#ifdef __NVCC__
#include "msbench_mma.cuh"  // shared_address
#endif

namespace msbench {

constexpr int kRing = 2;  // chunks that a warp has under way

constexpr int ring_bytes(int units) {
    return kRing * units * kUnitBytes;
}

#ifndef __NVCC__
__device__ inline unsigned shared_address(const void* p) {
    return unsigned(__cvta_generic_to_shared(p));
}
#endif

// A load that stays where it is written, ahead of the next branch, at an address of 32 bits whose overflow drops marks.
__device__ __forceinline__ uint4 load_shared(const char* base, unsigned offset) {
#ifdef __NVCC__
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(shared_address(base) + offset));
    return x;
#else
    return *reinterpret_cast<const uint4*>(base + offset);
#endif
}

__device__ inline void copy_async(const void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// And asks for the 256 bytes around it, from memory to L2.
__device__ inline void copy_async_ahead(const void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kLeft>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// A warp's stream of slices, in chunks of kChunkUnits units.
template <int kChunkUnits>
class RingedStream {
   public:
    __device__ __forceinline__ RingedStream(const Slices& a, const Stream& head, char* ring)
        : entries_(a.entries + int64_t(head.first) * kUnitBytes + threadIdx.x % 32 * 16), ring_(ring), units_(head.units) {
        __syncwarp();  // an earlier stream may still be read
#pragma unroll
        for (int chunk = 0; chunk < kRing - 1; ++chunk) issue(chunk);
    }
    // Calls take(number, where) for each unit.
    template <typename Take>
    __device__ __forceinline__ void walk(Take take) const {
#pragma unroll 1
        for (int chunk = 0; chunk * kChunkUnits < units_; ++chunk) {
            wait_for_copies<kRing - 2>();
            __syncwarp();
            issue(chunk + kRing - 1);
            const char* const at = ring_ + chunk % kRing * kChunkBytes;
#pragma unroll
            for (int u = 0; u < kChunkUnits; ++u) {
                if (chunk * kChunkUnits + u >= units_) break;
                take(chunk * kChunkUnits + u, at + u * kUnitBytes);
            }
        }
    }

   private:
    static constexpr int kChunkBytes = kChunkUnits * kUnitBytes;

    __device__ __forceinline__ void issue(int chunk) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int at = 0; at < kChunkBytes; at += 512) {
            if (chunk * kChunkUnits < units_)
                copy_async(ring_ + chunk % kRing * kChunkBytes + at + lane * 16, entries_ + chunk * kChunkBytes + at);
        }
        commit_copies();
    }

    const char* entries_;  // of this lane
    char* ring_;
    int units_;
};

}  // namespace msbench
