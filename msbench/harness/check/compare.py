"""Compares every element of a case's outputs with float64 references, within their bounds.

Temporaries stay small (a chunk of elements at a time), since the largest cases have 2^30 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from msbench.arrays import every, some
from msbench.errors import SpecError
from msbench.harness.arena import as_bytes
from msbench.harness.check.wide import wide
from msbench.harness.inputs import Draw, generate
from msbench.harness.spans import span
from msbench.operators import place, shapes
from msbench.operators.validate import one_line
from msbench.spec import Array, Case, Operator, Precision, Problem

_CHUNK, _GPU_CHUNK = (
    2**16,
    2**24,
)  # elements compared together: temporaries that stay in cache; launches worth their overhead

TOUCHED = 16
"""How many elements of each array of floats ``touch`` changes."""
_SOME = 1024  # from which they are taken


@dataclass(frozen=True)
class Expectation:
    """One case's inputs in their storage dtype, and each output's float64 reference and largest acceptable error.

    A bound is an array of the output's shape, or of one element that holds for all. ``bound_place`` says, for people, which
    of the spec's functions gave it and where that is.
    """

    case: Case
    seed: int
    inputs: Mapping[str, Any]
    references: Mapping[str, Any]
    bounds: Mapping[str, Any]
    bound_place: str


@dataclass(frozen=True)
class Comparison:
    """How one output compares with its reference.

    ``worst`` is the largest error over its bound (1 is the limit; infinite where a bound is zero or a NaN or infinity
    is out of place), ``max_abs_error`` the largest finite error. ``wrong`` of ``total`` elements are outside their
    bound, of which ``poisoned`` still hold the poison; the first of them is at ``index``.
    """

    total: int
    wrong: int
    worst: float
    max_abs_error: float
    poisoned: int = 0
    index: tuple[int, ...] | None = None
    expected: float | None = None
    got: float | None = None
    bound: float | None = None


def prepare(problem: Problem, seed: int, xp: Any) -> Expectation:
    """Draw a problem's inputs and compute the expected outputs. Raises SpecError where the operator's spec is wrong."""
    with span("inputs"):
        inputs = generate(problem, seed, xp)
    return expect(problem, seed, inputs, xp)


def expect(problem: Problem, seed: int, inputs: Mapping[str, Any], xp: Any) -> Expectation:
    """Compute the expected outputs of given inputs. Raises what ``expected`` raises."""
    with span("reference"):
        references, bounds = expected(problem, inputs, xp)
    where = _place(problem.operator, "bound", problem.case)
    return Expectation(problem.case, seed, inputs, references, bounds, where)


def outliers(problem: Problem, seed: int, xp: Any) -> dict[str, Any]:
    """A few elements for each input array of floats that are unlike a case's own: large ones of ``op.outliers``."""
    op, case = problem.operator, problem.case
    unlike = op.outliers if op.outliers in op.distributions else case.distribution
    drawn = generate(problem.task.at(replace(case, distribution=unlike)), seed, xp)
    draw = Draw(xp, op.name, case.id, str(seed), "outliers")
    floats = {name: array.reshape(-1) for name, array in drawn.items() if array.dtype.kind != "i" and array.size}
    return {name: _largest(draw, name, flat) for name, flat in floats.items()}


def _largest(draw: Draw, name: str, flat: Any) -> Any:
    """The largest element of all, and the largest of some that are picked at random."""
    xp, wide = draw.xp, flat.astype(np.float32, copy=False)
    some = wide[draw.integers(name, (_SOME,), 0, flat.size)]
    largest = some[xp.argsort(xp.abs(some))[-TOUCHED:]]
    largest[0] = wide[xp.argmax(xp.abs(wide))]
    return largest.astype(flat.dtype)


