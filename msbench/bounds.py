"""Error bounds that operator specs share: how far a right kernel can be from the float64 reference.

Arithmetic is fp32 or better in every precision, and the result is rounded once to the element type. All functions take
NumPy and CuPy arrays; `xp` is the module that they come from.

References:
    Higham 2002, "Accuracy and Stability of Numerical Algorithms", 2nd edition.
    Higham and Mary 2019, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

FP32_ROUNDOFF = 2.0**-24
"""v: the unit roundoff of the arithmetic inside a kernel."""
FLOOR = 2.0**-126
"""The smallest normal number of fp32 and bf16: results below it may be flushed to zero, as vendor libraries do."""
CONFIDENCE = 8.0
"""λ in Higham and Mary's bound; a result is beyond it with a probability of at most 2·exp(-λ²/2) = 3e-14."""
LONGEST_CHAIN = 4096
"""Terms that a sensible kernel adds one after another; the errors of the partial sums of longer ones average out."""


def rounded(xp: Any, u: float, exact: Any, error: Any = 0.0) -> Any:
    """Bound for ``exact`` computed in fp32 within ``error`` (absolute), then rounded to a type of unit roundoff ``u``.

    |fl(x̂) - x| ≤ |x̂ - x| + u·|x̂| (Higham 2002, theorem 2.2); for u > v the fp32 result of one last operation is
    itself rounded once, hence u + v. ``FLOOR`` covers results that are subnormal.
    """
    once = u if u <= FP32_ROUNDOFF else u + FP32_ROUNDOFF
    return once * xp.abs(exact) + (1 + once) * error + FLOOR


def growth(xp: Any, terms: Any) -> Any:
    """The error of a sum of ``terms`` products t in any order, in units of v·Σ|t|.

    min(n, λ·√n): the first is always true (Higham 2002, equation 4.4, with one rounding more for the product), the
    second holds with certainty for all practical purposes when roundings are independent (Higham and Mary 2019,
    theorem 3.1). ``terms`` is a number or an array.
    """
    chain = xp.minimum(xp.asarray(terms, dtype="float64"), LONGEST_CHAIN)
    return xp.minimum(chain, CONFIDENCE * xp.sqrt(chain))


def probabilistic(terms: int) -> float:
    """λ·v·√n: the error of a sum of n terms relative to its largest partial sum (Higham and Mary 2019, theorem 3.1)."""
    return CONFIDENCE * FP32_ROUNDOFF * sqrt(terms)
