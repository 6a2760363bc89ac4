"""A column's long values, compressed together: what a packed database stores for each, and what that stands for.

The first of some that are compressed together is the letter ``x`` and an xz stream of them all, and each of the others is ``+``.
"""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msbench.store import samples

LONG = 120
"""Characters from which a text is worth compressing."""
_CHUNK = 1 << 20
"""Characters or bytes that are compressed together: fewer compress less well, and of more Git stores again what did not change."""
_WINDOW = 1 << 15
"""Bytes of a dictionary up to format 4: zlib looks back no further."""
_MOST = 1 << 28
"""Bytes of a stream: a few can be made to unpack to any number."""

_Value = TypeVar("_Value", str, bytes)


def of_texts(texts: Iterable[str]) -> Iterator[bytes]:
    """What is stored for each of some long texts."""
    return _together(texts, lambda some: json.dumps(some, separators=(",", ":"), ensure_ascii=False).encode())


def of_samples(plain: Iterable[bytes]) -> Iterator[bytes]:
    """What is stored for each of some ``samples.plain``."""
    return _together(plain, lambda some: b"".join(len(one).to_bytes(4, "little") + one for one in some))


def _together(values: Iterable[_Value], joined: Callable[[Sequence[_Value]], bytes]) -> Iterator[bytes]:
    def stored() -> Iterator[bytes]:
        yield b"x" + lzma.compress(joined(some), check=lzma.CHECK_CRC32, preset=9)
        yield from [b"+"] * (len(some) - 1)

    some: list[_Value] = []
    length = 0
    for value in values:
        some.append(value)
        length += len(value)
        if length >= _CHUNK:
            yield from stored()
            some, length = [], 0
    if some:
        yield from stored()


class Texts:
    """A column's texts again, in the order of their rows."""

    def __init__(self) -> None:
        self._together: Iterator[str] = iter(())
        self._before = b""  # up to format 4

    def restored(self, value: Any) -> Any:
        """What a stored value stands for."""
        if isinstance(value, str) and len(value) >= LONG:
            self._pass(value.encode())
        if not isinstance(value, bytes):
            return value
        if len(value) == 16:
            return value.hex()
        if value[:1] == b"x":
            self._together = iter(json.loads(_decompressed(value[1:])))
        elif value[:1] == b"z":
            return self.inflated(value[1:]).decode()
        elif value != b"+":
            raise ValueError("a text that does not start as one")
        return _next(self._together, "texts")

    def inflated(self, stream: bytes) -> bytes:
        """What a zlib stream holds, whose dictionary is the end of what came before."""
        inflating = zlib.decompressobj(zdict=self._before)
        raw = inflating.decompress(stream, _MOST)
        if not inflating.eof:
            raise ValueError(f"a stream that does not end, or is more than {_MOST >> 20} MiB")
        self._pass(raw)
        return raw

    def _pass(self, raw: bytes) -> None:
        self._before = (self._before + raw)[-_WINDOW:]


class Samples:
    """A column's samples again, in the order of their rows."""

    def __init__(self) -> None:
        self._together: Iterator[bytes] = iter(())

    def restored(self, value: bytes) -> bytes:
        """What a stored value stands for."""
        if value[:1] == b"x":
            self._together = _apart(_decompressed(value[1:]))
        elif value != b"+":
            raise ValueError("samples that do not start as such")
        return samples.compressed(_next(self._together, "samples"))


def _next(together: Iterator[_Value], what: str) -> _Value:
    try:
        return next(together)
    except StopIteration:
        raise ValueError(f"more {what} than were compressed together") from None


def _apart(raw: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(raw):
        end = start + 4 + int.from_bytes(raw[start : start + 4], "little")
        yield raw[start + 4 : end]
        start = end


def _decompressed(stream: bytes) -> bytes:
    decompressing = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    raw = decompressing.decompress(stream, _MOST)
    if not decompressing.eof:
        raise ValueError(f"a stream that does not end, or is more than {_MOST >> 20} MiB")
    return raw
