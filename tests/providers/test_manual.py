"""Prompts and answers as files."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from msbench import providers
from msbench.conversation import Limits, Message
from msbench.errors import UnknownNameError, WaitingForAnswer
from msbench.plugins import names
from msbench.store.tables import CallRow

ASKED = [Message("system", "You are an expert."), Message("user", "Write it.")]


def answered(number: int) -> CallRow:
    return CallRow(
        id=str(number), run_id="r1", step_number=1, number=number, agent="planner", prompt_id="p", reply_id="a", model="m",
        seconds=1.0, created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip


def test_there_are_three_providers() -> None:
    assert names("msbench.providers") == ("manual", "openai", "replay")
    with pytest.raises(UnknownNameError, match="Did you mean 'manual'"):
        providers.pick("manuel")


def test_without_waiting_it_names_the_files(tmp_path: Path) -> None:
    provider = providers.pick("manual", folder=tmp_path, wait=False)
    provider.begin("r1", "scale/fp32", [answered(1), answered(2)])
    with pytest.raises(WaitingForAnswer) as caught:
        provider.complete("coder", ASKED, Limits())
    prompt = tmp_path / "r1" / "003-coder.md"
    answer = tmp_path / "r1" / "003-coder.answer.md"
    for text in (str(prompt), str(answer)):
        assert text in str(caught.value)
    written = prompt.read_text()
    assert "003-coder.answer.md" in written and "You are an expert." in written and "Write it." in written
    answer.write_text("")
    with pytest.raises(WaitingForAnswer):
        provider.complete("coder", ASKED, Limits())
    answer.write_text("\ufeffHere: é", "utf-8")
    reply = provider.complete("coder", ASKED, Limits())
    assert (reply.text, reply.model, reply.cost_usd, reply.prompt_tokens) == ("Here: é", "answered by hand", 0.0, None)
    with pytest.raises(WaitingForAnswer, match="004-coder"):
        provider.complete("coder", ASKED, Limits())


def test_it_waits_until_the_answer_is_written(tmp_path: Path) -> None:
    provider = providers.pick("manual", folder=tmp_path, model="a colleague")
    provider.begin("r1", "scale/fp32", [])
    answer = tmp_path / "r1" / "001-planner.answer.md"
    assert "001-planner.md" in provider.invitation("planner") and answer.name in provider.invitation("planner")

    def slow_writer() -> None:
        time.sleep(0.3)
        with answer.open("w") as file:
            for part in ("one ", "two ", "three"):
                time.sleep(0.4)
                file.write(part)
                file.flush()

    writer = threading.Thread(target=slow_writer)
    (tmp_path / "r1").mkdir()
    writer.start()
    reply = provider.complete("planner", ASKED, Limits())
    writer.join()
    assert (reply.text, reply.model) == ("one two three", "a colleague")


def test_an_old_answer_is_taken_at_once(tmp_path: Path) -> None:
    provider = providers.pick("manual", folder=tmp_path)
    provider.begin("r1", "scale/fp32", [])
    answer = tmp_path / "r1" / "001-planner.answer.md"
    answer.parent.mkdir()
    answer.write_text("yes")
    os.utime(answer, (time.time() - 60, time.time() - 60))
    started = time.monotonic()
    assert provider.complete("planner", ASKED, Limits()).text == "yes"
    assert time.monotonic() - started < 0.2


def test_waiting_ends_with_the_time_limit(tmp_path: Path) -> None:
    provider = providers.pick("manual", folder=tmp_path)
    provider.begin("r1", "scale/fp32", [])
    with pytest.raises(WaitingForAnswer):
        provider.complete("planner", ASKED, Limits(timeout_s=0.3))
