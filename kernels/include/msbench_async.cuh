// Copies that run by themselves: mbarriers, bulk copies, tensor maps (TMA), and rings of stages between who copies and who uses.
//
//     __shared__ Ring<kStages> ring;
//     if (threadIdx.x == 0) ring.init(kConsumerWarps);
//     __syncthreads();
//     copies:  RingPosition<kStages> at;  each step: ring.acquire(at, bytes); copy_bulk(…, ring.filled[at.stage]); at.advance();
//     uses:    RingPosition<kStages> at;  each step: ring.wait(at); …; ring.release(at.stage) by a lane of each warp; at.advance();
//
// sm_90a. Bulk copies need addresses and sizes that are multiples of 16 bytes.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "msbench_mma.cuh"  // shared_address

namespace msbench {

// ---------------------------------------------------------------- barriers

struct Barrier {
    uint64_t state;

    // `arrivals` end a phase, together with the bytes that it was told to expect.
    __device__ __forceinline__ void init(int arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
    }
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
    }
    // Arrives, and lets the phase end only after so many bytes have been copied.
    __device__ __forceinline__ void expect(int bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes) : "memory");
    }
    // Waits until the phase of this parity has ended. A fresh barrier is in phase 0: a wait for parity 1 passes.
    __device__ __forceinline__ void wait(int parity) {
        unsigned done;
        do {
            asm volatile(
                "{\n.reg .pred p;\n"
                "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                "selp.u32 %0, 1, 0, p;\n}"
                : "=r"(done)
                : "r"(shared_address(this)), "r"(parity)
                : "memory");
        } while (!done);
    }
};

// Makes initialised barriers visible to the copy engine and the cluster; before the block's first __syncthreads().
__device__ __forceinline__ void fence_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

// Before a barrier that hands what this thread wrote to shared memory to wgmma or to a bulk copy.
__device__ __forceinline__ void fence_shared_writes() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---------------------------------------------------------------- rings

// A place in a ring's endless walk over its stages.
template <int kStages>
struct RingPosition {
    int stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) stage = 0, parity ^= 1;
    }
};

template <int kStages>
struct Ring {
    Barrier filled[kStages], emptied[kStages];

    // One thread fills; `consumers` release a stage each.
    __device__ __forceinline__ void init(int consumers, int producers = 1) {
        for (int s = 0; s < kStages; ++s) filled[s].init(producers), emptied[s].init(consumers);
        fence_barriers();
    }
    // Waits until the stage is free; copies of so many bytes will fill it.
    __device__ __forceinline__ void acquire(RingPosition<kStages> at, int bytes) {
        emptied[at.stage].wait(at.parity ^ 1);  // the first round passes
        filled[at.stage].expect(bytes);
    }
    __device__ __forceinline__ void wait(RingPosition<kStages> at) { filled[at.stage].wait(at.parity); }
    __device__ __forceinline__ void release(int stage) { emptied[stage].arrive(); }
};

// ---------------------------------------------------------------- copies

__device__ __forceinline__ void copy_bulk(void* shared, const void* global, int bytes, Barrier& barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(&barrier))
                 : "memory");
}

__device__ __forceinline__ void prefetch(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box at (x, y) of a matrix; x runs along rows. Zeros stand for what lies outside, and count.
__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap* map, Barrier& barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            shared_address(shared)),
        "l"(map), "r"(shared_address(&barrier)), "r"(x), "r"(y)
        : "memory");
}

__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap* map, Barrier& barrier, int x, int y, int z, int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
            shared_address(shared)),
        "l"(map), "r"(shared_address(&barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

// ---------------------------------------------------------------- warp groups

// Registers that a warp group gives up, or gets: of a block of 384 threads, 40 and 232 fit together.
template <int kRegisters>
__device__ __forceinline__ void give_up_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void get_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A barrier of `threads` threads only; 0 is the block's own.
__device__ __forceinline__ void sync_named(int barrier, int threads) {
    asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_named(int barrier, int threads) {
    asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---------------------------------------------------------------- tensor maps

// Describes arrays of 16-bit elements to the copy engine; false where the driver cannot.
class TensorMaps {
   public:
    TensorMaps() {
        cudaDriverEntryPointQueryResult found;
        void* function = nullptr;
        status_ = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
        if (status_ == cudaSuccess && !function) status_ = cudaErrorNotSupported;
        encode_ = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
    }

    // `sizes` and `box` from the fastest axis on; `strides`, in bytes, of the others. The array starts on 16 bytes, strides are
    // multiples of 16, and a row of the box has the swizzle's bytes.
    template <int kRank>
    cudaError_t describe(CUtensorMap* map, CUtensorMapDataType type, const void* array, const cuuint64_t (&sizes)[kRank],
                         const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank],
                         CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) const {
        if (status_ != cudaSuccess) return status_;
        cuuint32_t steps[kRank];
        for (cuuint32_t& step : steps) step = 1;
        const CUresult result = encode_(map, type, kRank, const_cast<void*>(array), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                        swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
    }

   private:
    cudaError_t status_;
    decltype(&cuTensorMapEncodeTiled) encode_;
};

}  // namespace msbench