def touch(problem: Problem, seed: int, inputs: Mapping[str, Any], others: Mapping[str, Any], xp: Any) -> None:
    """Put ``others`` (see ``outliers``) among the ``inputs``, in place and wherever the seed says.

    So few that a kernel that samples its input is unlikely to see one, and large enough to affect every sum and maximum.
    """
    draw = Draw(xp, problem.operator.name, problem.case.id, str(seed), "touched")
    for name, values in others.items():
        flat = inputs[name].reshape(-1)
        count = min(len(values), flat.size)
        flat[draw.integers(name, (count,), 0, flat.size)] = values[:count]


def expected(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The float64 references and bounds of every output, from float64 copies of the precision-rounded ``inputs``.

    Raises:
        SpecError: ``reference`` or ``bound`` raised, forgets an output, or gives no numbers or those of a wrong shape or type.
    """
    op, case = problem.operator, problem.case
    extents = shapes(op, problem.dims)
    exact = {n: a if a.dtype.kind == "i" else wide(a, xp) for n, a in inputs.items()}
    arguments = {**exact, **op.scalar_values(case), **problem.dims}
    with np.errstate(all="ignore"):  # NaN and infinity among the inputs are deliberate
        found = _called(op, "reference", case, lambda: op.reference(xp, **arguments))
        references = _arrays(op, "reference", case, found, xp)
        _require(op, "reference", case, references, lambda a, given: _wrong_reference(a, given, extents[a.name]))
        out = {**found, **references}
        given = _called(op, "bound", case, lambda: op.bound(xp, problem.precision.unit_roundoff, out, **arguments))
        bounds = _arrays(op, "bound", case, given, xp)
        _require(op, "bound", case, bounds, lambda a, given: _wrong_bound(given, extents[a.name]))
    for name, bound in bounds.items():
        if bound.size != 1 and bound.shape != extents[name]:
            bounds[name] = xp.ascontiguousarray(xp.broadcast_to(bound, extents[name]))
    return references, bounds


def _called(op: Operator, what: str, case: Case, function: Callable[[], Any]) -> Mapping[str, Any]:
    """What a spec's function gives for each output, and besides; what it raises is the spec's fault, but for want of memory."""
    try:
        result = function()
    except MemoryError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {one_line(error)}"
        raise SpecError(f"{_place(op, what, case, error)}: {told.rstrip('.')}.") from error
    names = [a.name for a in op.outputs]
    if not isinstance(result, Mapping) and len(names) == 1:
        result = {names[0]: result}
    if not isinstance(result, Mapping) or not set(result) >= set(names):
        given = f"a dict with {_listed(result)}" if isinstance(result, Mapping) else type(result).__name__
        raise SpecError(f"{_place(op, what, case)}: it returned {given}; return a dict with {', '.join(names)}.")
    return result


def _arrays(op: Operator, what: str, case: Case, found: Mapping[str, Any], xp: Any) -> dict[str, Any]:
    """Each output's array."""
    return {output.name: _array(op, what, case, output.name, found[output.name], xp) for output in op.outputs}


def _array(op: Operator, what: str, case: Case, name: str, value: Any, xp: Any) -> Any:
    """What was returned for one output as an array of numbers."""
    try:
        array = xp.asarray(value)
    except MemoryError:
        raise
    except Exception:  # a list of arrays of several lengths, or, from CuPy, anything that is no number
        array = None
    if array is None or array.dtype.kind not in "fiu":
        given = value.dtype if isinstance(value, xp.ndarray) else type(value).__name__
        raise SpecError(f"{_place(op, what, case)}: {name} is {given}; return an array of real numbers.")
    return array


def _require(
    op: Operator, what: str, case: Case, given: Mapping[str, Any], wrong: Callable[[Array, Any], str | None]
) -> None:
    """That nothing is ``wrong`` with what was returned for any output. Only shapes and types are looked at, never values."""
    for output in op.outputs:
        problem = wrong(output, given[output.name])
        if problem:
            raise SpecError(f"{_place(op, what, case)}: {output.name} {problem}")


def _wrong_reference(output: Array, given: Any, shape: tuple[int, ...]) -> str | None:
    """What is wrong with an output's reference. One that was rounded on its way would let wrong kernels pass."""
    if given.shape != shape:
        return f"has the shape {given.shape}; return that which the spec declares, {shape}."
    if given.dtype == np.float64 or (output.dtype == "i32" and given.dtype.kind in "iu"):
        return None
    meant = "float64 or integers" if output.dtype == "i32" else "float64, as the inputs are"
    return f"is {given.dtype}; return {meant}."


def _wrong_bound(given: Any, shape: tuple[int, ...]) -> str | None:
    try:
        fits = given.size == 1 or np.broadcast_shapes(given.shape, shape) == shape
    except ValueError:
        fits = False
    return None if fits else f"has the shape {given.shape}; return one bound for all elements, or an array of {shape}."


def _place(op: Operator, what: str, case: Case, error: BaseException | None = None) -> str:
    """Which of a spec's functions is meant, on which case, and where it is."""
    return f"{op.name}: {what} at {case.id} ({place(op, error)})"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"


def glance(reference: Any, bound: Any, got: Any, xp: Any) -> Any:
    """What ``compare`` finds where nothing is wrong, in float64 on the device, without waiting for it.

    1 if every element is finite and within its bound, else 0, and then only ``compare`` knows; the largest error over its
    bound; the largest error.
    """
    found = [
        xp.stack([every(within, xp).astype(np.float64), ratio.max(), error.max()])
        for _, error, _, within, ratio in _errors(reference, bound, got, xp)
    ]
    if len(found) < 2:
        return found[0] if found else xp.asarray([1.0, 0.0, 0.0])
    parts = xp.stack(found)
    return xp.stack([parts[:, 0].min(), parts[:, 1].max(), parts[:, 2].max()])


def _errors(reference: Any, bound: Any, got: Any, xp: Any) -> Iterator[tuple[int, Any, Any, Any, Any]]:
    """Of each chunk: where it starts, errors, bounds, which elements are within them, and by how much of them.

    NaN and infinity are not within any bound: they need a second look. Nor is a zero of the other sign within a bound of zero.
    """
    reference, got, bound = reference.reshape(-1), got.reshape(-1), bound.reshape(-1).astype(np.float64, copy=False)
    chunk = _CHUNK if xp is np else _GPU_CHUNK
    for start in range(0, int(got.size), chunk):
        part = slice(start, start + chunk)
        b = bound if bound.size == 1 else bound[part]
        with np.errstate(all="ignore"):
            r, g = reference[part].astype(np.float64, copy=False), wide(got[part], xp)
            if xp is np:
                error = xp.abs(g - r)
                within = (error <= b) & (error < xp.inf) & ((b > 0) | _same_sign(r, g, xp))
                yield start, error, b, within, xp.where(within & (b > 0), error / b, 0.0)
            else:
                error, within, ratio = _judge(xp)(r, g, b)
                yield start, error, b, within, ratio


@cache
def _judge(xp: Any) -> Any:
    """The same in one pass over memory."""
    return xp.ElementwiseKernel(
        "float64 r, float64 g, float64 b",
        "float64 error, bool within, float64 ratio",
        """
        error = fabs(g - r);
        within = error <= b && isfinite(error) && (b > 0 || !signbit(r) == !signbit(g));
        ratio = within && b > 0 ? error / b : 0.0;
        """,
        "msbench_judge",
    )


def compare(
    reference: Any, bound: Any, got: Any, xp: Any, poison: int | None = None, bound_place: str = "bound"
) -> Comparison:
    """Compare every element of ``got`` (float32, bfloat16 or int32) with ``reference``.

    A finite element must be within its bound, and the same bit for bit, zeros' signs included, where the bound is 0. NaN must
    be where the reference has NaN, and infinity where it has the same infinity; their bounds are ignored. Where a finite
    reference, give or take its bound, reaches the point from which values round to infinity in ``got``'s format, the
    infinity of that sign is right too.

    Args:
        poison: the byte that filled ``got`` before; wrong elements that still hold it are counted.
        bound_place: what gave the bound, for the message if it is wrong.

    Raises:
        SpecError: a bound of a finite reference is NaN or negative.
    """
    shape, total = got.shape, int(got.size)
    reference, got = reference.reshape(-1), got.reshape(-1)
    bound = bound.reshape(-1).astype(np.float64, copy=False)
    wrong = poisoned = 0
    worst = max_abs_error = 0.0
    first: int | None = None
    for start, error, b, within, ratio in _errors(reference, bound, got, xp):
        part = slice(start, start + error.size)
        r, g = reference[part].astype(np.float64, copy=False), wide(got[part], xp)
        worst = max(worst, float(ratio.max()))
        max_abs_error = max(max_abs_error, float(xp.where(xp.isfinite(error), error, 0.0).max()))
        if bool(every(within, xp)):
            continue
        suspects = xp.flatnonzero(~within)
        bounds_here = xp.broadcast_to(b, r.shape)[suspects]
        senseless = xp.isfinite(r[suspects]) & ~(bounds_here >= 0)
        if bool(some(senseless, xp)):
            raise SpecError(
                _senseless(bound_place, start + int(suspects[senseless][0]), shape, bounds_here[senseless][0])
            )
        bad = suspects[~_acceptable(r[suspects], bounds_here, g[suspects], _overflow(got.dtype), xp)]
        if not bad.size:
            continue
        if first is None:
            first = start + int(bad[0])
        wrong += int(bad.size)
        worst = max(worst, _ratio(error[bad], xp.broadcast_to(b, r.shape)[bad], xp))
        if poison is not None:
            raw = as_bytes(got[part]).reshape(-1, got.dtype.itemsize)[bad]
            poisoned += int(xp.flatnonzero((raw == poison).all(axis=1)).size)  # to add bools, CuPy compiles CUB
    if first is None:
        return Comparison(total, 0, worst, max_abs_error)
    return Comparison(
        total,
        wrong,
        worst,
        max_abs_error,
        poisoned,
        tuple(int(i) for i in np.unravel_index(first, shape)),
        float(reference[first]),
        float(wide(got[first : first + 1], xp)[0]),
        float(bound[0 if bound.size == 1 else first]),
    )


def _senseless(place: str, first: int, shape: tuple[int, ...], value: Any) -> str:
    index = [int(i) for i in np.unravel_index(first, shape)]
    return (
        f"{place}: it is {float(value):.3g} at element {index}, where the reference is finite; return 0 or more there."
    )


def _acceptable(r: Any, b: Any, g: Any, overflow: float, xp: Any) -> Any:
    """Which elements are right although their error is not a number within the bound."""
    both_nan = xp.isnan(r) & xp.isnan(g)
    with np.errstate(all="ignore"):
        overflowed = xp.isfinite(r) & (((g == xp.inf) & (r + b >= overflow)) | ((g == -xp.inf) & (r - b <= -overflow)))
    return both_nan | ((r == g) & ((b > 0) | _same_sign(r, g, xp))) | overflowed


def _same_sign(r: Any, g: Any, xp: Any) -> Any:
    """Which elements have the same sign, zeros included."""
    return xp.signbit(r) == xp.signbit(g)


def _overflow(dtype: np.dtype[Any]) -> float:
    """The smallest magnitude that rounds to infinity: half a unit in the last place above the largest finite number."""
    if dtype.kind == "i":
        return np.inf
    precision = Precision.FP32 if dtype == np.float32 else Precision.BF16
    return (2.0 - precision.unit_roundoff) * 2.0**127  # IEEE 754-2019, section 4.3.1; both formats have emax = 127


def _ratio(error: Any, bound: Any, xp: Any) -> float:
    with np.errstate(all="ignore"):
        ratio = error / bound
    return float(xp.where(xp.isnan(ratio), xp.inf, ratio).max())
