"""Inputs for operators that take a mean away: far from zero, all of them, those that come first, or those that a sample is taken of."""

from __future__ import annotations

from typing import Any

DISTRIBUTIONS = ("offset", "led", "probed")

OFFSET = 1024.0
_STEP = 8.0  # of bf16 between 1024 and 2048

_LEADING = 1024
_PROBES = (2, 2, 32, 64)  # equal parts of a line, between which a sample may be taken


def among(rng: Any, distribution: str) -> bool:
    """Whether ``draw`` draws the inputs of a distribution: of ``DISTRIBUTIONS``, and most of ``dotted`` ones."""
    return distribution in DISTRIBUTIONS or (distribution == "dotted" and rng.position("neighbours", 4) > 0)


def draw(rng: Any, name: str, shape: tuple[int, ...], distribution: str) -> Any:
    """float32 array, uniform but for what is added, of a distribution ``among`` them; ``rng`` is a ``msbench.harness.inputs.Draw``.

    ``offset``: ``OFFSET`` everywhere, so that E[x²] - E[x]² loses all digits of the variance in fp32. ``led``: ``OFFSET``/√i to the
    first 1024 along the first axis, or to as many from its middle or its end on, for i = 1, 2, …: the mean of the first k, whatever k, is then as far from that of all of a long
    line as it can be, about √(N/k) deviations, and a kernel that subtracts it first, as a guess, loses as much. ``probed``: ``OFFSET`` added to
    the first one along it, the last, and those where as many equal parts of it meet as a sample may be taken at. ``dotted``: one
    number of bf16, but for one element in 64, which is the next one: E[x²] - E[x]² loses the variance in either precision.
    """
    if distribution == "dotted":
        number = OFFSET + _STEP * rng.position(f"{name} number", int(OFFSET / _STEP))
        return rng.xp.where(rng.uniform(name, shape) < 1 / 64, rng.xp.float32(number + _STEP), rng.xp.float32(number))
    x = rng.floats(name, shape, "uniform")
    if distribution == "offset":
        x += rng.xp.float32(OFFSET)
    elif distribution == "probed":
        parts = _PROBES[rng.position(f"{name} parts", len(_PROBES))]
        x[:: max(1, len(x) // parts)] += rng.xp.float32(OFFSET)
        x[-1:] = x[:1]
    else:
        line = (x, x[len(x) // 2 :], x[::-1])[rng.position(f"{name} lead", 3)]
        first = line[:_LEADING]
        steps = OFFSET / rng.xp.sqrt(rng.xp.arange(1, len(first) + 1, dtype="float64"))
        first += steps.astype("float32").reshape(-1, *[1] * (x.ndim - 1))
    return x
