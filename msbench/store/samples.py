"""Samples as bytes: small, exact, and readable without msbench.

A blob is the letters ``MS``, a version byte (1), a type byte, and a zlib stream of little-endian data: the number of
rounds (u4), each round's length (u4), and all samples in order, their bytes transposed (all first bytes, all second
bytes …) because that compresses better. The type is the first of ``I`` (u4), ``f`` (f4) and ``d`` (f8) that holds every
sample exactly.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msbench.errors import IntegrityError

_MAGIC = b"MS\x01"
_TYPES: dict[bytes, np.dtype[Any]] = {b"I": np.dtype("<u4"), b"f": np.dtype("<f4"), b"d": np.dtype("<f8")}

_MOST = 1 << 28
"""Bytes of a measurement, a thousand times as many as one has: a few bytes can be made to unpack to any number."""

Samples = tuple[tuple[float, ...], ...]


def pack_samples(rounds: Sequence[Sequence[float]]) -> bytes:
    """Samples in nanoseconds, one sequence a round, as a blob from which ``unpack_samples`` gives exactly the same numbers."""
    values = np.array([sample for one in rounds for sample in one], dtype=np.float64)
    code, stored = _smallest(values)
    lengths = np.array([len(rounds), *(len(one) for one in rounds)], dtype="<u4")
    planes = stored.view(np.uint8).reshape(-1, stored.dtype.itemsize).T
    return _MAGIC + code + zlib.compress(lengths.tobytes() + planes.tobytes(), 9)


def _smallest(values: NDArray[np.float64]) -> tuple[bytes, NDArray[Any]]:
    for code, dtype in _TYPES.items():
        limit = np.iinfo(np.uint32).max if code == b"I" else np.finfo(dtype).max
        if np.all((values >= 0) & (values <= limit)):
            stored = values.astype(dtype)
            if stored.astype(np.float64).tobytes() == values.tobytes():
                return code, stored
    return b"d", values.astype("<f8")


def unpack_samples(blob: bytes) -> Samples:
    """The samples of a blob, in nanoseconds, one tuple a round.

    Raises:
        IntegrityError: the blob is damaged, or not from ``pack_samples``.
    """
    dtype = _TYPES.get(blob[3:4])
    if blob[:3] != _MAGIC or dtype is None:
        raise IntegrityError("The samples have the wrong header.")
    raw = _decompressed(blob[4:])
    count = int.from_bytes(raw[:4], "little")
    start = 4 + 4 * count
    if len(raw) < max(start, 4):
        raise IntegrityError("The samples end within their header.")
    lengths = np.frombuffer(raw[4:start], dtype="<u4").tolist()
    if len(raw) - start != sum(lengths) * dtype.itemsize:
        raise IntegrityError("The number of samples differs from their header.")
    planes = np.frombuffer(raw[start:], dtype=np.uint8).reshape(dtype.itemsize, -1)
    flat = iter(np.ascontiguousarray(planes.T).view(dtype).ravel().astype(np.float64).tolist())
    return tuple(tuple(islice(flat, length)) for length in lengths)


def _decompressed(stream: bytes) -> bytes:
    decompressing = zlib.decompressobj()
    try:
        raw = decompressing.decompress(stream, _MOST)
    except zlib.error as error:
        raise IntegrityError(f"The samples do not decompress ({error}).") from error
    if not decompressing.eof:
        raise IntegrityError(f"The samples are cut off, or larger than {_MOST >> 20} MiB.")
    return raw


def plain(blob: bytes) -> bytes:
    """A blob's first four bytes and what its stream holds: the same, whatever compressed it. A damaged blob as it is."""
    try:
        return blob[:4] + _decompressed(blob[4:])
    except IntegrityError:
        return blob


def compressed(plain: bytes) -> bytes:
    """A blob of which ``plain`` gives these bytes."""
    return plain[:4] + zlib.compress(plain[4:], 1)


def median_ns(rounds: Sequence[Sequence[float]]) -> float | None:
    """The median of all samples; None where there are none."""
    values = [sample for one in rounds for sample in one]
    return float(np.median(values)) if values else None
