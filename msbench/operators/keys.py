"""Inputs for operators that put values in order: ties, every value the same, NaNs, zeros of both signs, all magnitudes."""

from __future__ import annotations

from typing import Any

from msbench.operators import patchwork

DISTRIBUTIONS = (
    "uniform",
    "integers",
    "constant",
    "sorted",
    "runs",
    "descending",
    "magnitudes",
    "signed_zeros",
    "nan",
    "negative",
    "combed",
    "sunken",
    *patchwork.NAMES,
)
"""Standard ones, of which ``integers`` is full of ties and ``constant`` all equal, and those that ``draw`` describes."""


def draw(rng: Any, name: str, count: int, distribution: str) -> Any:
    """float32 array of ``count`` keys from one of ``DISTRIBUTIONS``; ``rng`` is a ``msbench.harness.inputs.Draw``.

    ``runs``: see ``_runs``. ``descending``: from 1 to -1. ``magnitudes``: both signs, from 2^-100 to 2^100. ``signed_zeros``: -0, 0 and ±1. ``nan``:
    one key in four is NaN, the others are small integers or infinite. ``negative``: patches without a key above zero. Every NaN
    has a clear sign bit. ``combed``: see ``_combed``. ``sunken``: keys at equal distances from the first, 2 to 12, are below all others, so that
    a sample at even distances may have no others. Zeros of ``patchwork`` are negative, so that who loses the sign is found out. In ``scattered``, 8 to 512
    large keys lie a power of two apart: threads that stride over the array have no equal shares of the largest.
    """
    xp = rng.xp
    match distribution:
        case "combed":
            return _combed(rng, name, count)
        case "sunken":
            values = rng.floats(name, (count,), "uniform")
            values[:: 2 + rng.position(f"{name} distance", 11)] -= 4
            return values
        case "runs":
            return _runs(rng, name, count)
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
        case "negative":
            kinds = ("uniform", "large", "negative", "deep", "bottom", "lowest")
            return -xp.abs(rng.floats(name, (count,), "patchwork", kinds=kinds))
    values = rng.floats(name, (count,), distribution, kinds=patchwork.ORDERED)
    values = xp.where(values != values, xp.abs(values), values)  # NaN
    if distribution == "patchwork":
        small = (
            values.view("uint32") & 0x7FFFFFFF
        ) < 2**16  # what bf16 rounds to zero, too; by its bits, which CuPy leaves alone
        values = xp.where(small, xp.float32(-0.0), values)
    if distribution == "scattered":
        stride = 2 ** max(0, count.bit_length() - 4 - rng.position(f"{name} stride", 6))
        large = values[rng.position(f"{name} phase", stride) :: stride]
        large[:] = xp.abs(rng.floats(f"{name} apart", large.shape, "uniform")) * 2.0**60
    return values


def _runs(rng: Any, name: str, count: int) -> Any:
    """Ascending runs as long as ``patchwork.chunk``: who looks for a step down inside of tiles only finds none."""
    place, places = patchwork.in_runs(rng, name, count)
    return (place / places * 2 - 1).astype("float32")


_LANES = 32
_COMBS = 16
_FACTORS = (2, 2, 2, 3, 3, 5, 7, 11)


def _combed(rng: Any, name: str, count: int) -> Any:
    """Uniform, and above that up to 16 combs, each of larger keys than the next: 5 to 9 keys at equal distances, or 13 to 28.

    Threads that stride over an array by their number have one comb's keys in one thread, if the distance is a multiple of that
    number, which itself is one of a warp's 32 lanes. So a distance has many divisors: 32 times small factors, as far as there is room, or
    the threads of as many blocks as a GPU has multiprocessors.
    """
    values = rng.floats(name, (count,), "uniform")
    teeth = 5 + rng.position(f"{name} teeth", 5)
    if not rng.position(f"{name} many", 3):
        teeth = 13 + rng.position(f"{name} teeth", 16)
    for comb in range(min(_COMBS, count // (2 * teeth))):
        most = count // teeth
        if most >= patchwork.MULTIPROCESSORS and not rng.position(f"{name} threads {comb}", 3):
            blocks = patchwork.MULTIPROCESSORS
            distance = blocks * 2 ** rng.position(f"{name} block {comb}", (most // blocks).bit_length())
            if 3 * distance <= most:  # blocks of 96, 192, 384 or 288 threads
                distance *= (1, 3, 9)[rng.position(f"{name} third {comb}", 3 if 9 * distance <= most else 2)]
        else:
            distance = _LANES if most >= _LANES else 1
            for step in range(_LANES):
                factor = _FACTORS[rng.position(f"{name} factor {comb} {step}", len(_FACTORS))]
                if distance * factor > most:
                    break
                distance *= factor
        first = rng.position(f"{name} first {comb}", count - distance * (teeth - 1))
        large = values[first : first + distance * (teeth - 1) + 1 : distance]
        large[:] = (2 + rng.uniform(f"{name} comb {comb}", large.shape)) * 4.0 ** (_COMBS - comb)
    return values
