"""Arrays of the storage types as float64, exactly: inputs for references, outputs for comparisons."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

_SOURCE = """
const unsigned int bits = {bits};
const unsigned int size = bits & 0x7fffffffu;
const double value = size < 0x800000u ? ldexp(static_cast<double>(size), -149) : static_cast<double>(__uint_as_float(size));
y = bits >> 31 ? -value : value;
"""


def wide(array: Any, xp: Any) -> Any:
    """float64 of a contiguous array of float32, bfloat16 or integers; ``xp`` is numpy or cupy.

    CuPy's own conversion makes zero of subnormal numbers: it compiles all its kernels with -ftz=true.
    """
    if xp is np or array.dtype.kind in "iu" or array.dtype == np.float64:
        return array.astype(np.float64, copy=False)
    return _kernel(xp, array.dtype.itemsize)(array.view(f"uint{8 * array.dtype.itemsize}"))


@cache
def _kernel(xp: Any, itemsize: int) -> Any:
    bits = "b" if itemsize == 4 else "static_cast<unsigned int>(b) << 16"
    return xp.ElementwiseKernel(f"uint{8 * itemsize} b", "float64 y", _SOURCE.format(bits=bits), f"wide_{itemsize}")
