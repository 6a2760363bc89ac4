"""Measures a device's ceilings: bandwidths, matrix rates and launch costs, once, in the referee's process.

Bandwidths and launch costs are medians of several timings by events, after a warm-up; matrix rates are those of the
shortest single call. All on random data (zeros draw less power and run faster).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from msbench.gpu.telemetry import Telemetry
from msbench.model import Ceilings

COPY_BYTES = 4 * 2**30
"""Bytes of each large buffer, where the device's memory allows: far above any L2."""

MATRIX_ORDERS = (4096, 8192)
"""Orders of the matrices whose products are timed; the faster one counts."""

_REPEATS = 9
_BURSTS = 12
_PAUSE_S = 0.02
_L2_SHARE = 0.27  # of L2 that the two buffers of the L2 copy take together: 16 MiB of an H200's 60
_L2_PASSES = 200
_LAUNCHES = 128
_ROW = 200
_THREADS = 512


class Launches(Protocol):
    """What times empty kernels: a ``MeasuredProcess``."""

    def floor(self, repetitions: int) -> tuple[float, ...]: ...

    def hot(self, plays: int, samples: int, *, launches: int) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class _Matrix:
    """A product that cuBLAS does: the type of its elements, of its arithmetic, and of alpha and beta."""

    dtype: Any
    data_type: int
    compute_type: int
    scalar: Any


def measure(launches: Callable[[], Launches], multiprocessors: int, l2_bytes: int, telemetry: Telemetry) -> Ceilings:
    """Measure everything; takes a few seconds and about 9 GiB of device memory (less where there is less).

    ``launches`` starts a worker, which has the empty kernel and the held stream of ordinary measurements; it is asked for last, so that
    its program may be compiled meanwhile.
    """
    import cupy

    bandwidth = _bandwidths(cupy, multiprocessors, l2_bytes)
    rates = {}
    for name, kind in _matrices(cupy).items():
        rates[name] = _matrix_rate(cupy, kind)
        telemetry.sample()
    cupy.get_default_memory_pool().free_all_blocks()
    worker = launches()
    launch_ns = median(worker.floor(_LAUNCHES))
    graph_node_ns = median(worker.hot(_ROW, _REPEATS, launches=1)) / _ROW
    return Ceilings(
        copy_bytes_per_s=bandwidth["copy"],
        read_bytes_per_s=bandwidth["read"],
        write_bytes_per_s=bandwidth["write"],
        l2_copy_bytes_per_s=bandwidth["copy_in_l2"],
        fp32_flops=rates["fp32"],
        tf32_flops=rates["tf32"],
        bf16_flops=rates["bf16"],
        fp64_flops=rates["fp64"],
        launch_ns=launch_ns,
        graph_node_ns=graph_node_ns,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        sm_clock_mhz=telemetry.conditions().sm_clock_mhz,
    )


