"""Choosing a GPU, and the memory that workers share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from msbench.errors import DeviceError
from msbench.gpu.devices import Gpu, choose
from msbench.gpu.shared_memory import GRANULE, SharedMemory

GPUS = tuple(
    Gpu(i, f"GPU-{name}-0", "NVIDIA H200", (9, 0), 132, 141 << 30, 60 << 20) for i, name in enumerate(("aa", "ab"))
)


@pytest.mark.parametrize(("wanted", "index"), [(None, 0), ("0", 0), ("1", 1), ("GPU-ab", 1), ("GPU-aa-0", 0)])
def test_a_gpu_is_chosen_by_index_or_uuid(wanted: str | None, index: int) -> None:
    assert choose(wanted, GPUS).index == index


@pytest.mark.parametrize("wanted", ["2", "GPU-a", "GPU-x", "H200", ""])
def test_an_unknown_or_ambiguous_gpu_is_refused_with_the_list(wanted: str) -> None:
    with pytest.raises(DeviceError, match=r"There are: 0: NVIDIA H200, GPU-aa-0; 1: NVIDIA H200, GPU-ab-0"):
        choose(wanted, GPUS)


def test_no_gpu_at_all() -> None:
    with pytest.raises(DeviceError, match="no NVIDIA GPU"):
        choose(None, ())


class FakeCuda:
    """cupy.cuda with ``room`` bytes of memory."""

    class CUDARuntimeError(RuntimeError):
        pass

    def __init__(self, room: int) -> None:
        self.room = room
        self.next = GRANULE
        self.sizes: dict[int, int] = {}
        self.runtime = SimpleNamespace(
            malloc=self.malloc,
            free=self.free,
            ipcGetMemHandle=lambda address: address.to_bytes(64, "little"),
            CUDARuntimeError=self.CUDARuntimeError,
        )

    def malloc(self, size: int) -> int:
        if sum(self.sizes.values()) + size > self.room:
            raise self.CUDARuntimeError("out of memory")
        self.next += size
        self.sizes[self.next] = size
        return self.next

    def free(self, address: int) -> None:
        del self.sizes[address]


def test_blocks_are_whole_granules_and_used_again() -> None:
    cuda, forgotten = FakeCuda(1 << 40), list[str]()
    memory = SharedMemory(cuda, lambda: None, forgotten.append)
    block = memory.take(10)
    assert block.nbytes == GRANULE
    assert bytes.fromhex(block.handle) == block.address.to_bytes(64, "little")
    memory.give_back(block)
    assert memory.take(GRANULE) == block
    assert memory.take(1) != block
    assert forgotten == []


def test_a_much_larger_block_is_not_taken_for_a_small_one() -> None:
    memory = SharedMemory(FakeCuda(1 << 40), lambda: None, lambda handle: None)
    large = memory.take(64 * GRANULE)
    memory.give_back(large)
    assert memory.take(1) != large
    assert memory.take(40 * GRANULE) == large


def test_workers_let_go_before_memory_is_freed() -> None:
    cuda = FakeCuda(1 << 40)
    freed: list[Any] = []

    def forget(handle: str) -> None:
        freed.append((handle, len(cuda.sizes)))

    memory = SharedMemory(cuda, lambda: None, forget, kept_bytes=GRANULE)
    first, second = memory.take(1), memory.take(1)
    memory.give_back(first)
    memory.give_back(second)
    assert freed == [(first.handle, 2)]
    assert len(cuda.sizes) == 1


def test_kept_memory_is_freed_when_there_is_no_more() -> None:
    room_made: list[int] = []
    memory = SharedMemory(FakeCuda(10 * GRANULE), lambda: room_made.append(1), lambda handle: None)
    memory.give_back(memory.take(6 * GRANULE))
    assert memory.take(9 * GRANULE).nbytes == 9 * GRANULE
    with pytest.raises(MemoryError, match="bytes left"):
        memory.take(2 * GRANULE)
    assert room_made
