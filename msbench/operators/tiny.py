"""Tiny hidden sizes, many of them: a kernel that is wrong at one size in a hundred, or for one exponent, is met by some.

A case of a few thousand elements costs next to nothing, so that there may be dozens. They are spread as in Latin hypercube
sampling (McKay, Beckman and Conover 1979): a dimension's range is cut into as many equal parts as there are cases, and each
case takes another part of it. So a power of 1 to 16 or a window's width takes each of its values, whatever the seed.

What such a spread seldom has are the usual shapes: square matrices, and small windows. So there are some of these besides,
and a few that are not tiny at all: what divides an index, or cuts an array into chunks, goes wrong only beyond some size, and
what holds an index in 16 bits at one size.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from itertools import combinations, product

from msbench.operators.cases import vary
from msbench.operators.patchwork import OF_EVERY_KIND
from msbench.operators.shapes import elements
from msbench.spec import Case, Dim, Operator, Split

COUNT = 20
MOST_ELEMENTS = 2**14
SQUARE_ELEMENTS = 2**16
"""The same for every other case: three square matrices are wider than a tile of 128 then."""

USUAL_COUNT = 6

THIN_COUNT = 6
THIN_ELEMENTS = 2**18
"""Thin ones have one long dimension, in turn, in the upper half or sixteenth of its range: what grids, tables and counters hold ends
there; or of what so many elements allow. Half of them have it as long as it may be, which is often one more than the 65535 blocks of a grid's second dimension."""
THINNEST_ELEMENTS = 2**23
"""Up to so many a single one has, where a dimension can't be so long otherwise: a mask of 2048 by 2048."""

CORNER_COUNT = 3
"""In a corner two dimensions have their largest sizes together, and a product of them is more than either allows."""

BROAD_COUNT = 4
"""Broad ones have dozens to hundreds of rows that are as long as fits; where there are no rows, arrays are."""
BROAD_ELEMENTS = 3 * 2**20
"""The number of a row of more than 2^11 elements, as a product with a reciprocal in 32 bits, goes wrong below so many."""

EDGES = (2**16, 2**16 + 1)
"""Edges have a dimension of so many: the last index that 16 bits hold may be taken for padding, and the next one for the first."""
EDGE_COUNT = 6
EDGE_ELEMENTS = 2**19
"""So many they have at least half of, as far as there is room: of 2^16 columns of a sparse matrix seldom is one without an entry then."""

_ROWS = (16, 2048)  # of a broad case, each in another part of this range
_LINES = (16, 4096)  # the same of an operator of three dimensions and more: long lines of a sparse matrix, say
_CHUNKS = 3 * 5 * 7  # times a power of two: a few more elements are a few more than whole chunks of many a size
_TAIL = 7  # elements behind the last chunk, at most
_FILLED = 3 / 4  # of what fits, at least
_SAME = 64  # a dimension whose range is this much shorter than the longest is never a long one
_FEW = 64  # values of a dimension that is spread evenly; of longer ones there would be no small sizes
_SHORT = 2  # what other dimensions of a thin case have more than the least, at most
_TILES = (16, 32, 32, 64)  # what tiles' and blocks' sizes are multiples of
_BESIDE = (-1, 0, 1, 1, 1)  # where a tile's last column is missing, or one more is alone
_UNIFORM = 3 / 4  # of the cases: other inputs may hide what is wrong
_LEAST_SHARE = 0.5  # beside 1 in the mean
_TRIES = 60
_IDLE_TRIES = 8  # so often sizes are drawn again of which nothing is computed: a stencil's without an inner point
_SMALL = 3  # a small window is one of so many


