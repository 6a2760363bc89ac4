"""Cases share the device's memory: first come, first in, but for little ones and those that never fit."""

from __future__ import annotations

import threading
import time

import pytest

from msbench.harness.batch.room import CHECK_BYTES, LITTLE, ROOM, Ended, Room
from tests.harness.batch.divided import soon
from tests.harness.fakes import OPERATOR, case


def memory_for(elements: int) -> int:
    """Of which the room for cases has as many."""
    return round(elements * CHECK_BYTES / ROOM)


def test_cases_are_checked_side_by_side_while_there_is_room() -> None:
    room = Room(memory_for(96))
    sizes = {"tiny": 1, "half": 16, "huge": 32}  # vector_add has three arrays
    inside: list[str] = []
    seen: list[tuple[str, ...]] = []
    lock = threading.Lock()

    def check(kind: str) -> None:
        with room.enter(OPERATOR, case(sizes[kind])):
            with lock:
                inside.append(kind)
                seen.append(tuple(inside))
            time.sleep(0.01)
            with lock:
                inside.remove(kind)

    threads = [threading.Thread(target=check, args=(kind,)) for _ in range(6) for kind in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(seen) == 18
    for together in seen:
        assert sum(3 * sizes[kind] for kind in together) <= 96
        assert "huge" not in together or len(together) == 1
    assert any(len(together) > 1 for together in seen)


def test_a_little_case_passes_large_ones_that_wait_for_each_other() -> None:
    room, order = Room(memory_for(960)), []
    go = threading.Event()

    def check(name: str, size: int) -> None:
        with room.enter(OPERATOR, case(size)):
            order.append(name)
            go.wait(10)

    threads = []
    for name, size in (("first", 200), ("second", 200), ("third", 20), ("little", int(LITTLE * 960 / 4))):
        threads.append(threading.Thread(target=check, args=(name, size)))
        threads[-1].start()
        soon(lambda: len(order) + room.waiting == len(threads))
    soon(lambda: order == ["first", "little"])
    go.set()
    for thread in threads:
        thread.join(10)
    assert set(order[2:]) == {"second", "third"}


def test_what_needs_the_device_to_itself_waits_until_nobody_else_does() -> None:
    room, order = Room(memory_for(96)), []
    entered, go = threading.Event(), threading.Event()

    def check(name: str, size: int) -> None:
        with room.enter(OPERATOR, case(size)):
            order.append(name)
            entered.set()
            go.wait(10)

    threads = [threading.Thread(target=check, args=("first", 1))]
    threads[0].start()
    entered.wait(10)
    for name, size in (("huge", 40), ("second", 16), ("third", 1)):
        threads.append(threading.Thread(target=check, args=(name, size)))
        threads[-1].start()
        soon(lambda: len(order) + room.waiting == len(threads))
    go.set()
    for thread in threads:
        thread.join(10)
    assert order == ["first", "second", "third", "huge"]


def test_into_a_closed_room_go_only_those_that_go_in_alone_one_by_one() -> None:
    room, inside, most = Room(memory_for(96)), [], []
    room.closed = True

    def check(name: str, size: int) -> None:
        with room.enter(OPERATOR, case(size)):
            inside.append(name)
            most.append(len(inside))
            time.sleep(0.02)
            inside.remove(name)

    huge = [threading.Thread(target=check, args=(f"huge {n}", 40)) for n in range(3)]
    small = threading.Thread(target=check, args=("small", 1), daemon=True)
    for thread in (small, *huge):
        thread.start()
    for thread in huge:
        thread.join(10)
    assert most == [1, 1, 1] and (room.waiting, room.alone) == (1, 0)


def test_who_waits_for_room_hears_of_the_end() -> None:
    changed = threading.Condition()
    room, heard = Room(None, changed), threading.Event()
    room.closed = True

    def check() -> None:
        with pytest.raises(Ended), room.enter(OPERATOR, case(1)):
            raise AssertionError
        heard.set()

    thread = threading.Thread(target=check, daemon=True)
    thread.start()
    soon(lambda: room.waiting)
    with changed:
        room.ended = True
        changed.notify_all()
    assert heard.wait(10)
