"""Inputs in patches: each row, column or tile of an array draws its own kind, so that no sample of it reveals the rest.

A kernel may look at a few places of its input, or know the timed one, and choose a way that is right for such numbers only.
Where neighbouring patches hold numbers of every kind (``patchwork``), or one patch of each kind lies somewhere among uniform
ones (``scattered``), or all are zero or small integers but for a few (``dotted``), there is no safe choice but to be right.
These integers may have a structure, too, which one element breaks: no sample tells that it is one.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

from msbench.errors import SpecError
from msbench.operators import patches
from msbench.operators.patches import INFINITY, KINDS, NAN, Cut

NAMES = ("patchwork", "dotted", "scattered")
OF_EVERY_KIND = ("patchwork", "scattered")

LONGEST_RUN = 255
FEWEST_RUNS = 16
"""An array that is cut into runs of memory has this many at least, as far as it has so many elements."""

HARMLESS = ("zeros", "ties")
"""What ``dotted`` arrays are made of, of the kinds that they may have; those that may have none are ``scattered``."""

DOTS = 8
"""The most elements that are anything else there. 64 samples seldom meet one."""
_DOT = 8.0  # their size, at most
_STRANGE = 4  # once in so many times they are all NaN, or infinite, where the array may have such elements: who looks for numbers there finds none
_STRANGERS = (("nan", NAN), ("nan", -NAN), ("infinities", INFINITY), ("infinities", -INFINITY))
_ODD = (
    (2**10, (5 * 7 * 9 * 11, 13 * 17 * 19, 7 * 9 * 11 * 13)),
    (2**8, (45, 5 * 7 * 9, 5 * 7 * 11, 45, 1, 13 * 17)),
    (1, (45, 15, 15, 1)),
)
"""What chunks' lengths are times a power of two, and the least such power: an array has the first ones that are all short enough for it."""

_STRUCTURED = 8  # once in so many times small integers have none, else one element breaks it
_APART = 8  # powers of two, which a number and its negative are apart

MULTIPROCESSORS = 132
"""Of an H100 and an H200: many a kernel has as many blocks, or twice as many."""
FEWEST_EACH = 64
"""Elements of a block, where an array is cut among so many."""

SELDOM = 128
"""Scattered patches are at most one in so many, so that 64 samples seldom meet one."""

ORDERED = tuple(kind for kind in KINDS if kind != "vast")
"""For operators that look for the largest."""
EVERY = tuple(kind for kind in ORDERED if kind not in ("bottom", "masked"))
"""For operators that work on each element alone, or move it."""
NONFINITE = ("gaps", "lowest", "lone", "infinities", "nan")
SMALL = (
    *("uniform", "few", "spiked", "ties", "zeros", "negative", "tiny"),
    *("millionths", "thousandths", "hundredths", "quarters", "units", "minus_units", "tens", "minus_tens"),
)
"""For sums over all patches, in which a large one would hide every other."""
FINITE = (*SMALL, "large")
TERMS = (*FINITE, *NONFINITE)
"""For sums of products: a subnormal factor's product may be flushed, or not, as often as there are terms."""
GATES = tuple(kind for kind in EVERY if kind not in ("spiked", "deep", "abyss"))
"""For what is multiplied with a logistic function of itself, and then with one of ``GATED``."""
GATED = (*(kind for kind in EVERY if kind not in ("gaps", "lowest", "lone", "infinities")), "vast")
"""No infinity: a logistic function that is zero in fp32 only would make NaN of it. But numbers that are as large as their product with a
gate, which the definitions have first, allows."""


def draw(
    rng: Any,
    name: str,
    shape: tuple[int, ...],
    distribution: str,
    axis: int | None,
    tile: tuple[int, int] | None,
    kinds: tuple[str, ...],
) -> Any:
    """float32 array from one of ``NAMES``; ``rng`` is a ``msbench.harness.inputs.Draw``, see its ``floats`` for the rest.

    Raises:
        SpecError: ``kinds`` are not some of ``KINDS``, the first of them ``uniform``.
    """
    if kinds[:1] != ("uniform",) or not set(kinds) <= set(KINDS):
        raise SpecError(f"kinds {', '.join(kinds)}: give some of {', '.join(KINDS)}, and uniform first.")
    xp = rng.xp
    if not prod(shape):
        return xp.empty(shape, dtype="float32")
    cut = _lines(shape, axis) if axis is not None else _tiles(shape, tile) if tile else _runs(rng, name, prod(shape))
    harmless = [number for number, kind in enumerate(kinds) if kind in HARMLESS]
    dotted = distribution == "dotted" and harmless
    same = kinds[harmless[rng.position(f"{name} harmless", len(harmless))]] if dotted else "uniform"
    if distribution == "patchwork":
        drawn = rng.integers(f"{name} kinds", (cut.count,), 0, len(kinds))
    elif dotted:
        drawn = xp.full(cut.count, kinds.index(same), dtype="int32")
    else:
        drawn = _scattered(rng, name, cut.count, len(kinds))
    ends = sides = xp.zeros(1, dtype="int32")
    if "masked" in kinds:
        ends, sides = (
            rng.integers(f"{name} {what}", (cut.count,), 0, most) for what, most in (("end", cut.size), ("side", 2))
        )
    value = partial(patches.values, xp, patches.Patches(cut, drawn, patches.table(xp, kinds, cut.size), ends, sides))
    if not dotted:
        return rng.fill(name, shape, "float32", value)
    strange = [number for kind, number in _STRANGERS if kind in kinds]
    if same == "ties" and rng.position(f"{name} structure", _STRUCTURED):
        return _dot(rng, name, _structured(rng, name, shape), 1, strange)
    return _dot(rng, name, rng.fill(name, shape, "float32", value), DOTS, strange, paired=same == "zeros")


