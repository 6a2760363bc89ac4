"""Tasks that are measured side by side: who is alone on the device, and who joins whom."""

from __future__ import annotations

import threading

import pytest

from msbench.harness.batch.room import Ended
from msbench.harness.batch.turns import Turn, Turns
from tests.harness.batch.divided import soon


def test_those_that_want_to_be_alone_have_their_turns_one_after_another_and_the_others_join() -> None:
    turns, order, leaving = Turns(), list[str](), threading.Event()
    together = threading.Barrier(2)

    def work(name: str) -> None:
        turn = Turn(turns)
        turn.enter(alone=name.startswith("alone"))
        order.append(name)
        if name == "joins":
            leaving.wait(10)
        if name.startswith("beside"):
            together.wait(10)
        turn.leave()

    def begin(name: str, waiting: int) -> threading.Thread:
        thread = threading.Thread(target=work, args=(name,))
        thread.start()
        soon(lambda: sum(map(len, turns._queues.values())) == waiting)
        return thread

    first = Turn(turns)
    first.enter(alone=False)
    threads = [begin("alone 1", 1), begin("alone 2", 2), begin("joins", 2)]
    soon(lambda: order == ["joins"])
    first.leave()
    assert order == ["joins"] and len(turns._queues[True]) == 2
    leaving.set()
    for thread in threads:
        thread.join(10)
    assert order == ["joins", "alone 1", "alone 2"]
    first.enter(alone=True)
    threads = [begin("beside 1", 1), begin("alone 3", 2), begin("beside 2", 3)]
    first.leave()
    for thread in threads:
        thread.join(10)
    assert order[3] == "alone 3" and sorted(order[4:]) == ["beside 1", "beside 2"]
    first.enter(alone=True)
    ended = list[str]()

    def wait() -> None:
        try:
            Turn(turns).enter(alone=True)
        except Ended:
            ended.append("told")

    waiting = threading.Thread(target=wait)
    waiting.start()
    soon(lambda: len(turns._queues[True]) == 1)
    turns.end()
    waiting.join(10)
    assert ended == ["told"]
    with pytest.raises(Ended):
        Turn(turns).enter(alone=False)
