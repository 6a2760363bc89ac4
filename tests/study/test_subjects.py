"""What a study tries is chosen by a rule, and slowed down by what its source says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from msbench import operators, resources
from msbench.errors import MsbenchError, ToolchainError
from msbench.harness.build import toolchain
from msbench.harness.check.cost import work
from msbench.spec import Precision, Task
from msbench.study.delay import BASE, delayed
from msbench.study.subjects import WORK_LIMIT, choose
from tests.study.fakes import SOURCE


def test_twenty_tasks_span_scenarios_precisions_and_sizes() -> None:
    chosen = choose(20)
    assert len({one.name for one in chosen}) == 20
    assert len({one.task.operator.name for one in chosen}) == 20
    assert {one.task.operator.scenario for one in chosen} == {
        operators.load(name).scenario for name in operators.names()
    }
    counts = [sum(one.task.precision is precision for one in chosen) for precision in Precision]
    assert min(counts) >= 8
    costs = sorted(work(one.task.operator, one.case) for one in chosen)
    assert costs[0] < 1e5
    assert 1e9 < costs[-1] <= WORK_LIMIT
    assert [one.name for one in choose(20)] == [one.name for one in chosen]


def test_any_number_of_tasks_up_to_all() -> None:
    assert len(choose(1)) == 1
    with pytest.raises(MsbenchError, match=r"--tasks 0: choose from 1 to (\d+)"):
        choose(0)
    with pytest.raises(MsbenchError, match="--tasks 101"):
        choose(101)


def test_the_wait_is_the_last_thing_in_the_launcher() -> None:
    slow = delayed(SOURCE, 238)
    assert "(x, y, a, N);\n    msbench_wait<<<1, 1, 0, stream>>>();\n    return cudaGetLastError();\n}" in slow
    assert "clock64() - start < 238ll" in slow
    with pytest.raises(ValueError, match="has no 'return cudaGetLastError"):
        delayed("__global__ void kernel() {}", 238)


@pytest.mark.parametrize("name", operators.names())
def test_every_naive_kernel_can_be_slowed_down(name: str) -> None:
    op = operators.load(name)
    for precision in op.precisions:
        assert "msbench_wait<<<" in delayed(operators.versions(Task(op, precision))[0].source, 238)


def test_a_kernel_that_waits_compiles_and_differs_from_one_that_does_not_in_one_constant(tmp_path: Path) -> None:
    try:
        tools = toolchain.find()
    except ToolchainError as error:
        pytest.skip(f"needs nvcc: {error}")
    op = operators.load("relu")
    naive = operators.versions(Task(op, Precision.FP32))[0].source
    (tmp_path / "relu.h").write_text(operators.header(Task(op, Precision.FP32)))
    lines = []
    for cycles in (BASE, BASE + 238):
        (tmp_path / "relu.cu").write_text(delayed(naive, cycles))
        options = ["-O3", "-std=c++17", "-arch=sm_90", f"-I{resources.include_dir()}", "-include", "relu.h"]
        command = [str(tools.nvcc), *options, "-ptx", "-o", "relu.ptx", "relu.cu"]
        subprocess.run(command, cwd=tmp_path, check=True)
        lines.append((tmp_path / "relu.ptx").read_text().splitlines())
    assert len(lines[0]) == len(lines[1])
    differing = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert len(differing) == 1
