"""Every feature of the cpu executor's CUDA against known answers: the functions of kernels/*.cu, in several thread orders."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from msbench import emulator

HERE = Path(__file__).parent
KERNELS = HERE / "kernels"
FILES = ("threads", "warps", "progress", "bf16", "arithmetic", "cub", "copies")
ORDERS = {"forward": 0, "reverse": 1, "shuffled": 2}
REFUSED_ON_PURPOSE = {"refused_launches", "more_dynamic_shared_memory_than_the_default"}


def functions_in(file: str) -> list[str]:
    return re.findall(r"^TEST\((\w+)\)", (KERNELS / f"{file}.cu").read_text(), re.MULTILINE)


@cache
def library(file: str) -> Path:
    built = emulator.build((KERNELS / f"{file}.cu").read_text(), f"{file}.cu", include_dirs=(KERNELS,))
    return built.library


@cache
def answers(file: str, order: int) -> dict[str, Any]:
    names = functions_in(file)
    argv = [sys.executable, str(HERE / "child.py"), str(library(file)), str(order), "7", "2", "60", *names]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("file", "name"), [(file, name) for file in FILES for name in functions_in(file)])
def test_known_answer(file: str, name: str, order: str) -> None:
    found = answers(file, ORDERS[order])[name]
    assert found["message"] == ""
    if name not in REFUSED_ON_PURPOSE:
        assert found["failure"] == ""
