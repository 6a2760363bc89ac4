"""A kernel that is slower by a known time: all blocks that start with it first wait for a number of clock cycles.

The number is a constant in the source, and the kernel that it is compared with has the same code with another one,
BASE. What follows the wait is the same for both, so the one takes longer by the difference, give or take a turn of its loop
(some ten nanoseconds), whatever the kernel does and however long it takes: blocks that start when others have ended don't
wait. Nothing of this rests on how msbench measures.
"""

from __future__ import annotations

BASE = 400
"""Cycles that both wait: the first turn back in a loop fetches its code once more, which takes longer than a short wait."""

_KERNEL = "__global__"
_REGISTERS = 65536  # of a multiprocessor, since compute capability 3.5
_REGISTERS_AT_ONCE = 256  # that a warp gets
_WARPS_AT_ONCE = 4

_WAIT = """\
// Made by msbench study: the blocks of the first wave wait for {cycles} cycles.
__device__ __forceinline__ void msbench_wait() {{
    const unsigned warps = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;
    const unsigned resident = max(1u, min(min(32u, 64u / warps), {warps}u / warps));
    const unsigned long long block = blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
    if (block >= {multiprocessors}ull * resident) return;
    for (const long long start = clock64(); clock64() - start < {cycles}ll;) {{
    }}
    asm volatile("" ::: "memory");  // nothing is loaded before
}}
"""


def is_single(source: str) -> bool:
    """Whether a file has one kernel that is launched at one place outside of any loop."""
    launcher = source.partition('extern "C"')[2]
    once = source.count(_KERNEL) == source.count("<<<") == launcher.count("<<<") == 1
    return once and "for (" not in launcher and "while (" not in launcher


def delayed(source: str, cycles: int, *, multiprocessors: int, registers: int) -> str:
    """``source`` with a wait of ``cycles`` at the beginning of its kernel.

    ``registers`` is what the kernel uses for each thread: with the block's size it says how many blocks run at a time on
    each of the device's ``multiprocessors`` (with 64 warps each, as on compute capability 8.0, 9.0 and 10.0).

    Raises:
        ValueError: the file has no kernel.
    """
    warp = -(-max(registers, 1) * 32 // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
    warps = _REGISTERS // warp // _WARPS_AT_ONCE * _WARPS_AT_ONCE
    body = _body(source)
    wait = _WAIT.format(cycles=cycles, warps=warps, multiprocessors=multiprocessors)
    return f"{wait}\n{source[:body]}\n    msbench_wait();{source[body:]}"


def _body(source: str) -> int:
    """Where the kernel's body begins, after its brace."""
    start = source.index(_KERNEL)
    depth = 0
    for position in range(start, len(source)):
        depth += {"(": 1, ")": -1}.get(source[position], 0)
        if source[position] == "{" and depth == 0:
            return position + 1
    raise ValueError("the file has no kernel")
