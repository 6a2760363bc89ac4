"""Sums of many weighted arrays, element by element, as convolutions are, with the error that fp32 makes of them.

On a GPU eight arrays are added by one kernel, which reads what they share (an image's windows overlap) from its caches: one by one,
each would move sums and products through memory, twenty times the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any

from msbench.bounds import CONFIDENCE, FP32_ROUNDOFF, PARTIAL_SUMS

_TOGETHER = 8


def weighted_sum(xp: Any, terms: Iterable[tuple[Any, Any]], count: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Σ weight·array over ``count`` ``terms``, pairs of a number (as an array of none of its dimensions) and an array of
    ``shape``; and its error in fp32, in any order. Both in float64.

    The error is λ·v·√n times each element's largest partial sum (Higham and Mary 2019, theorem 3.1), taken as the largest of
    eight partial sums plus √Σt²; n is how many of an element's products are not zero.
    """
    sums, largest = _Sums(xp, shape), xp.zeros(shape)
    for part in _parts(terms, -(-count // PARTIAL_SUMS)):
        sums.add(part)
        xp.maximum(largest, xp.abs(sums.total), out=largest)
    largest += xp.sqrt(sums.squares, out=sums.squares)
    largest *= xp.sqrt(sums.nonzeros, out=sums.nonzeros)
    largest *= CONFIDENCE * FP32_ROUNDOFF
    return sums.total, largest


class _Sums:
    """Of products so far, element by element: their ``total``, the sum of their ``squares``, and how many are ``nonzeros``."""

    def __init__(self, xp: Any, shape: tuple[int, ...]) -> None:
        self._xp = xp
        self.total, self.squares, self.nonzeros = (xp.zeros(shape) for _ in range(3))

    def add(self, terms: Iterable[tuple[Any, Any]]) -> None:
        kernels = hasattr(self._xp, "ElementwiseKernel")
        for part in _parts(terms, _TOGETHER if kernels else 1):
            if kernels:
                weights, arrays = zip(*part, strict=True)
                sums = self.total, self.squares, self.nonzeros
                _kernel(self._xp, len(part))(*weights, *arrays, *sums, *sums)
            else:
                ((weight, array),) = part
                product = weight * array
                self.total += product
                self.nonzeros += product != 0
                self.squares += self._xp.multiply(product, product, out=product)


@cache
def _kernel(xp: Any, count: int) -> Any:
    """Adds ``count`` products to the sums."""
    numbers = range(count)
    steps = "".join(f"t = w{i} * x{i}; total += t; squares += t * t; nonzeros += t != 0;\n" for i in numbers)
    return xp.ElementwiseKernel(
        ", ".join(f"float64 {name}{i}" for name in "wx" for i in numbers)
        + ", float64 total0, float64 squares0, float64 nonzeros0",
        "float64 total, float64 squares, float64 nonzeros",
        f"total = total0; squares = squares0; nonzeros = nonzeros0;\ndouble t;\n{steps}",
        f"msbench_add_{count}_products",
    )


def _parts(terms: Iterable[tuple[Any, Any]], size: int) -> Iterator[list[tuple[Any, Any]]]:
    left = iter(terms)
    while part := list(islice(left, size)):
        yield part
