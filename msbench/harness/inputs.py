"""Seeded inputs, the same bits from NumPy and from CuPy, on any machine and with any version of either.

Numbers come from SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"): element i of
an array is a hash of i and of a key made from operator, case, seed and the array's name. Arrays are filled in chunks
where they lie, so that memory never holds more than a chunk of 64-bit temporaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from math import prod
from types import MappingProxyType
from typing import Any

from msbench.errors import SpecError
from msbench.model import digest
from msbench.operators import patches, patchwork, place, shapes
from msbench.spec import Array, Operator, Precision, Problem

_MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15
_CPU_CHUNK, _GPU_CHUNK = 2**14, 2**24  # temporaries that stay in cache; launches worth their overhead

SPIKE = 256.0
"""What one element in 64 of the ``spiked`` distribution is multiplied with: enough for exp to overflow, and not so much
that a sum of squares swallows its other terms whole."""
TINY = 2.0**-56
"""The range of the ``tiny`` distribution: products of two are still normal numbers, products of three are not."""
LARGE = 2.0**40
"""The range of the ``large`` distribution: squares of it can still be summed in fp32."""
FEW = patches.FEW
"""How many elements ``Draw.few`` leaves of each column: a sum of so few products has no room for inexact ones."""


def generate(problem: Problem, seed: int, xp: Any) -> dict[str, Any]:
    """The input arrays of a problem by name, in their storage types and the order of the C prototype.

    ``xp`` is numpy or cupy; both give the same bits. A precision's rounding is already in the values.

    Raises:
        SpecError: the operator's own ``inputs`` raised, or gave arrays of other names, shapes or types than declared.
    """
    op, case, dims = problem.operator, problem.case, problem.dims
    extents = shapes(op, dims)
    rng = Draw(xp, op.name, case.id, str(seed))
    if op.inputs is None:
        kinds = op.kinds or patchwork.EVERY
        drawn = {a.name: rng.floats(a.name, extents[a.name], case.distribution, kinds=kinds) for a in op.inputs_}
    else:
        try:
            drawn = op.inputs(rng, case.distribution, **op.scalar_values(case), **dims)
        except MemoryError:  # others have the device's memory: no fault of the spec
            raise
        except Exception as error:
            where = f"{place(op, error)}: inputs({case.distribution!r}) of {case.id}"
            raise SpecError(f"{where}: {type(error).__name__}: {error}") from error
    return {a.name: _stored(op, a, drawn, extents[a.name], problem.precision, xp) for a in op.inputs_}


class Draw:
    """What an operator's ``inputs`` draws from. Every draw has a name and is independent of the others.

    ``xp`` is numpy or cupy, and the draws are its arrays.
    """

    def __init__(self, xp: Any, *key: str) -> None:
        self.xp = xp
        self._key = key

    def uniform(self, name: str, shape: tuple[int, ...]) -> Any:
        """float32 in [0, 1), multiples of 2^-24."""
        if self.xp.__name__ == "numpy":
            return self.fill(name, shape, "float32", lambda bits, _: (bits >> 40) * 2.0**-24)
        kernel = _uniform_at_once(self.xp)
        return self.fill(name, shape, "float32", lambda bits, _: kernel(bits))

    def integers(self, name: str, shape: tuple[int, ...], low: int, high: int) -> Any:
        """int32 in [low, high), for ``high - low`` up to 2^31."""
        span = high - low
        if self.xp.__name__ == "numpy":
            return self.fill(name, shape, "int32", lambda bits, _: ((bits >> 33) * span >> 31).astype("int64") + low)
        kernel = _integers_at_once(self.xp)
        return self.fill(name, shape, "int32", lambda bits, _: kernel(bits, span, low))

    def floats(
        self,
        name: str,
        shape: tuple[int, ...],
        distribution: str,
        axis: int | None = None,
        tile: tuple[int, int] | None = None,
        kinds: tuple[str, ...] = patchwork.EVERY,
    ) -> Any:
        """float32 of one of the standard distributions (see docs/contract.md).

        ``patchwork``, ``dotted`` and ``scattered`` draw one of ``kinds`` (of which ``msbench.operators.patchwork`` has some tuples) for every
        line along ``axis``, or every ``tile`` of rows and columns, or every run of up to 255 elements of memory.

        Raises:
            SpecError: there is no such distribution, or no such kind.
        """
        if distribution in patchwork.NAMES:
            return patchwork.draw(self, name, shape, distribution, axis, tile, kinds)
        if distribution not in DISTRIBUTIONS:
            known = ", ".join((*DISTRIBUTIONS, *patchwork.NAMES))
            raise SpecError(f"{distribution!r} is no standard distribution. There are {known}.")
        return DISTRIBUTIONS[distribution](self, name, shape)

    def few(self, name: str, terms: int, columns: int) -> Any:
        """float32 [terms, columns] in [-1, 1) with at most ``FEW`` elements in a column that are not zero, far apart.

        For one factor of a matrix product: its error bound then is that of a few products, however long the sum is.
        """
        array = self.xp.zeros((terms, columns), dtype="float32")
        every = self.xp.arange(columns)
        for part in range(FEW):
            low, high = terms * part // FEW, terms * (part + 1) // FEW
            if low < high:
                places = self.integers(f"{name} places {part}", (columns,), low, high)
                array[places, every] = self.floats(f"{name} values {part}", (columns,), "uniform")
        return array

    def crossed(self, name: str, shape: tuple[int, ...], axis: int, factor: int) -> Any:
        """float32 in [-1, 1) for ``factor`` 0 or 1 of a product that sums over ``axis``: where it has its large elements, the other has not.

        At ``FEW`` places both have, at each other place one of them, drawn: its elements there are times ``TINY``. So either
        factor looks dense, and its sums have the errors of a few products all the same.
        """
        xp, length = self.xp, shape[axis]
        whose = self.integers("crossed", (length,), 0, 2)
        for part in range(FEW):
            low, high = length * part // FEW, length * (part + 1) // FEW
            if low < high:
                whose[low + self.position(f"crossed {part}", high - low)] = factor
        along = [1] * len(shape)
        along[axis] = length
        sizes = xp.where(whose == factor, xp.float32(1), xp.float32(TINY)).reshape(along)
        return self.floats(name, shape, "uniform") * sizes

    def position(self, name: str, count: int) -> int:
        """One index below ``count``."""
        return finish((self._seed(name) + GAMMA) & _MASK) % count

    def _seed(self, name: str) -> int:
        return int(digest(*self._key, name)[:16], 16)

    def fill(self, name: str, shape: tuple[int, ...], dtype: str, value: Callable[[Any, Any], Any]) -> Any:
        """An array of ``value(bits, index)`` of each element: its 64 random bits (uint64) and its flat index (int64)."""
        xp = self.xp
        array = xp.empty(prod(shape), dtype=dtype)
        seed = self._seed(name)
        for start, stop in _chunks(array.size, _CPU_CHUNK if xp.__name__ == "numpy" else _GPU_CHUNK):
            index = xp.arange(start, stop, dtype="int64")
            array[start:stop] = value(_bits(xp, seed, index), index)
        return array.reshape(shape)


def _chunks(size: int, chunk: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, chunk):
        yield start, min(start + chunk, size)


def _bits(xp: Any, seed: int, index: Any) -> Any:
    """Outputs number ``index`` of the SplitMix64 that starts at ``seed``: uint64 arrays, which wrap around silently."""
    if xp.__name__ != "numpy":
        return _bits_at_once(xp)(index, xp.uint64(seed))
    z = index.astype("uint64")
    z += xp.asarray(1, dtype="uint64")
    z *= xp.asarray(GAMMA, dtype="uint64")
    z += xp.asarray(seed, dtype="uint64")
    return _finish_array(xp, z)


@cache
def _bits_at_once(xp: Any) -> Any:
    """The same in one pass over memory."""
    return xp.ElementwiseKernel(
        "int64 index, uint64 seed",
        "uint64 z",
        f"""
        z = seed + {GAMMA}ULL * ((unsigned long long)index + 1);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        z ^= z >> 31;
        """,
        "msbench_bits",
    )


@cache
def _uniform_at_once(xp: Any) -> Any:
    return xp.ElementwiseKernel(
        "uint64 bits", "float32 y", f"y = (float)(bits >> 40) * {2.0**-24}f;", "msbench_uniform"
    )


@cache
def _integers_at_once(xp: Any) -> Any:
    return xp.ElementwiseKernel(
        "uint64 bits, uint64 span, int64 low",
        "int32 y",
        "y = (int)((long long)((bits >> 33) * span >> 31) + low);",
        "msbench_integers",
    )


def _finish_array(xp: Any, z: Any) -> Any:
    z ^= z >> 30
    z *= xp.asarray(0xBF58476D1CE4E5B9, dtype="uint64")
    z ^= z >> 27
    z *= xp.asarray(0x94D049BB133111EB, dtype="uint64")
    z ^= z >> 31
    return z


def finish(z: int) -> int:
    """The output of a SplitMix64 whose state is ``z``, below 2^64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


