"""Which elements of the inputs are swapped between timed repetitions, as ``native/runner/repetition.cuh`` draws them.

The worker swaps them in memory; this module computes the resulting inputs, so that a timed repetition's outputs can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from msbench.harness.inputs import GAMMA, finish

MOST = 16
"""Arrays whose elements move, the first ones."""

_MASK = 2**64 - 1


def movable(nbytes: int, dtype: np.dtype[Any]) -> int:
    """How many elements of an input may be swapped: all floats, but no indices, whose order matters."""
    return nbytes // dtype.itemsize if dtype.kind != "i" else 0


def permute(inputs: Mapping[str, Any], drawn: int, first_set: int, repetitions: int, sets: int, number: int) -> None:
    """Swap the elements of input set ``number``, in place, as in a batch of ``repetitions`` that starts at ``first_set``.

    ``inputs``: contiguous arrays in the prototype's order. ``drawn``: what the batch was given.
    """
    flats = [array.reshape(-1) for array in inputs.values()]
    moving = [flat for flat in flats if movable(flat.nbytes, flat.dtype)][:MOST]
    moved: list[dict[int, int]] = [{} for _ in moving]
    drawn += GAMMA  # the first number says how many empty launches precede the batch
    for repetition in range(repetitions):
        for flat, places in zip(moving, moved, strict=True):
            drawn = (drawn + GAMMA) & _MASK
            first, second = finish(drawn) % flat.size, finish(~drawn & _MASK) % flat.size
            if (first_set + repetition) % sets == number:
                places[first], places[second] = places.get(second, second), places.get(first, first)
    for flat, places in zip(moving, moved, strict=True):
        if places:
            _move(flat, list(places), list(places.values()))


def _move(flat: Any, to: Sequence[int], of: Sequence[int]) -> None:
    flat[list(to)] = flat[list(of)]
