"""The memory that a candidate works on: every array of a case in one buffer, with a redzone on either side of each.

One buffer is one thing to share with a worker process (a shared-memory file, a CUDA IPC handle), and a write that
leaves its array lands in a redzone, where it shows. Works on NumPy and CuPy buffers alike: ``xp`` is the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from msbench.arrays import every
from msbench.harness.inputs import storage_dtype
from msbench.operators import shapes
from msbench.spec import Problem

REDZONE = 4096
"""Bytes, at least, before and after each array."""

TAIL = 1 << 16
"""Bytes, at least, after the last array: where a kernel might hide what it wants to find again."""

ALIGNMENT = 256
"""What ``cudaMalloc`` promises: an aligned arena gives every array this, and a buffer must start on it."""

GUARD = 0xCB
"""The byte that redzones are filled with: a float of 0xCBCBCBCB is an odd -2.7e7."""

_CHUNK = 1 << 26  # bytes that a comparison of bytes looks at together


class Poison(NamedTuple):
    """The bytes that outputs are filled with before a launch."""

    floats: int
    integers: int

    def byte(self, dtype: np.dtype[Any]) -> int:
        """The one for an array of this dtype."""
        return self.integers if dtype.kind == "i" else self.floats


@dataclass(frozen=True)
class Slot:
    """Where one array lies: ``offset`` in bytes from the buffer's start."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    output: bool

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.size * self.dtype.itemsize

    @property
    def end(self) -> int:
        """The offset of the first byte after it."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class Layout:
    """The slots of a case's arrays, inputs then outputs as in the C prototype, in a buffer of ``nbytes``.

    ``misaligned``: each array starts one to seven elements off a 16-byte boundary, not all by the same number, so that
    a kernel that peels the same few elements off every array fails too.
    """

    slots: tuple[Slot, ...]
    nbytes: int
    misaligned: bool

    @classmethod
    def of(cls, problem: Problem, *, misaligned: bool = False, only: int | None = None) -> Layout:
        """Lay out one case; of its arrays ``only`` that one misaligned, by default all."""
        operator = problem.operator
        extents = shapes(operator, problem.dims)
        slots: list[Slot] = []
        end = 0
        for index, array in enumerate((*operator.inputs_, *operator.outputs)):
            dtype = storage_dtype(array, problem.precision)
            offset = -(-(end + REDZONE) // ALIGNMENT) * ALIGNMENT
            if misaligned and only in (None, index):
                offset += dtype.itemsize * (1 + index % (16 // dtype.itemsize - 1))
            slots.append(Slot(array.name, offset, extents[array.name], dtype, array.output))
            end = slots[-1].end
        return cls(tuple(slots), -(-(end + TAIL) // ALIGNMENT) * ALIGNMENT, misaligned)

    def __getitem__(self, name: str) -> Slot:
        return next(s for s in self.slots if s.name == name)

    @property
    def inputs(self) -> tuple[Slot, ...]:
        """Slots of input arrays."""
        return tuple(s for s in self.slots if not s.output)

    @property
    def outputs(self) -> tuple[Slot, ...]:
        """Slots of output arrays."""
        return tuple(s for s in self.slots if s.output)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Bytes from the buffer's start to each array, in the order of ``msbench_launch``'s ``arrays``."""
        return tuple(s.offset for s in self.slots)

    def redzones(self) -> Iterator[tuple[int, int, str, str]]:
        """Each redzone as (start, end, the array before it, the array after it); "" at either end of the buffer."""
        start, before = 0, ""
        for slot in self.slots:
            yield start, slot.offset, before, slot.name
            start, before = slot.end, slot.name
        yield start, self.nbytes, before, ""


@dataclass(frozen=True)
class Damage:
    """A redzone that was written to: ``count`` bytes, the nearest ``distance`` bytes off ``array`` on its ``side``."""

    array: str
    side: str
    distance: int
    count: int