def tiny(op: Operator, seed: int) -> tuple[Case, ...]:
    """The least size, ``COUNT`` tiny, ``USUAL_COUNT`` usual, ``THIN_COUNT`` thin, ``BROAD_COUNT`` broad ones, ``CORNER_COUNT`` corners
    and ``EDGE_COUNT`` edges.

    There are as many as ``op`` has; they are the same ones for the same seed.
    """
    rng = random.Random(f"{op.name}:{seed}:tiny")
    found: dict[tuple[tuple[str, int], ...], tuple[str, ...]] = {}
    strata = {dim.name: rng.sample(range(COUNT), COUNT) for dim in op.dims}
    _add(found, _smallest(op))
    for number in range(COUNT):
        parts = {name: (order[number], COUNT) for name, order in strata.items()}
        _add(found, _fitting(rng, op, parts, number))
    every = tuple(name for name in op.distributions if name in OF_EVERY_KIND)
    for number in range(USUAL_COUNT):
        _add(found, _usual(rng, op, number), every if number >= USUAL_COUNT // 2 else ())
    for number, dim in enumerate(_turns(rng, op)):
        _add(found, _thin(rng, op, dim, at_the_end=number < THIN_COUNT // 2))
    for number, dim in enumerate(_along(rng, op)):
        _add(found, _broad(rng, op, dim, number), _of_broad(op, number))
    for pair in _corners(rng, op):
        _add(found, pair)
    for edge in _edges(rng, op):
        _add(found, edge)
    cases = []
    for dims, others in found.items():
        usual = not others and rng.random() < _UNIFORM
        case = Case(dims, Split.HELDOUT, "uniform" if usual else rng.choice(others or op.distributions))
        cases.append(vary(op, case, seed))
    if "nonfinite" not in op.distributions:
        return tuple(cases)
    # What a size of one or two is multiplied by zero for.
    shortest = ({dim.name: min(dim.low + more, dim.high) for dim in op.dims} for more in (0, 1))
    some = [Case(tuple(dims.items()), Split.HELDOUT, "nonfinite") for dims in shortest if op.takes(dims)]
    return (*some, *(case for case in cases if case not in some))


def _of_broad(op: Operator, number: int) -> tuple[str, ...]:
    """What a broad case's distribution is drawn from: in turn the usual ones, those of every kind, the usual ones, and all but uniform ones."""
    every = tuple(name for name in op.distributions if name in OF_EVERY_KIND)
    others = tuple(name for name in op.distributions if name != "uniform")
    return ((), every, (), others)[number % 4]


def _add(
    found: dict[tuple[tuple[str, int], ...], tuple[str, ...]],
    dims: dict[str, int] | None,
    others: tuple[str, ...] = (),
) -> None:
    """A size, and what distributions it is tried with; () for usual ones."""
    if dims is not None:
        found.setdefault(tuple(dims.items()), others)


def _smallest(op: Operator) -> dict[str, int] | None:
    dims = {dim.name: dim.low for dim in op.dims}
    return dims if op.takes(dims) else None


def _usual(rng: random.Random, op: Operator, number: int) -> dict[str, int] | None:
    """Every other time dimensions of the same range have the same size; those with few values have small ones, those of a public case, or
    equal ones where ranges are the same: windows that lie side by side, with padding.
    """
    few = [dim for dim in op.dims if dim.high - dim.low < _FEW]
    others = [dim for dim in op.dims if dim not in few]
    ranges = {(dim.low, dim.high): dim for dim in others}
    alike = number % 2 == 0 and len(ranges) < len(others)
    if not few and not alike:
        return None
    for attempt in range(_TRIES):
        public = dict(rng.choice(op.cases).dims)
        drawn = {dim.name: min(dim.high, dim.low + rng.randrange(_SMALL)) for dim in few}
        windows = (drawn, {dim.name: public[dim.name] for dim in few}, _equal(rng, few, number))[number % 3]
        free = list(ranges.values()) if alike else others
        limits = _limits(rng, [dim.name for dim in free], SQUARE_ELEMENTS // len(op.arrays))
        sizes = {dim.name: _size(rng, dim, limits[dim.name]) for dim in free}
        same = {dim.name: ranges[dim.low, dim.high].name if alike else dim.name for dim in others}
        dims = {dim.name: windows[dim.name] if dim in few else sizes[same[dim.name]] for dim in op.dims}
        fits = op.takes(dims) and elements(op, dims) <= SQUARE_ELEMENTS
        if fits and (op.flops(**dims) or attempt >= _IDLE_TRIES):
            return dims
    return None


def _equal(rng: random.Random, few: list[Dim], number: int) -> dict[str, int]:
    """Sides in turn a power of two and an odd one."""
    side = rng.choice((3, 5)) if number % 2 else 2 ** rng.randint(1, 3)
    ranges = [(dim.low, dim.high) for dim in few]
    return {
        dim.name: min(
            dim.high, max(dim.low, side if ranges.count((dim.low, dim.high)) > 1 else rng.randint(1, side // 2))
        )
        for dim in few
    }


def _fitting(rng: random.Random, op: Operator, parts: dict[str, tuple[int, int]], number: int) -> dict[str, int] | None:
    """Sizes from these parts of the dimensions with few values; where no others go with them, from one of the parts at least."""
    few = [dim.name for dim in op.dims if dim.high - dim.low < _FEW]
    most = MOST_ELEMENTS if number % 2 else SQUARE_ELEMENTS
    kept = few[number % len(few)] if few else None
    for attempt in range(_TRIES):
        strict = attempt < _TRIES / 2
        dims, limits = {}, _limits(rng, [dim.name for dim in op.dims if dim.name not in few], most // len(op.arrays))
        for dim in op.dims:
            part = parts[dim.name] if dim.name == kept or strict else (rng.randrange(COUNT), COUNT)
            dims[dim.name] = _in_part(rng, dim, part) if dim.name in few else _size(rng, dim, limits[dim.name])
        if attempt < _IDLE_TRIES and not op.flops(**dims):
            continue
        if _shrink(rng, op, dims, [dim for dim in op.dims if dim.name not in few], most):
            return dims
    return None


def _limits(rng: random.Random, names: list[str], most: int) -> dict[str, int]:
    """Up to which sizes some dimensions are drawn, so that their product is at most ``most``: seldom is one of them all there is."""
    shares = {name: _LEAST_SHARE + rng.expovariate(1) for name in names}
    total = sum(shares.values())
    return {name: int(most ** (share / total)) for name, share in shares.items()}


def _thin(rng: random.Random, op: Operator, long: Dim, *, at_the_end: bool) -> dict[str, int] | None:
    whole = _least(op, long)
    most = whole if THIN_ELEMENTS < whole <= THINNEST_ELEMENTS else THIN_ELEMENTS
    high = min(long.high, long.high * most // whole)
    others = [dim for dim in op.dims if dim is not long]
    for attempt in range(_TRIES):
        short = attempt % 2 == 0  # a filter of many elements needs a signal that has more
        dims = {dim.name: _size(rng, dim, dim.low + _SHORT if short else 4 * long.high) for dim in op.dims}
        size = rng.randint(high - high // rng.choice((2, 16)), high)
        sizes = (high,) if at_the_end else (size, _beside(rng, size))
        dims[long.name] = min(rng.choice(sizes), high)
        if short:
            _lengthen(rng, op, dims, others)
        if attempt < _IDLE_TRIES and not op.flops(**dims):
            continue
        if _shrink(rng, op, dims, others, most):
            return dims
    return None


def _along(rng: random.Random, op: Operator) -> list[Dim]:
    """The long dimension of each broad case: in turn those that most arrays have, but for the first, which counts rows."""
    longest = max(dim.high for dim in op.dims)
    long = [dim for dim in op.dims[1:] if dim.high > _FEW and _SAME * dim.high >= longest] or [op.dims[0]]
    arrays = {dim.name: sum(dim.name in array.shape for array in op.arrays) for dim in long}
    most = [dim for dim in long if arrays[dim.name] == max(arrays.values())]
    return (rng.sample(most, len(most)) * BROAD_COUNT)[:BROAD_COUNT]


def _broad(rng: random.Random, op: Operator, long: Dim, number: int) -> dict[str, int] | None:
    """Rows from one part of ``_ROWS``, and one dimension as long as fits; every other time, or without rows, a few elements behind whole chunks."""
    lines = [dim for dim in op.dims[:2] if dim is not long] if len(op.dims) > 2 else op.dims[:1]
    rows = lines[number % len(lines)]  # of a matrix by columns these are rows
    others = [dim for dim in op.dims if dim not in (rows, long)]
    low, high = _ROWS if len(op.dims) < 3 else _LINES
    for attempt in range(_TRIES):
        dims = {dim.name: _size(rng, dim, dim.low + _SHORT) for dim in op.dims}
        if rows is not long:
            count = low * (high / low) ** ((number + rng.random()) / BROAD_COUNT)
            dims[rows.name] = min(int(count), rows.high)
        size = bisect_right(range(long.high + 1), BROAD_ELEMENTS, key=lambda n: elements(op, dims | {long.name: n})) - 1
        size = max(long.low, int((size >> attempt // (2 * _IDLE_TRIES)) * rng.uniform(_FILLED, 1)))
        if rows is long or rng.randrange(2):
            chunk = _CHUNKS * 2 ** max(0, (size // _CHUNKS).bit_length() - BROAD_COUNT + number)
            size = size // chunk * chunk + rng.randint(1, _TAIL)
        dims[long.name] = min(size, long.high)
        _lengthen(rng, op, dims, others)
        fits = op.takes(dims) and elements(op, dims) <= BROAD_ELEMENTS
        if fits and (op.flops(**dims) or attempt >= _IDLE_TRIES):
            return dims
    return None


def _corners(rng: random.Random, op: Operator) -> list[dict[str, int]]:
    """Where two of an operator's dimensions are as long as they may be, as far as there is room; others are short. The least corner comes first."""
    found = []
    pairs = list(combinations(op.dims, 2))
    least = min(pairs, key=lambda pair: pair[0].high * pair[1].high, default=None)
    for pair in sorted(rng.sample(pairs, len(pairs)), key=lambda pair: pair != least):
        dims = {dim.name: dim.high if dim in pair else _size(rng, dim, dim.low + _SHORT) for dim in op.dims}
        _lengthen(rng, op, dims, [dim for dim in op.dims if dim not in pair])
        if op.takes(dims) and elements(op, dims) <= BROAD_ELEMENTS and op.flops(**dims):
            found.append(dims)
    return found[:CORNER_COUNT]


def _edges(rng: random.Random, op: Operator) -> list[dict[str, int]]:
    """Each dimension whose range goes on there has each of the sizes ``EDGES``, in turn, beside others that are as long as fits."""
    across = [dim for dim in op.dims if dim.low < min(EDGES) and max(EDGES) < dim.high]
    found = []
    for edge, dim in product(EDGES, rng.sample(across, len(across))):
        others = [other for other in rng.sample(op.dims, len(op.dims)) if other is not dim]
        dims = {other.name: _size(rng, other, other.low + _SHORT) for other in op.dims} | {dim.name: edge}
        _lengthen(rng, op, dims, others)
        _double(op, dims, others, EDGE_ELEMENTS // 2)
        _double(op, dims, others[::-1], EDGE_ELEMENTS)
        if op.takes(dims) and elements(op, dims) <= EDGE_ELEMENTS and op.flops(**dims):
            found.append(dims)
    return found[:EDGE_COUNT]


def _double(op: Operator, dims: dict[str, int], others: list[Dim], most: int) -> None:
    """Doubles one size after the other, as often as ``op`` takes it and all elements fit."""
    for dim in others:
        while (longer := dims | {dim.name: min(2 * dims[dim.name], dim.high)}) != dims:
            if not op.takes(longer) or elements(op, longer) > most:
                break
            dims.update(longer)


def _lengthen(rng: random.Random, op: Operator, dims: dict[str, int], others: list[Dim]) -> None:
    """Doubles sizes until ``op`` takes them, one after the other, and no more than it takes: many entries need long rows or many, no wide operand."""
    short = dict(dims)
    for dim in rng.sample(others, len(others)):
        while not op.takes(dims) and dims[dim.name] < dim.high:
            dims[dim.name] = min(2 * max(1, dims[dim.name]), dim.high)
    for dim in others:
        while op.takes(dims) and dims[dim.name] > short[dim.name]:
            longer = dims[dim.name]
            dims[dim.name] = max(longer // 2, short[dim.name])
            if not op.takes(dims):
                dims[dim.name] = longer
                break


def _turns(rng: random.Random, op: Operator) -> list[Dim]:
    """Which dimension of each thin case is the long one."""
    long = [dim for dim in op.dims if dim.high > _FEW] if len(op.dims) > 1 else []
    some = [dim for dim in long if not THIN_ELEMENTS < _least(op, dim) <= THINNEST_ELEMENTS]
    costly = [dim for dim in long if THIN_ELEMENTS < _least(op, dim) <= THINNEST_ELEMENTS]
    turns = [*rng.sample(costly, min(1, len(costly))), *rng.sample(some, len(some)) * THIN_COUNT]
    return turns[: THIN_COUNT if some else 1]


def _least(op: Operator, long: Dim) -> int:
    """The elements of all arrays where this dimension is as long as it may be, and no other is longer than it has to be."""
    return elements(op, {dim.name: long.high if dim is long else dim.low for dim in op.dims})


def _shrink(rng: random.Random, op: Operator, dims: dict[str, int], free: list[Dim], most: int) -> bool:
    """Draws some of the sizes anew, smaller, until all elements fit; whether they do, and ``op`` takes such sizes."""
    if not op.takes(dims):
        return False
    while elements(op, dims) > most:
        longer = [dim for dim in free if dims[dim.name] > dim.low]
        if not longer:
            return False
        dim = rng.choice(longer)
        dims[dim.name] = _size(rng, dim, dims[dim.name] // 2)
    return op.takes(dims)


def _in_part(rng: random.Random, dim: Dim, part: tuple[int, int]) -> int:
    index, count = part
    values = dim.high + 1 - dim.low
    return dim.low + (index % values if values <= count else int(values * (index + rng.random()) / count))


def _size(rng: random.Random, dim: Dim, most: int) -> int:
    """Log-uniform, and often beside a multiple of what tiles are made of, near the end of the range, or a power of two."""
    low, high = dim.low, max(dim.low, min(dim.high, most))
    style = rng.random()
    size = int(math.exp(rng.uniform(math.log(max(low, 1)), math.log(high + 1)))) if high else 0
    if high <= low + _SHORT:
        return rng.randint(low, high)
    if style < 5 / 8:
        size = _beside(rng, rng.choice((size, rng.randint(low, high))))
    elif style < 6 / 8:
        size = high - rng.randint(0, high // 8)
    elif style < 7 / 8:
        size = 2 ** rng.randint(0, max(high, 1).bit_length())
    return min(max(size, low), high)


def _beside(rng: random.Random, size: int) -> int:
    tile = rng.choice(_TILES)
    return max(1, round(size / tile)) * tile + rng.choice(_BESIDE)
