"""Selects a command's cases: declared ones by split or id, and held-out ones drawn from the dimensions' ranges."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from msbench.errors import UnknownNameError
from msbench.operators.shapes import elements
from msbench.spec import Case, Dim, Operator, Scalar, Split

PUBLIC = (Split.PAPER, Split.LARGE, Split.ODD)
SELECTORS = (*PUBLIC, "heldout", "near", "all", "smallest")

HELDOUT_COUNT = 4
HELDOUT_ELEMENTS = 2**21
_DRAWS = 10_000
_FAR = 0.3  # of held-out sizes, as far as they are accepted
_SHORT = 8  # what other dimensions have then, at most, unless they have to be longer
_WIDE = 100  # from this ratio of its ends on a range is drawn from on a logarithmic scale
_NEAR_DRAWS = 1000
_UPPER = 0.2  # of a size
_SMALL = 16
_TWINS = ("spiked", "magnitudes")  # other numbers, as random as uniform ones: neither alike, few nor in order
_AT_AN_END = 0.3  # of hidden scalars
_NOTICEABLE = 0.1  # how far a drawn scalar is from the usual one, as a share of the larger of the two


def select_cases(op: Operator, selector: str, seed: int = 0) -> tuple[Case, ...]:
    """The cases that ``selector`` names, each once, in the order named.

    A selector is one or more of ``paper``, ``large``, ``odd``, ``all`` (these three), ``heldout`` (drawn from
    ``seed``), ``near`` (hidden sizes close to public ones), ``smallest``, and case ids such as ``N=1024`` or ``N=7,spiked``, separated by commas or plus signs. An id
    may give any sizes within the declared ranges. A distribution's name after an id belongs to it: ``paper,N=7,large``
    has two parts, ``paper,N=7+large`` three.

    Raises:
        UnknownNameError: a part is none of these; the message lists what there is.
    """
    chosen: dict[str, Case] = {}
    for part in _parts(op, selector):
        for case in _select(op, part, seed):
            chosen.setdefault(case.id, case)
    return tuple(chosen.values())


def heldout(
    op: Operator,
    seed: int,
    count: int = HELDOUT_COUNT,
    max_elements: int = HELDOUT_ELEMENTS,
    accept: Callable[[Case], bool] | None = None,
) -> tuple[Case, ...]:
    """``count`` cases that nobody can tune for: sizes and scalars from the declared ranges, with any of the distributions.

    A size is now and then the least there is, often next to a power of two, or to one times 3, 5 or 7, else log-uniform; in some cases one
    dimension is near the most there is, and the others small. For scalars see ``vary``. All
    arrays of a case hold at most ``max_elements`` elements together, and ``op.valid`` accepts it. The same seed gives the
    same cases. Fewer than ``count`` come back where the ranges hold no more; ``accept`` may be choosier.
    """
    rng = random.Random(f"{op.name}:{seed}")
    drawn: dict[tuple[tuple[str, int], ...], Case] = {}
    for _ in range(_DRAWS):
        if len(drawn) == count:
            break
        far = len(op.dims) > 1 and rng.random() < _FAR
        dims = tuple(_far(rng, op, max_elements) if far else _usual(rng, op, max_elements))
        case = Case(dims, Split.HELDOUT, rng.choice(op.distributions))
        if elements(op, dict(dims)) > max_elements or not op.takes(dict(dims)):
            continue
        if accept is None or accept(case):
            drawn.setdefault(dims, vary(op, case, seed))
    return tuple(drawn.values())


def nearly(op: Operator, case: Case, seed: int) -> Case | None:
    """A hidden case in the upper fifth below ``case``'s size, with odd dimensions as far as the operator has them.

    Sizes up to ``_SMALL`` stay what they are. All arrays together hold at least four fifths of what those of ``case`` hold. The
    same seed gives the same case. None where nothing fits, as for sizes that have to be powers of two.
    """
    rng = random.Random(f"{op.name}:{seed}:{case.id}:nearly")
    most = elements(op, dict(case.dims))
    for draw in range(_NEAR_DRAWS):
        dims = []
        even = rng.choice(op.dims) if draw >= _NEAR_DRAWS / 2 else None  # not every operator takes odd ones
        for dim, (name, size) in zip(op.dims, case.dims, strict=True):
            if size > _SMALL:
                size = max(dim.low, int(size * rng.uniform(1 - _UPPER, 1)) // 2 * 2 + (dim is not even))
            dims.append((name, size))
        fits = (1 - _UPPER) * most <= elements(op, dict(dims)) <= most and tuple(dims) != case.dims
        if fits and op.takes(dict(dims)):
            return vary(op, replace(case, dims=tuple(dims), split=Split.HELDOUT), seed)
    return None


def twin(op: Operator, case: Case) -> Case | None:
    """A large case with other inputs than uniform ones, on which a version that is fast on any numbers takes as long.

    None where the case is not large, its inputs are not uniform, or the operator draws none that are as random.
    """
    distribution = next((name for name in _TWINS if name in op.distributions), None)
    if case.split is not Split.LARGE or case.distribution != "uniform" or distribution is None:
        return None
    return replace(case, distribution=distribution)


def with_twins(op: Operator, cases: Iterable[Case]) -> tuple[Case, ...]:
    """The cases, and then the twins of the large ones, each once."""
    cases = tuple(cases)
    twins = (twin(op, case) for case in cases)
    return tuple({case.id: case for case in (*cases, *filter(None, twins))}.values())


def twins_among(cases: Iterable[Case]) -> dict[str, str]:
    """The id of each large case whose twin is among the cases, too, and the twin's."""
    large = [case for case in cases if case.split is Split.LARGE]
    sizes = {(case.dims, case.scalars): case.id for case in large if case.distribution == "uniform"}
    others = {(case.dims, case.scalars): case.id for case in large if case.distribution in _TWINS}
    return {name: others[size] for size, name in sizes.items() if size in others}