# ------------------------------------------------------------------ the standard distributions


def _uniform(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    array = draw.uniform(name, shape)
    array *= 2
    array -= 1
    return array


def _integers(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    return draw.integers(name, shape, -4, 5).astype("float32")


def _spiked(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    array = _uniform(draw, name, shape)
    array *= draw.xp.where(draw.uniform(name + " spikes", shape) < 1 / 64, draw.xp.float32(SPIKE), draw.xp.float32(1))
    return array


def _constant(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    """Eighths, whose products' sums stay exact: equal terms else round the same way each time, and errors add up."""
    return draw.xp.full(shape, (1 + draw.position(name, 16)) / 8, dtype="float32")


def _zeros(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    return draw.xp.zeros(shape, dtype="float32")


def _tiny(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    return _uniform(draw, name, shape) * draw.xp.float32(TINY)


def _large(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    return _uniform(draw, name, shape) * draw.xp.float32(LARGE)


def _sorted(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    """Ascending in memory order, but for one step down: number i of n lies in the i-th of n equal parts of [-1, 1).

    Where there is room, it lies where chunks of many a size meet: who looks inside of chunks only sees none. It leads down to the
    number a 64th of the array back, which bf16 tells from the one before, too.
    """
    step = 2 / max(1, prod(shape))
    array = draw.fill(name, shape, "float32", lambda bits, index: (index + (bits >> 40) * 2.0**-24) * step - 1)
    if array.size > 1:
        chunk = patchwork.chunk(draw, name, array.size)
        at, flat = chunk * (1 + draw.position(f"{name} step", (array.size - 1) // chunk)), array.reshape(-1)
        flat[at] = flat[max(0, at - 2 - array.size // 64)]
    return array


def _nonfinite(draw: Draw, name: str, shape: tuple[int, ...]) -> Any:
    """Three elements; or, in seven cases of eight, each array's first and last: what a clamped index, or a weight of zero, reads."""
    array = _uniform(draw, name, shape).reshape(-1)
    if array.size > 1 and draw.position("ends", 8):
        negative = draw.position(f"{name} sign", 2)  # one for both, so that sums stay infinite
        array[0] = array[-1] = float("-inf") if negative else float("inf")
        return array.reshape(shape)
    nan = float("-nan" if draw.position(f"{name} sign of NaN", 2) else "nan")
    for number, value in enumerate((nan, float("inf"), float("-inf"))):
        if array.size > number:
            array[draw.position(f"{name} {number}", array.size)] = value
    return array.reshape(shape)


DISTRIBUTIONS: MappingProxyType[str, Callable[[Draw, str, tuple[int, ...]], Any]] = MappingProxyType(
    {
        "uniform": _uniform,
        "integers": _integers,
        "spiked": _spiked,
        "constant": _constant,
        "zeros": _zeros,
        "tiny": _tiny,
        "large": _large,
        "sorted": _sorted,
        "nonfinite": _nonfinite,
    }
)


def _stored(op: Operator, array: Array, drawn: Any, extents: tuple[int, ...], precision: Precision, xp: Any) -> Any:
    """One drawn array, checked, in its storage type."""
    where = f"{place(op)}: inputs: array {array.name!r}"
    if not isinstance(drawn, dict) or array.name not in drawn:
        raise SpecError(f"{where} is missing. Return a dict with {', '.join(a.name for a in op.inputs_)}.")
    values = drawn[array.name]
    if not isinstance(values, xp.ndarray):
        raise SpecError(f"{where} is {type(values).__name__}, no {xp.__name__} array.")
    if tuple(values.shape) != extents:
        raise SpecError(f"{where} has the shape {tuple(values.shape)}; the spec declares {extents}.")
    kind = "i" if array.dtype == "i32" else "f"
    if values.dtype.kind != kind:
        raise SpecError(f"{where} is {values.dtype}; the spec declares {array.dtype!r}.")
    return xp.ascontiguousarray(values.astype(storage_dtype(array, precision), copy=False))


def storage_dtype(array: Array, precision: Precision) -> Any:
    """The NumPy dtype that ``array`` has in memory: float32, bfloat16 (of ml_dtypes) or int32."""
    import ml_dtypes
    import numpy as np

    if array.dtype == "i32":
        return np.dtype(np.int32)
    if array.dtype == "f32" or precision is Precision.FP32:
        return np.dtype(np.float32)
    return np.dtype(ml_dtypes.bfloat16)
