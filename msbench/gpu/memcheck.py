"""Runs compute-sanitizer's memcheck on calls of a version, and says what it saw first: reads and writes outside the arrays."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msbench.guarded import captured

SCRATCH = "msbench-memcheck-"
"""How folders begin that hold what is needed for a while."""

CALL = "msbench call "
"""What the worker says before each call, followed by its number."""

_OWN = "========="
_WITHOUT_REPORT = re.compile(r"COMPUTE-SANITIZER|ERROR SUMMARY|LEAK SUMMARY|Target application returned an error")


class MemcheckError(Exception):
    """There is no verdict; the message says why."""


@dataclass(frozen=True)
class Access:
    """The first bad access: in which call, counted from 0, and what compute-sanitizer says of it."""

    call: int
    text: str


def first_bad_access(sanitizer: Path, argv: Sequence[str], env: dict[str, str], limit_s: float) -> Access | None:
    """Run ``argv`` under memcheck; None where all accesses were good.

    Raises:
        MemcheckError: it did not run to the end, outran ``limit_s``, or the program failed otherwise.
    """
    options = [
        "--tool",
        "memcheck",
        "--leak-check",
        "no",
        "--report-api-errors",
        "no",
        "--show-backtrace",
        "no",
        "--print-limit",
        "1",
    ]
    try:
        code, output, said = captured([str(sanitizer), *options, *argv], limit_s, env)
    except subprocess.TimeoutExpired:
        raise MemcheckError(f"compute-sanitizer did not finish within {limit_s:g} s") from None
    except OSError as error:
        raise MemcheckError(f"compute-sanitizer can't be started: {error.strerror}") from error
    found = parse(output)
    if found is None and code != 0:
        lines = [line.strip() for line in (said or output).splitlines() if line.strip()]
        raise MemcheckError(f"compute-sanitizer ended with code {code}: {(lines or ['it says nothing'])[-1][:300]}")
    return found


def parse(output: str) -> Access | None:
    """The first report in what compute-sanitizer and the worker print."""
    call = 0
    report: list[str] = []
    for line in output.splitlines():
        if line.startswith(CALL) and not report:
            call = int(line.removeprefix(CALL))
        elif line.startswith(_OWN):
            text = line.removeprefix(_OWN).strip()
            if text and not _WITHOUT_REPORT.search(text):
                report.append(text)
            elif report:
                break
    return Access(call, ", ".join(report)[:600]) if report else None
