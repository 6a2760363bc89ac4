"""CuPy's kernels for one element, compiled for the processor: what they compute is tested without a GPU.

``xp()`` is NumPy but for its name and ``ElementwiseKernel``: code that has kernels for CuPy calls these.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "int32": "int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
_DEVICE = """
#include <cmath>
#include <cstring>
using std::isfinite, std::signbit;
static double __dmul_rn(double a, double b) { return a * b; }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __ull2double_rn(unsigned long long a) { return static_cast<double>(a); }
static float __double2float_rn(double a) { return static_cast<float>(a); }
static float __uint_as_float(unsigned int a) { float b; std::memcpy(&b, &a, 4); return b; }
"""


class _Kernel:
    """``inputs`` and ``outputs`` as CuPy declares them: "raw int32 kinds, int64 width". One output."""

    def __init__(self, inputs: str, outputs: str, body: str, name: str) -> None:
        self._inputs = [(*one.split()[-2:], "raw" in one.split()) for one in inputs.split(",")]
        ((self._type, output),) = [one.split() for one in outputs.split(",")]
        taken = [f"const {_TYPES[kind]}* {label}{'' if raw else '_'}" for kind, label, raw in self._inputs]
        each = [
            f"const {_TYPES[k]} {label} = {label}_[steps[{n}] * i_];"
            for n, (k, label, raw) in enumerate(self._inputs)
            if not raw
        ]
        source = (
            f'{_DEVICE}extern "C" void {name}(long long size, const long long* steps, {", ".join(taken)}, {_TYPES[self._type]}* {output}_) {{'
            f"for (long long i_ = 0; i_ < size; ++i_) {{ {''.join(each)} {_TYPES[self._type]}& {output} = {output}_[i_];\n{body}\n}} }}"
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "kernel.cpp")
            file.write_text(source, encoding="utf-8")
            library = file.with_suffix(".so")
            flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
            subprocess.run(["g++", *flags, "-o", str(library), str(file)], check=True)
            self._function = getattr(ctypes.CDLL(str(library)), name)

    def __call__(self, *arguments: Any) -> Any:
        arrays = [np.ascontiguousarray(a, dtype=kind) for a, (kind, _, _) in zip(arguments, self._inputs, strict=True)]
        shape = np.broadcast_shapes(*(a.shape for a, (_, _, raw) in zip(arrays, self._inputs, strict=True) if not raw))
        steps = [int(not raw and a.size > 1) for a, (_, _, raw) in zip(arrays, self._inputs, strict=True)]
        found = np.empty(shape, dtype=self._type)
        assert all(raw or a.size in (1, found.size) for a, (_, _, raw) in zip(arrays, self._inputs, strict=True))
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, found)]
        counts = (ctypes.c_longlong * len(steps))(*steps)
        self._function(ctypes.c_longlong(found.size), counts, *pointers)
        return found


class _Xp:
    __name__ = "compiled"

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    ElementwiseKernel = staticmethod(_Kernel)


@cache
def xp() -> Any:
    """NumPy with kernels."""
    return _Xp()
