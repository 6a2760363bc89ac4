"""compute-sanitizer's reports are read, and a run without a verdict is no good verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from msbench.gpu import memcheck
from msbench.gpu.memcheck import CALL, Access, MemcheckError, first_bad_access

GOOD = f"========= COMPUTE-SANITIZER\n{CALL}0\n{CALL}1\n========= ERROR SUMMARY: 0 errors\n"
BAD = f"""========= COMPUTE-SANITIZER
{CALL}0
{CALL}1
========= Invalid __global__ read of size 4 bytes
=========     at row_sums(const float *, float *, long)+0x110
=========     by thread (31,0,0) in block (7,0,0)
=========     Access at 0x7f5e3ac01000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f5e3ac00000 of size 4096 bytes
=========
========= Program hit cudaErrorLaunchFailure
{CALL}2
========= ERROR SUMMARY: 1 error
"""


def test_what_it_reports_first_is_told_with_the_call() -> None:
    assert memcheck.parse(GOOD) is None
    found = memcheck.parse(BAD)
    assert found is not None and found.call == 1
    assert found.text.startswith("Invalid __global__ read of size 4 bytes, at row_sums(")
    assert "1 bytes after the nearest allocation" in found.text and "SUMMARY" not in found.text


@pytest.mark.parametrize(
    ("script", "expected"),
    [(f"printf '%s' '{GOOD}'", None), (f"printf '%s' '{BAD}'; exit 3", 1)],
    ids=["good", "bad"],
)
def test_a_run_gives_a_verdict(tmp_path: Path, script: str, expected: int | None) -> None:
    found = first_bad_access(tool(tmp_path, script), ["worker"], {"PATH": "/usr/bin:/bin"}, 20)
    assert (found.call if isinstance(found, Access) else found) == expected


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'msbench worker: no memory' >&2; exit 3", "code 3: msbench worker: no memory"),
        ("sleep 30", "within 0.5 s"),
    ],
)
def test_without_a_verdict_it_says_why(tmp_path: Path, script: str, why: str) -> None:
    with pytest.raises(MemcheckError, match=why):
        first_bad_access(tool(tmp_path, script), ["worker"], {"PATH": "/usr/bin:/bin"}, 0.5)


def test_without_the_tool_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(MemcheckError, match="can't be started"):
        first_bad_access(tmp_path / "none", ["worker"], {}, 1)


def tool(folder: Path, script: str) -> Path:
    """A compute-sanitizer of one's own."""
    path = folder / "compute-sanitizer"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path
