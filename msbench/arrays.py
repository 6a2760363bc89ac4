"""Questions to whole arrays, NumPy's or CuPy's, that a GPU answers without compiling anything.

CuPy compiles a kernel of CUB's for ``all`` and ``any``, two to three seconds for each range of sizes; for the least and the
largest byte, and for sums that keep their type, it has one.
"""

from __future__ import annotations

from typing import Any


def every(mask: Any, xp: Any) -> Any:
    """Whether all elements of an array of bools are true: an array of one bool, or NumPy's own, that nobody has waited for yet."""
    return mask.all() if _is_numpy(xp) or not mask.size else mask.view("uint8").min().view("bool")


def some(mask: Any, xp: Any, axis: tuple[int, ...] | None = None) -> Any:
    """Whether any is, along the axes; see ``every``."""
    return mask.any(axis) if _is_numpy(xp) or not mask.size else mask.view("uint8").max(axis).view("bool")


def count(mask: Any, xp: Any, axis: int) -> Any:
    """How many of up to 2²⁴ along an axis are true, in float64."""
    return mask.sum(axis, dtype="float64") if _is_numpy(xp) else mask.astype("float32").sum(axis).astype("float64")


def _is_numpy(xp: Any) -> bool:
    return bool(xp.__name__ == "numpy")
