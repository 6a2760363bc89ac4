"""Questions to whole arrays, NumPy's or CuPy's, that a GPU answers without compiling anything.

CuPy compiles a kernel of CUB's for ``all`` and ``any``, two to three seconds for each range of sizes; for the least and the
largest byte it has one. For what else it would compile one, ``compile_less`` makes do without.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def every(mask: Any, xp: Any) -> Any:
    """Whether all elements of an array of bools are true: an array of one bool, or NumPy's own, that nobody has waited for yet."""
    return mask.all() if _is_numpy(xp) or not mask.size else mask.view("uint8").min().view("bool")


def some(mask: Any, xp: Any) -> Any:
    """Whether any is; see ``every``."""
    return mask.any() if _is_numpy(xp) or not mask.size else mask.view("uint8").max().view("bool")


def compile_less(xp: Any) -> None:
    """Have CuPy reduce along an axis by kernels of its own. Compiling those of CUB was more than half of what checks of all
    operators compile (24 s of 16 cores, 11 s without; H200, 2026-11-27).
    """
    with suppress(AttributeError):  # NumPy's, and those of a CuPy without it, need nothing
        xp._core.set_reduction_accelerators([])


def _is_numpy(xp: Any) -> bool:
    return bool(xp.__name__ == "numpy")