def _dot(rng: Any, name: str, array: Any, most: int, strange: list[float], paired: bool = False) -> Any:
    """Other numbers in up to ``most`` places, or one of the ``strange`` ones; if ``paired``, two times in three each comes with its negative not far behind it.

    That the sum of a chunk is zero does not tell that its terms are.
    """
    xp, flat = rng.xp, array.reshape(-1)
    paired = paired and array.size > 1 and rng.position(f"{name} paired", 3) > 0
    dots = 1 + rng.position(f"{name} number of dots", min(most, array.size) // (1 + paired))
    ends = [array.size * part // dots for part in range(dots + 1)]  # one in each part: never two in one place
    places = xp.asarray([end + rng.position(f"{name} dot {end}", until - end) for end, until in pairwise(ends)])
    if strange and not rng.position(f"{name} strange", _STRANGE):
        number = strange[rng.position(f"{name} which", len(strange))]
        # A device that negates a NaN may make another one of it.
        values, negatives = (xp.full(dots, either, dtype="float32") for either in (number, -number))
    else:
        values = rng.floats(f"{name} dots", (dots,), "uniform") * xp.float32(_DOT)
        negatives = -values
    if paired:
        flat[(places + 2 ** rng.position(f"{name} apart", _APART)) % array.size] = negatives
    flat[places] = values
    return array


def _structured(rng: Any, name: str, shape: tuple[int, ...]) -> Any:
    """Products of a factor of the row and one of the column, which read the same backwards: of rank one and symmetric."""
    width, rows = shape[-1], prod(shape[:-1])
    across = _mirrored(rng, f"{name} across", width)
    down = across if rows == width else _mirrored(rng, f"{name} down", rows)
    return (down[:, None] * across).reshape(shape)


def _mirrored(rng: Any, name: str, length: int) -> Any:
    """±1 and ±2."""
    index = rng.xp.arange(length)
    values = rng.xp.asarray([-2, -1, 1, 2], dtype="float32")[rng.integers(name, (length,), 0, 4)]
    return values[rng.xp.minimum(index, length - 1 - index)]


def chunk(rng: Any, name: str, size: int) -> int:
    """A length below ``size``: what several blocks of each of a GPU's multiprocessors have, all whole packets, or an odd number with many divisors times 2^k.

    There, more than halfway along, whole tiles end of nearly all sizes that kernels have: 2^k threads with up to 15 elements each, or 17.
    """
    most, blocks = max(1, size - 1), MULTIPROCESSORS * 2 ** rng.position(f"{name} blocks", 4)
    if size >= FEWEST_EACH * blocks and not rng.position(f"{name} one each", 3):
        return int(-(-size // blocks))
    if not rng.position(f"{name} packets", 4):
        return most - most % 2 ** (1 + rng.position(f"{name} packet", 4)) or most
    odds = next(odds for least, odds in _ODD if least == 1 or most >= least * max(odds))
    odd = next(odd for odd in odds[rng.position(f"{name} odd", len(odds)) :] if odd <= most or odd == 1)
    return int(odd * 2 ** ((most // odd).bit_length() - 1))


def in_runs(rng: Any, name: str, count: int) -> tuple[Any, int]:
    """Places among ``count`` sorted elements, int64, of which each run as long as a ``chunk`` ascends; and how many places there are, a few more."""
    length = chunk(rng, name, count)
    index, runs = rng.xp.arange(count), -(-count // length)
    return index % length * runs + index // length, length * runs


def _scattered(rng: Any, name: str, count: int, kinds: int) -> Any:
    """The kind of each of ``count`` patches, int32: the first one's but for one patch in ``SELDOM`` or more, each in its own part.

    The second kind is always among them, and each of the others where there is room.
    """
    drawn = rng.xp.zeros(count, dtype="int32")
    parts = max(1, min(kinds - 1, count // SELDOM))
    turn, first = rng.position(f"{name} turn", parts), rng.position(f"{name} first kind", max(1, kinds - 2))
    for part in range(parts):
        start, end = count * part // parts, count * (part + 1) // parts
        number = (part + turn) % parts
        kind = 1 if number == 0 else 2 + (first + number) % (kinds - 2)
        drawn[start + rng.position(f"{name} place {part}", end - start)] = min(kind, kinds - 1)
    return drawn


def _lines(shape: tuple[int, ...], axis: int) -> Cut:
    axis %= len(shape)
    length, inner = shape[axis], prod(shape[axis + 1 :])
    count = prod(shape[:axis]) * inner
    return Cut(count, length, 1, length, 1) if inner == 1 else Cut(count, inner, length, 1, inner)


def _tiles(shape: tuple[int, ...], tile: tuple[int, int]) -> Cut:
    """All axes but the last count as rows."""
    width, (high, wide) = shape[-1], tile
    across = -(-width // wide)
    return Cut(-(-prod(shape[:-1]) // high) * across, width, high, wide, across)


def _runs(rng: Any, name: str, size: int) -> Cut:
    length = 1 + rng.position(f"{name} run", max(1, min(LONGEST_RUN, size // FEWEST_RUNS)))
    return Cut(-(-size // length), length, 1, length, 1)
