"""A version that is slower by a known time: after its own kernels one thread waits for a number of clock cycles.

The number is a constant in the source, and the version that it is compared with waits too, for BASE cycles; they differ in
that constant. So the one takes longer by the difference, give or take a turn of the loop (some ten nanoseconds), whatever
its own kernels do and however long they take. None of this depends on how msbench measures.
"""

from __future__ import annotations

BASE = 400
"""Cycles that both wait: the first turn back in a loop fetches its code once more, which takes longer than a short wait."""

_END = "    return cudaGetLastError();\n}"

_WAIT = """\
// Made by msbench study: behind the kernels one thread waits for {cycles} cycles.
__global__ void msbench_wait() {{
    for (const long long start = clock64(); clock64() - start < {cycles}ll;) {{
    }}
}}
"""


def delayed(source: str, cycles: int) -> str:
    """``source`` with a wait of ``cycles`` at the end of its launcher.

    Raises:
        ValueError: the launcher, which is the last function, does not end with CUDA's last error.
    """
    before, end, after = source.rpartition(_END)
    if not end:
        raise ValueError(f"the source has no {_END.strip()!r}")
    wait = _WAIT.format(cycles=cycles)
    return f"{wait}\n{before}    msbench_wait<<<1, 1, 0, stream>>>();\n{end}{after}"