def vary(op: Operator, case: Case, seed: int) -> Case:
    """The case with other scalars, as a held-out one; the case itself where no scalar has a range.

    A value is an end of its range, or log-uniform in a wide positive one, else uniform, and not near the usual one. It has three digits, so that ids
    stay short, or is a multiple of the scalar's step. The same seed gives the same values.
    """
    rng = random.Random(f"{op.name}:{seed}:{case.id}")
    drawn = {s.name: _value(rng, s, s.low, s.high) for s in op.scalars if s.low is not None and s.high is not None}
    if not drawn:
        return case
    return replace(case, split=Split.HELDOUT, scalars=tuple((dict(case.scalars) | drawn).items()))


def noticeable(scalar: Scalar, value: float) -> bool:
    """Whether a value is far enough from the usual one to change results."""
    return abs(value - scalar.value) > _NOTICEABLE * max(abs(value), abs(scalar.value))


def _value(rng: random.Random, scalar: Scalar, low: float, high: float) -> float | int:
    if rng.random() < _AT_AN_END:
        value = rng.choice((low, high))
    elif scalar.step is not None:
        value = scalar.step * rng.randint(round(low / scalar.step), round(high / scalar.step))
    else:
        wide = low > 0 and high / low >= _WIDE
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if wide else rng.uniform(low, high)
        value = min(max(float(f"{value:.3g}"), low), high)
    further = low if abs(low - scalar.value) > abs(high - scalar.value) else high
    if scalar.ctype == "int64_t":
        return round(value if noticeable(scalar, round(value)) else further)
    return float(value if noticeable(scalar, value) else further)


def _usual(rng: random.Random, op: Operator, max_elements: int) -> Iterator[tuple[str, int]]:
    return ((dim.name, _size(rng, dim, max_elements)) for dim in op.dims)