class Arena:
    """A case's arrays in a buffer that the candidate's process can reach.

    ``buffer`` is a one-dimensional uint8 array of ``xp`` (numpy or cupy) of at least ``layout.nbytes``, on a 256-byte
    boundary: all that the candidate can reach there. ``handle`` is what a worker needs to reach the same memory, for the
    executor's own use; ``release`` is called once, when the arena is closed.
    """

    def __init__(
        self, layout: Layout, buffer: Any, xp: Any, *, handle: Any = None, release: Callable[[], None] | None = None
    ) -> None:
        if buffer.dtype != np.uint8 or buffer.ndim != 1 or buffer.size < layout.nbytes:
            raise ValueError(f"an arena needs {layout.nbytes} bytes, not {buffer.dtype} {buffer.shape}")
        address = buffer.ctypes.data if xp is np else buffer.data.ptr
        if address % ALIGNMENT:
            raise ValueError(f"an arena's buffer must start on a {ALIGNMENT}-byte boundary, not at {address:#x}")
        self.layout = layout
        self.buffer = buffer
        self.xp = xp
        self.handle = handle
        self._release = release

    @property
    def there(self) -> Arena:
        """Where the candidate's process reaches it: here, unless this is a ``Mirror``."""
        return self

    def send(self) -> None:
        """Have it ``there`` as it is here."""

    def fetch(self) -> None:
        """Have it here as it is ``there``."""

    def raw(self, name: str) -> Any:
        """An array's bytes: a uint8 view."""
        slot = self.layout[name]
        return self.buffer[slot.offset : slot.end]

    def view(self, name: str) -> Any:
        """An array as its dtype and shape; shares the arena's memory."""
        slot = self.layout[name]
        return self.raw(name).view(slot.dtype).reshape(slot.shape)

    def write_inputs(self, arrays: Mapping[str, Any]) -> None:
        """Copy every input in; ``arrays`` holds arrays of the storage dtype and shape, by name."""
        for slot in self.layout.inputs:
            self.raw(slot.name)[...] = as_bytes(arrays[slot.name])

    def intact(self, arrays: Mapping[str, Any]) -> Any:
        """Whether redzones and inputs are as they were, as an array of one bool that nobody has waited for yet."""
        whole = every(self.xp.take(self.buffer, self._guards) == GUARD, self.xp)
        for part in self._tail():
            whole &= every(part == GUARD, self.xp)
        for slot in self.layout.inputs:
            whole &= equal(self.view(slot.name), arrays[slot.name], self.xp)
        return whole

    def _tail(self) -> Iterator[Any]:
        """What the buffer has beyond the layout, in pieces: a kernel could find there again what it has written."""
        return (self.buffer[start : start + _CHUNK] for start in range(self.layout.nbytes, self.buffer.size, _CHUNK))

    @cached_property
    def _guards(self) -> Any:
        """The index of every byte of a redzone: all are written and read together, since each call has its price."""
        return self.xp.asarray(np.concatenate([np.arange(start, end) for start, end, _, _ in self.layout.redzones()]))

    def changed_inputs(self, arrays: Mapping[str, Any]) -> tuple[tuple[str, int, int], ...]:
        """The inputs that no longer hold ``arrays``' bytes: (name, flat index of the first such element, bytes)."""
        changed = []
        for slot in self.layout.inputs:
            first, count = differences(self.raw(slot.name), as_bytes(arrays[slot.name]), self.xp)
            if count:
                changed.append((slot.name, first // slot.dtype.itemsize, count))
        return tuple(changed)

    def poison(self, poison: Poison) -> None:
        """Fill every output with the poison's byte, and every redzone with the guard."""
        for slot in self.layout.outputs:
            self.raw(slot.name)[...] = poison.byte(slot.dtype)
        self.buffer[self._guards] = GUARD
        for part in self._tail():
            part[...] = GUARD

    def damaged_redzones(self) -> tuple[Damage, ...]:
        """What was written outside the arrays since ``poison``, each told by the array that it lies nearest to."""
        damages = []
        for start, end, before, after in self.layout.redzones():
            end = end if after else self.buffer.size
            hit = self.xp.flatnonzero(self.buffer[start:end] != GUARD)
            if not hit.size:
                continue
            first, last = int(hit[0]), int(hit[-1])
            from_end = end - start - 1 - last
            if before and (not after or first <= from_end):
                damages.append(Damage(before, "after", first, int(hit.size)))
            else:
                damages.append(Damage(after, "before", from_end, int(hit.size)))
        return tuple(damages)

    def close(self) -> None:
        """Give the memory back; views of it must not be used afterwards. Harmless when repeated."""
        self.buffer = None
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Mirror(Arena):
    """A device's arena, written and looked at in the host's memory: all of it is copied, there and back."""

    def __init__(self, there: Arena) -> None:
        memory = np.empty(there.buffer.size + ALIGNMENT, dtype=np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        super().__init__(there.layout, memory[start : start + there.buffer.size], np, release=there.close)
        self._there = there

    @property
    def there(self) -> Arena:
        """The device's."""
        return self._there

    def send(self) -> None:
        """See ``Arena``."""
        self._there.buffer.set(self.buffer)

    def fetch(self) -> None:
        """See ``Arena``."""
        self._there.buffer.get(out=self.buffer)


def as_bytes(array: Any) -> Any:
    """A contiguous array's memory as a one-dimensional uint8 view."""
    return array.reshape(-1).view(np.uint8)


def equal(a: Any, b: Any, xp: Any) -> Any:
    """Whether two contiguous arrays of one dtype hold the same bytes, as an array of one bool; see ``Arena.intact``."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    a, b = a.reshape(-1).view(bits), b.reshape(-1).view(bits)
    step = _CHUNK // bits.itemsize
    parts = [every(a[start : start + step] == b[start : start + step], xp) for start in range(0, max(a.size, 1), step)]
    return every(xp.stack(parts), xp)


def differences(a: Any, b: Any, xp: Any) -> tuple[int, int]:
    """The first index at which two uint8 arrays differ, and how many do; (0, 0) where none does."""
    first = count = 0
    for start in range(0, a.size, _CHUNK):
        unequal = a[start : start + _CHUNK] != b[start : start + _CHUNK]
        here = int(xp.count_nonzero(unequal))
        if here and not count:
            first = start + int(xp.argmax(unequal))
        count += here
    return first, count
