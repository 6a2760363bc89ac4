"""Inputs for operators that put values in order: ties, every value the same, NaNs, zeros of both signs, all magnitudes."""

from __future__ import annotations

from typing import Any

DISTRIBUTIONS = (
    "uniform",
    "integers",
    "constant",
    "sorted",
    "descending",
    "magnitudes",
    "signed_zeros",
    "nan",
    "nonfinite",
)
"""Standard ones, of which ``integers`` is full of ties and ``constant`` all equal, and those that ``draw`` describes."""


def draw(rng: Any, name: str, count: int, distribution: str) -> Any:
    """float32 array of ``count`` keys from one of ``DISTRIBUTIONS``; ``rng`` is a ``msbench.harness.inputs.Draw``.

    ``descending``: from 1 to -1. ``magnitudes``: both signs, from 2^-100 to 2^100. ``signed_zeros``: -0, 0 and ±1. ``nan``:
    one key in four is NaN, the others are small integers or infinite. Every NaN has a clear sign bit.
    """
    xp = rng.xp
    match distribution:
        case "descending":
            return -rng.floats(name, (count,), "sorted")
        case "magnitudes":
            powers = rng.integers(f"{name} exponents", (count,), -100, 101)
            return xp.ldexp(rng.floats(name, (count,), "uniform"), powers)
        case "signed_zeros":
            values = xp.asarray([-0.0, 0.0, -1.0, 1.0], dtype="float32")
            return values[rng.integers(name, (count,), 0, 4)]
        case "nan":
            nan, infinity = float("nan"), float("inf")
            values = xp.asarray([nan, nan, infinity, -infinity, -1.0, 0.0, 1.0, 2.0], dtype="float32")
            return values[rng.integers(name, (count,), 0, 8)]
    return rng.floats(name, (count,), distribution)
