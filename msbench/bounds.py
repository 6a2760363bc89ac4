"""Error bounds that operator specs share: how far a right kernel can be from the float64 reference.

Arithmetic is fp32 or better in every precision, and the result is rounded once to the element type. All functions take
NumPy and CuPy arrays; `xp` is the module that they come from.

References:
    Higham 2002, "Accuracy and Stability of Numerical Algorithms", 2nd edition.
    Higham and Mary 2019, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5).
    von Neumann 1941, "Distribution of the ratio of the mean square successive difference to the variance", Ann. Math. Stat. 12(4).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from msbench.arrays import count as count_along
from msbench.arrays import some

FP32_ROUNDOFF = 2.0**-24
"""v: the unit roundoff of the arithmetic inside a kernel."""
FLOOR = 2.0**-126
"""The smallest normal number of fp32 and bf16: results below it may be flushed to zero, as vendor libraries do."""
EITHER_ZERO = 2.0**-150
"""A bound that leaves only the sign of a zero open: half of the least difference between two numbers of either type. Where the
bound is 0 instead, the signs of zeros have to be right, too."""
CONFIDENCE = 8.0
"""λ in Higham and Mary's bound; a result is beyond it with a probability of at most 2·exp(-λ²/2) = 3e-14."""
LONGEST_CHAIN = 4096
"""Terms that a sensible kernel adds one after another; the errors of the partial sums of longer ones average out."""
FEW_UNITS = 32.0
"""Units of v, from which on a term's rounding is as good as random."""
NEGLIGIBLE = 2.0**-40
"""Of the largest factor: products with a smaller one are no more than 2^14·2^-40 together, a fraction of one rounding."""
PARTIAL_SUMS = 8
"""Places at which bounds look at partial sums: the largest of all may be between them, which √Σt² makes up for."""


def rounded(xp: Any, u: float, exact: Any, error: Any = 0.0) -> Any:
    """Bound for ``exact`` computed in fp32 within ``error`` (absolute), then rounded to a type of unit roundoff ``u``.

    |fl(x̂) - x| ≤ |x̂ - x| + u·|x̂| (Higham 2002, theorem 2.2); for u > v the fp32 result of one last operation is
    itself rounded once, hence u + v. ``FLOOR`` covers results that are subnormal.
    """
    once = u if u <= FP32_ROUNDOFF else u + FP32_ROUNDOFF
    return once * xp.abs(exact) + (1 + once) * error + FLOOR


def alike(xp: Any, values: Any, axis: int = 0) -> Any:
    """How alike neighbours along an axis are, without that axis: 0 for numbers in random order, near 1 for sorted or equal ones.

    The rounding of s + t depends only on t modulo an ulp of s. Where terms hardly change, or rise by whole ulps as sorted
    ones of a power of two do, that is the same for thousands of terms: their roundings are not independent but equal.

    The mean difference of neighbours over the mean distance from the mean is 4/3 for uniform numbers, more with outliers,
    and about 4/n for n sorted ones (after von Neumann 1941). From 1/4 on the result is 0, so that bounds for ordinary inputs
    stay as narrow as they are, and so it is where there is a NaN or an infinity. A sixteenth of the mean size is added to
    the distance: numbers that are the same but for a step near one end are alike too.
    """
    differences = xp.diff(values, axis=axis)
    changes = xp.sum(xp.abs(differences, out=differences), axis=axis)
    del differences  # matrices may be as large as memory allows
    distances = values - xp.sum(values, axis=axis, keepdims=True) / values.shape[axis]
    scale = xp.sum(xp.abs(distances, out=distances), axis=axis)
    scale += xp.sum(xp.abs(values, out=distances), axis=axis) / 16
    ratio = changes / xp.where(scale == 0, 1.0, scale)
    return xp.where(ratio < 0.25, 1 - 4 * ratio, 0.0)


def growth(xp: Any, terms: Any, likeness: Any = 0.0) -> Any:
    """The error of a sum of ``terms`` products t in any order, in units of v·Σ|t|.

    min(n, λ·√n): the first is always true (Higham 2002, equation 4.4, with one rounding more for the product), the
    second holds with certainty for all practical purposes when roundings are independent (Higham and Mary 2019,
    theorem 3.1). Where they are not, because terms are ``alike``, it is at least n times ``likeness``. ``terms`` is a number
    or an array.
    """
    chain = xp.minimum(xp.asarray(terms, dtype="float64"), LONGEST_CHAIN)
    return xp.maximum(xp.minimum(chain, CONFIDENCE * xp.sqrt(chain)), chain * likeness)


