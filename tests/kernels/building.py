"""Calls functions of a few lines of CUDA on the emulator, in a process of its own."""

from __future__ import annotations

import ctypes
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from msbench import emulator, resources
from tests.forks import FORKS

TYPES: dict[str, Any] = {"float": np.dtype(np.float32), "__nv_bfloat16": np.dtype(np.uint16)}
"""What scalar_t is, and how NumPy holds it: bf16 as its bits."""

_PRELUDE = """
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cstdint>
using scalar_t = {};
#define EXPORTED extern "C" __attribute__((visibility("default"))) int
"""


def called(
    scalar: str, source: str, function: str, *given: Any, times: int = 1, include: Path | None = None
) -> list[Any]:
    """The arrays among ``given`` after ``times`` calls of an ``EXPORTED`` function that takes pointers, int64 and floats.

    ``include``: another folder of headers than the shared ones.

    Raises:
        RuntimeError: the function returned something else than 0, or the emulator reported a failure.
    """
    with ProcessPoolExecutor(1, FORKS) as process:
        return process.submit(_called, scalar, source, function, given, times, include).result()


def _called(
    scalar: str, source: str, function: str, given: tuple[Any, ...], times: int, include: Path | None
) -> list[Any]:
    text = _PRELUDE.format(scalar) + source
    library = ctypes.CDLL(
        str(emulator.build(text, "test.cu", include_dirs=[include or resources.include_dir()]).library)
    )
    arguments = [_argument(value) for value in given]
    for _ in range(times):
        status = getattr(library, function)(*arguments)
        failure = ctypes.create_string_buffer(8192)
        library.msbench_cpu_failure(failure, ctypes.c_size_t(len(failure)))
        if status or failure.value:
            raise RuntimeError(f"{function} gave {status}: {failure.value.decode()}")
    return [value for value in given if isinstance(value, np.ndarray)]


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int64(value)


def bf16_bits(values: Any) -> Any:
    """The nearest bf16 numbers of finite floats, as bits."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def floats(values: Any) -> Any:
    """What an array of scalar_t holds, in float64."""
    if values.dtype == np.uint16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)
