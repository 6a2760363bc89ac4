"""The one sentence in which a failed system call, a bug and a lack of memory are said."""

from __future__ import annotations

import errno
import os

import pytest

from msbench.cli import _end


@pytest.mark.parametrize("code", sorted(errno.errorcode))
def test_every_failed_system_call_is_one_sentence(code: int) -> None:
    for arguments in ((code, os.strerror(code)), (code, os.strerror(code), "/some/where"), (code, "", b"/some/where")):
        said = _end.os_error(OSError(*arguments))
        assert said.endswith(".") and "\n" not in said
    assert _end.os_error(OSError()).endswith(".")


def test_a_bug_is_said_to_be_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> None:
        raise KeyError("no such\nkey")

    assert _end.ended(wrong) == 70
    said = capsys.readouterr().err
    assert "bug in msbench" in said and "MSBENCH_DEBUG" in said and "Traceback" not in said
    assert said.count("\n") == 1
    monkeypatch.setenv("MSBENCH_DEBUG", "1")
    assert _end.ended(wrong) == 70
    assert "Traceback" in capsys.readouterr().err


def test_too_little_memory_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def large() -> None:
        raise MemoryError

    assert _end.ended(large) == 2
    assert "out of memory" in capsys.readouterr().err