def _bandwidths(cupy: Any, multiprocessors: int, l2_bytes: int) -> dict[str, float]:
    """Bytes read plus bytes written, a second, by kind of traffic."""
    source = Path(__file__).with_name("native").joinpath("ceilings.cu").read_text(encoding="utf-8")
    module = cupy.RawModule(code=source, options=("-std=c++17",))
    free, _ = cupy.cuda.runtime.memGetInfo()
    nbytes = min(COPY_BYTES, free // 4) // 4096 * 4096
    count = nbytes // 16
    a, b = cupy.empty(nbytes // 4, dtype=cupy.float32), cupy.empty(nbytes // 4, dtype=cupy.float32)
    a[...] = cupy.arange(a.size, dtype=cupy.uint32).view(cupy.float32)
    b[...] = a
    grid = (multiprocessors * 4,)

    def launcher(name: str, *arguments: Any) -> Callable[[], None]:
        kernel = module.get_function(name)
        return lambda: kernel(grid, (_THREADS,), arguments)

    # The driver's own copy may beat a simple kernel, and the other way round.
    copies = (
        launcher("copy", a, b, cupy.int64(count)),
        lambda: cupy.cuda.runtime.memcpyAsync(b.data.ptr, a.data.ptr, nbytes, 3, cupy.cuda.get_current_stream().ptr),
    )
    fills = (
        launcher("write", b, cupy.float32(1.5), cupy.int64(count)),
        lambda: cupy.cuda.runtime.memsetAsync(b.data.ptr, 0x3C, nbytes, cupy.cuda.get_current_stream().ptr),
    )
    small = int(l2_bytes * _L2_SHARE / 2) // 4096 * 4096
    in_l2 = launcher("copy_in_l2", a, b, cupy.int64(small // 16), cupy.int32(_L2_PASSES))
    return {
        "copy": max(2 * nbytes / _seconds(cupy, copy) for copy in copies),
        "read": nbytes / _seconds(cupy, launcher("read", a, b, cupy.int64(count))),
        "write": max(nbytes / _seconds(cupy, fill) for fill in fills),
        "copy_in_l2": 2 * small * _L2_PASSES / _seconds(cupy, in_l2) if small else 0.0,
    }


def _matrices(cupy: Any) -> dict[str, _Matrix]:
    import ml_dtypes
    import numpy as np
    from cupy.cuda import cublas

    runtime = cupy.cuda.runtime
    single, double, brain = runtime.CUDA_R_32F, runtime.CUDA_R_64F, runtime.CUDA_R_16BF
    return {
        "fp32": _Matrix(np.float32, single, cublas.CUBLAS_COMPUTE_32F, np.float32),
        "tf32": _Matrix(np.float32, single, cublas.CUBLAS_COMPUTE_32F_FAST_TF32, np.float32),
        "bf16": _Matrix(ml_dtypes.bfloat16, brain, cublas.CUBLAS_COMPUTE_32F, np.float32),
        "fp64": _Matrix(np.float64, double, cublas.CUBLAS_COMPUTE_64F, np.float64),
    }


def _matrix_rate(cupy: Any, kind: _Matrix) -> float:
    """FLOP/s of the best square product through cuBLAS, counting 2 n^3."""
    return max(_product_rate(cupy, kind, order) for order in MATRIX_ORDERS)


def _product_rate(cupy: Any, kind: _Matrix, order: int) -> float:
    import numpy as np
    from cupy.cuda import cublas, device

    # A cheap hash of the index: values spread over [-1, 1), no generator library needed.
    index = cupy.arange(order * order, dtype=cupy.uint32)
    bits = (index * cupy.uint32(2654435761)) ^ (index >> cupy.uint32(7)) * cupy.uint32(2246822519)
    values = bits.astype(cupy.float32) * cupy.float32(2.0**-31) - cupy.float32(1)
    a, b = values.astype(kind.dtype), values[::-1].astype(kind.dtype)
    c = cupy.empty(a.nbytes, dtype=cupy.uint8)
    one, zero = np.ones(1, dtype=kind.scalar), np.zeros(1, dtype=kind.scalar)
    handle = device.get_cublas_handle()
    cublas.setStream(handle, cupy.cuda.get_current_stream().ptr)
    cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
    n, t = order, kind.data_type

    def product() -> None:
        cublas.gemmEx(
            handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, n, n, one.ctypes.data, a.data.ptr, t, n,
            b.data.ptr, t, n, zero.ctypes.data, c.data.ptr, t, n, kind.compute_type, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    return 2 * order**3 / _shortest_seconds(cupy, product)


def _shortest_seconds(cupy: Any, work: Callable[[], None]) -> float:
    """The shortest time of a single call after a pause.

    A long row of products runs into the power limit, and the clocks fall below what a single call of a kernel runs at.
    A ceiling that honest calls exceed is none.
    """
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    work()
    times = []
    for _ in range(_BURSTS):
        cupy.cuda.runtime.deviceSynchronize()
        time.sleep(_PAUSE_S)
        work()  # raises the clocks again
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3)
    return min(times)


def _seconds(cupy: Any, work: Callable[[], None]) -> float:
    """The median time of one call, after warming up for as long as clocks take to rise."""
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()

    def timed(calls: int) -> float:
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3 / calls

    timed(2)
    calls = max(1, min(20, int(0.02 / timed(1))))
    timed(3 * calls)
    return median(timed(calls) for _ in range(_REPEATS))