def absorbed(xp: Any, weights: Any) -> Any:
    """What running sums may lose of each positive term, in units of v times the sum; ``weights`` are the terms' parts of it.

    Once a large term is in, each that is below half an ulp vanishes, and one of a few ulp is rounded the same way again and
    again: up to min(w, v) each, which is no matter of chance and grows with their number. Roundings of larger ones are
    independent, see ``growth``.
    """
    parts = weights / FP32_ROUNDOFF
    return xp.where(parts < FEW_UNITS, xp.minimum(parts, 1.0), 0.0)


def probabilistic(terms: int) -> float:
    """λ·v·√n: the error of a sum of n terms relative to its largest partial sum (Higham and Mary 2019, theorem 3.1)."""
    return CONFIDENCE * FP32_ROUNDOFF * sqrt(terms)


def product(xp: Any, left: Any, right: Any) -> Any:
    """The error of ``left @ right`` in fp32, in any order of summation, as an array of the product's shape.

    ``left`` is […, m, k] and ``right`` […, k, n] or, for a vector, [k]. It is λ·v·√t times the largest partial sum (Higham
    and Mary 2019, theorem 3.1), taken as the largest of eight plus √Σ(terms²). t is how many of the products have two large
    factors: of more than ``NEGLIGIBLE`` of the largest in their row of ``left`` or column of ``right``. Other products may be
    lost, each at most once, since adding a number to a sum errs by no more than the number: their sizes are added.
    Where neighbours in that row and in that column are ``alike``, so are their products and the roundings of the sum: there
    the factor is at least t·v, which is always true (Higham 2002, equation 4.4), times both likenesses.
    """
    terms = left.shape[-1]
    depth = right.ndim - 2 if right.ndim > 1 else 0  # the axis of `right` that is summed over
    partial = largest = 0.0
    step = -(-terms // PARTIAL_SUMS)
    for start in range(0, terms, step):
        part = slice(start, start + step)
        a, b = left[..., part], right[(slice(None),) * depth + (part,)]
        partial = partial + a @ b
        largest = xp.maximum(largest, xp.abs(partial))
    del partial  # of 16384 rows and columns it is 2 GiB
    largest += xp.sqrt((left * left) @ (right * right))
    rows, columns = alike(xp, left, -1), alike(xp, right, depth)
    if right.ndim > 1:
        rows, columns = rows[..., None], columns[..., None, :]
    count, lost = _large_terms(xp, left, right, depth)
    largest *= xp.maximum(rows * columns * count, CONFIDENCE * xp.sqrt(count))
    largest *= FP32_ROUNDOFF
    largest += lost
    return largest


def _large_terms(xp: Any, left: Any, right: Any, depth: int) -> tuple[Any, Any]:
    """Of each sum in ``left @ right``: how many of its products have two large factors, and the sizes of the others added up.

    Small factors are few as a rule: only those terms of the sums are looked at that have any.
    """
    small, facts = [], []
    for array, axis in ((left, -1), (right, depth)):
        sizes = xp.abs(array)
        small.append(~(sizes > NEGLIGIBLE * xp.max(sizes, axis=axis, keepdims=True)))
        del sizes  # as in `alike`
        facts += [some(small[-1], xp), some(small[-1] & (array != 0), xp)]
    small_left, negligible_left, small_right, negligible_right = xp.stack(facts).tolist()  # a GPU is asked but once
    terms = float(left.shape[-1])
    if not (small_left or small_right):
        return xp.asarray(terms), 0.0
    of_left, of_right = small

    in_left, in_right = _somewhere(xp, of_left, -1), _somewhere(xp, of_right, depth)

    def at(places: Any, one: Any, other: Any) -> tuple[Any, Any]:
        places = xp.flatnonzero(places)
        return xp.take(one, places, axis=-1), xp.take(other, places, axis=depth)

    rows, columns = count_along(of_left, xp, -1), count_along(of_right, xp, depth)
    if right.ndim > 1:
        rows, columns = rows[..., None], columns[..., None, :]
    both = at(in_left & in_right, of_left, of_right)
    count = terms - rows - columns
    count += both[0].astype("float32") @ both[1].astype("float32")  # exact up to 2^24 terms
    if not (negligible_left or negligible_right):
        return count, 0.0
    (one, other), (is_small, _) = at(in_left, left, right), at(in_left, of_left, of_right)
    lost = xp.where(is_small, xp.abs(one), 0.0) @ xp.abs(other)
    (one, other), (left_is_small, is_small) = at(in_right, left, right), at(in_right, of_left, of_right)
    lost += xp.where(left_is_small, 0.0, xp.abs(one)) @ xp.where(is_small, xp.abs(other), 0.0)  # the others
    return count, lost


def _somewhere(xp: Any, mask: Any, axis: int) -> Any:
    """At which places along an axis ``mask`` is true anywhere."""
    return some(mask, xp, tuple(n for n in range(mask.ndim) if n != axis % mask.ndim))


def summed(xp: Any, terms: Any, likeness: Any = 0.0) -> Any:
    """The error of Σ ``terms`` along the first axis, added up in fp32 in any order.

    λ·v·√n times the largest partial sum (Higham and Mary 2019, theorem 3.1), taken as the largest of eight partial sums
    plus √Σt². Unlike ``growth`` it does not grow with Σ|t| where terms cancel. Where terms are ``alike``, the factor is at
    least n·v (Higham 2002, equation 4.4) times their ``likeness``.
    """
    count = len(terms)
    partial = xp.zeros(terms.shape[1:])
    largest = xp.zeros(terms.shape[1:])
    step = -(-count // PARTIAL_SUMS)
    for start in range(0, count, step):
        partial = partial + xp.sum(terms[start : start + step], axis=0)
        largest = xp.maximum(largest, xp.abs(partial))
    chain = min(count, LONGEST_CHAIN)
    factor = xp.maximum(probabilistic(chain), FP32_ROUNDOFF * chain * xp.asarray(likeness))
    return factor * (largest + xp.sqrt(xp.sum(terms * terms, axis=0)))


def normalised(xp: Any, u: float, y: Any, x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    """Bound for y = weight·(x - m)/σ + bias, where m and σ² - ε are mean and variance of ``x`` along the first axis.

    The variance may come from two passes or from Welford's updates, joined in any way: it errs by a sum's growth times
    κ = √(1 + m²/variance), and by the square of the mean's own error (Chan, Golub and LeVeque 1983, "Algorithms for computing the
    sample variance", The American Statistician 37(3), table 1). E[x²] - m² errs by κ times more, which shows where κ is
    large. The last step may be x·s + (bias - m·s) with s = weight/σ. Ten roundings cover differences, quotients,
    products and a reciprocal square root of 2 ulp.
    """
    mean = xp.mean(x, axis=0)
    variance = xp.var(x, axis=0)
    spread = variance + epsilon
    mean_error = summed(xp, x) / len(x) + 2 * FP32_ROUNDOFF * xp.abs(mean)
    conditioned = xp.sqrt(variance * (variance + mean * mean))
    variance_error = (growth(xp, len(x)) + 8) * FP32_ROUNDOFF * conditioned + mean_error**2
    relative = 10 * FP32_ROUNDOFF + variance_error / (2 * spread)
    distances = mean_error + relative * xp.abs(x - mean) + 2 * FP32_ROUNDOFF * (xp.abs(x) + xp.abs(mean))
    error = xp.abs(weight) / xp.sqrt(spread) * distances + FP32_ROUNDOFF * (xp.abs(y) + xp.abs(bias))
    return rounded(xp, u, y, error)


def exponential(xp: Any, argument: Any, roundings: int = 0) -> Any:
    """The error of exp in fp32 relative to it, in units of v, where ``roundings`` happened to the ``argument`` before.

    5 for expf's two ulps, and three times the argument for __expf, which multiplies it by log₂e and takes a power of two
    (CUDA C++ Programming Guide, intrinsic functions: 2 + 1.173·|x| ulp). Beyond ±128 the result has left fp32's range;
    the limit keeps infinities from making 0·∞.
    """
    return (3 + roundings) * xp.minimum(xp.abs(argument), 128.0) + 5


def logistic(xp: Any, argument: Any, roundings: int = 0) -> Any:
    """The error of σ(t) = 1/(1 + exp(-t)) in fp32 relative to it, in units of v; ``roundings`` as for ``exponential``.

    The exponential hands on its share of the denominator, 1 - σ; the sum adds 1 and a quotient of two ulps 5.
    """
    return exponential(xp, argument, roundings) / (1 + xp.exp(argument)) + 6


def gated(xp: Any, u: float, out: Any, gate: Any, value: Any, beta: float = 1.0) -> Any:
    """Bound for ``out`` = gate·σ(beta·gate)·value: SiLU (beta = 1) or Swish of a gate times a value, elementwise.

    Two roundings for beta as a float and its product, unless it is 1, and two for the products that follow. σ may be
    flushed to zero where it is below ``FLOOR``, whichever of gate and value it is multiplied with first.
    """
    relative = logistic(xp, beta * gate, 0 if beta == 1 else 2) + 2
    flushed = FLOOR * (xp.abs(gate) + 1) * (xp.abs(value) + 1)
    return rounded(xp, u, out, FP32_ROUNDOFF * relative * xp.abs(out) + flushed)
