"""Prints what compiling a kernel and running a CUDA thread cost on the cpu executor, here: ``python -m tests.emulator.cost``.

Processor time of one worker, the least of five runs, so that other load on the machine matters little. The figures in
docs/cpu_executor.md come from it. Set MSBENCH_CACHE to an empty folder to see what a first build costs.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from msbench import emulator

THREADS = 2**20
KERNELS = Path(__file__).parent / "kernels"


def least(run: Callable[[], object]) -> float:
    """Seconds of processor time of the best of five runs."""
    times = []
    for _ in range(5):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    started = time.monotonic()
    source = (KERNELS / "cost.cu").read_text()
    built = emulator.build(source, "cost.cu", include_dirs=(KERNELS,))
    print(f"compiling: {built.seconds:.2f} s ({time.monotonic() - started:.2f} s with what is prepared once)")
    library = ctypes.CDLL(str(built.library))
    library.msbench_cpu_configure(0, ctypes.c_uint64(0), 1, ctypes.c_double(0))
    arrays = [np.zeros(THREADS, dtype=np.float32) for _ in range(3)]
    arguments = [*(ctypes.c_void_p(a.ctypes.data) for a in arrays), THREADS]
    found = {}
    for name in ("no_barrier", "one_barrier", "eleven_barriers", "five_shuffles"):
        function = getattr(library, name)
        found[name] = least(lambda call=function: call(*arguments)) * 1e9 / THREADS
        print(f"{name}: {found[name]:.1f} ns a thread")
    print(f"each further barrier: {(found['eleven_barriers'] - found['one_barrier']) / 10:.1f} ns a thread")
    start = time.perf_counter()
    for _ in range(1000):
        library.one_block(*arguments)
    print(f"a launch of one warp: {(time.perf_counter() - start) * 1e3:.1f} us of wall time")


if __name__ == "__main__":
    main()
