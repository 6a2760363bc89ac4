"""Device memory shared with worker processes: plain allocations of the referee, passed as CUDA IPC handles.

A handle stands for a whole allocation of the driver, so nothing here comes out of CuPy's pool. Blocks are kept for the
next case, since allocating, and mapping in every worker, takes longer than most kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GRANULE = 2 * 2**20
"""Sizes are multiples of this: smaller ones may share a block of the driver, and a handle would share all of it."""

_SPARE = 64 * 2**20
"""Bytes that a block may be too large by, or an eighth if that is more: what is not used of it is looked at after each launch."""

KEPT_BYTES = 4 * 2**30
"""Free blocks up to this much are kept, unless said otherwise."""


@dataclass(frozen=True)
class Block:
    """One allocation: its address here, its size, and the handle (in hex) that opens it in another process."""

    address: int
    nbytes: int
    handle: str


class SharedMemory:
    """Blocks in use and blocks kept.

    ``make_room`` is called when the device has no more, and may free what others keep. ``forget`` is told the handle of each
    block before it is freed: freeing memory that another process still has mapped is undefined. ``cuda`` is ``cupy.cuda``
    (tests: a fake).
    """

    def __init__(
        self, cuda: Any, make_room: Callable[[], None], forget: Callable[[str], None], kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._cuda = cuda
        self._make_room = make_room
        self._forget = forget
        self._kept_bytes = kept_bytes
        self._free: list[Block] = []

    def take(self, nbytes: int) -> Block:
        """A block of at least ``nbytes``: the smallest that fits and is not much too large, or a new one.

        Raises:
            MemoryError: the device has no more.
        """
        size = max(GRANULE, -(-nbytes // GRANULE) * GRANULE)
        most = size + min(size, max(_SPARE, size // 8))
        fitting = [b for b in self._free if size <= b.nbytes <= most]
        if fitting:
            block = min(fitting, key=lambda b: b.nbytes)
            self._free.remove(block)
            return block
        runtime = self._cuda.runtime
        try:
            address = runtime.malloc(size)
        except runtime.CUDARuntimeError:
            self.trim(0)
            self._make_room()
            try:
                address = runtime.malloc(size)
            except runtime.CUDARuntimeError as error:
                raise MemoryError(f"the device has no {size} bytes left: {error}") from error
        return Block(address, size, bytes(runtime.ipcGetMemHandle(address)).hex())

    def give_back(self, block: Block) -> None:
        """Keep a block for the next ``take``, or free what has become too much."""
        self._free.append(block)
        self.trim(self._kept_bytes)

    def trim(self, kept_bytes: int) -> None:
        """Free blocks, oldest first, until no more than ``kept_bytes`` are kept."""
        while self._free and sum(b.nbytes for b in self._free) > kept_bytes:
            block = self._free.pop(0)
            self._forget(block.handle)
            self._cuda.runtime.free(block.address)

    def array(self, block: Block) -> Any:
        """A block as a one-dimensional uint8 CuPy array."""
        import cupy

        memory = self._cuda.UnownedMemory(block.address, block.nbytes, self)
        return cupy.ndarray((block.nbytes,), dtype=cupy.uint8, memptr=self._cuda.MemoryPointer(memory, 0))