def _far(rng: random.Random, op: Operator, max_elements: int) -> Iterator[tuple[str, int]]:
    """One dimension as long as it may be, or nearly, and all others short: what has limits of its own is seldom met otherwise."""
    far = rng.choice(op.dims)
    for dim in op.dims:
        if dim is far:
            most = max(dim.low, min(dim.high, max_elements))
            yield dim.name, max(dim.low, int(most * rng.uniform(1 / 4, 1)))
        else:
            yield dim.name, _size(rng, dim, _SHORT)


def _size(rng: random.Random, dim: Dim, max_elements: int) -> int:
    low, high = dim.low, max(dim.low, min(dim.high, max_elements))
    style = rng.random()
    if style < 0.1:
        return low
    shift = 1 if low == 0 else 0  # zero has no logarithm
    size = math.exp(rng.uniform(math.log(low + shift), math.log(high + 1 + shift)))
    if style < 0.4:
        odd = rng.choice((1, 1, 1, 3, 5, 7))
        size = odd * 2 ** round(math.log2(max(1.0, size / odd))) + rng.choice((-1, 0, 1))
    size -= shift
    return min(max(int(size), low), high)


def _parts(op: Operator, selector: str) -> Iterator[str]:
    """Cuts at plus signs and commas, except at the commas within a case id."""
    for group in selector.split("+"):
        identifier: list[str] = []
        for word in (w.strip() for w in group.split(",")):
            name = word.partition("=")[0]
            repeated = any(name == part.partition("=")[0] for part in identifier)
            continues = "=" in word or word in op.distributions
            if identifier and (repeated or not continues):
                yield ",".join(identifier)
                identifier = []
            if "=" in word or identifier:
                identifier.append(word)
            else:
                yield word
        if identifier:
            yield ",".join(identifier)


def _select(op: Operator, part: str, seed: int) -> tuple[Case, ...]:
    match part:
        case "all":
            return tuple(case for case in op.cases if case.split in PUBLIC)
        case "paper" | "large" | "odd":
            return tuple(case for case in op.cases if case.split == part)
        case "heldout":
            return heldout(op, seed)
        case "near":
            found = (nearly(op, case, seed) for case in op.cases if case.split is not Split.ODD)
            return tuple(case for case in found if case)
        case "smallest":
            return (min(op.cases, key=lambda case: elements(op, dict(case.dims))),)
    declared = {case.id: case for case in op.cases}
    return (declared.get(part) or _parse(op, part),)


def _parse(op: Operator, text: str) -> Case:
    """A case written out by its id, say ``"M=3,N=5,spiked"``. Sizes that no public case has count as held out."""
    known = (*SELECTORS, *(case.id for case in op.cases))
    distribution = "uniform"
    values: dict[str, str] = {}
    for word in text.split(","):
        name, equals, value = word.partition("=")
        if equals:
            values[name.strip()] = value.strip()
        else:
            distribution = name
    scalars = {s.name: s for s in op.scalars}
    try:
        dims = tuple((d.name, int(values.pop(d.name))) for d in op.dims)
        given = tuple((n, int(v) if scalars[n].ctype == "int64_t" else float(v)) for n, v in values.items())
    except (KeyError, ValueError):
        raise UnknownNameError(f"case of {op.name}", text, known) from None
    ranges = {d.name: d for d in op.dims}
    for name, size in dims:
        if not ranges[name].low <= size <= ranges[name].high:
            within = f"{name} from {ranges[name].low} to {ranges[name].high}"
            raise UnknownNameError(f"case of {op.name}", text, (*known, within))
    if not op.takes(dict(dims)):
        where = Path(op.folder or op.name, "spec.py")
        raise UnknownNameError(f"case of {op.name}", text, (), f"Its sizes do not go together: see `valid` in {where}.")
    public = {case.dims: case.split for case in op.cases}
    return Case(dims, public.get(dims, Split.HELDOUT), distribution, given)
