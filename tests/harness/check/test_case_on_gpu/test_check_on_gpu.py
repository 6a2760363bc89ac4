"""The check gives the same verdicts on a GPU's memory, and the largest case fits."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from msbench import operators
from msbench.harness.arena import Arena
from msbench.harness.check.case import POISONS, VARIANTS, CaseCheck, check_case
from msbench.harness.check.compare import compare, prepare
from msbench.model import Fault
from msbench.spec import Case, Precision, Task
from tests.harness.check.test_case import MUTANTS
from tests.harness.fakes import OPERATOR, FakeExecutor, Kernel, candidate, case, right

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize(
    "at", [case(1), case(777), case(777, distribution="nonfinite"), case(5000)], ids=lambda c: c.id
)
def test_a_right_kernel_passes(cupy: Any, precision: Precision, at: Case) -> None:
    executor = FakeExecutor(xp=cupy)
    wanted = candidate(right, precision)
    results = check_case(
        executor, executor.open(OPERATOR, executor.build(OPERATOR, wanted), wanted), Task(OPERATOR, precision).at(at), 0
    )
    assert [r.passed for r in results] == [True] * len(results)
    assert [r.variant for r in results] == [v for v in VARIANTS if v != "recorded"]  # which a fake can't be


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize(("kernel", "fault"), [m[:2] for m in MUTANTS], ids=[m[0].__qualname__ for m in MUTANTS])
def test_a_wrong_kernel_fails(cupy: Any, kernel: Kernel, fault: Fault, precision: Precision) -> None:
    executor = FakeExecutor(xp=cupy)
    wanted = candidate(kernel, precision)
    runner = executor.open(OPERATOR, executor.build(OPERATOR, wanted), wanted)
    (result,) = check_case(executor, runner, Task(OPERATOR, precision).at(OPERATOR.cases[2]), 0)
    assert result.failure is not None
    assert result.failure.fault is fault


@pytest.mark.parametrize("name", operators.names())
def test_expected_values_are_those_of_the_host(cupy: Any, name: str) -> None:
    op = operators.load(name)
    at = min(op.cases, key=lambda c: op.flops(**dict(c.dims)))
    for precision in op.precisions:
        host, device = prepare(Task(op, precision).at(at), 3, np), prepare(Task(op, precision).at(at), 3, cupy)
        for array in op.inputs_:
            assert host.inputs[array.name].tobytes() == device.inputs[array.name].get().tobytes()
        for array in op.outputs:
            bound = np.broadcast_to(host.bounds[array.name], host.references[array.name].shape)
            differ = np.abs(host.references[array.name] - device.references[array.name].get())
            assert (differ <= 1e-3 * bound + 1e-300).all()
            np.testing.assert_allclose(device.bounds[array.name].get(), host.bounds[array.name], rtol=1e-6)


def test_the_largest_case_fits(cupy: Any, record_property: Any) -> None:
    """2^30 elements in and out: reference, bound, arena and comparison, and back to where the memory was."""
    op = operators.load("stencil_2d")
    at = operators.select_cases(op, "large")[0]

    def rounded_reference(arena: Arena, _: Case) -> None:
        arena.view("u_new")[...] = check.expectation.references["u_new"].astype(np.float32)

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    free = cupy.cuda.runtime.memGetInfo()[0]
    executor = FakeExecutor(xp=cupy)
    wanted = candidate(rounded_reference)
    start = time.perf_counter()
    with CaseCheck(executor, Task(op, Precision.FP32).at(at), 0) as check:
        results = check.run(executor.open(op, executor.build(op, wanted), wanted), ("aligned",))
        used = pool.total_bytes()
    record_property("seconds", time.perf_counter() - start)
    record_property("bytes", used)
    print(f"\n{at.id}: {time.perf_counter() - start:.1f} s, {used / 2**30:.1f} GiB")
    assert [r.passed for r in results] == [True]
    assert used < 100 * 2**30
    executor.arenas.clear()
    pool.free_all_blocks()
    assert cupy.cuda.runtime.memGetInfo()[0] > free - 2**30


def test_one_wrong_element_in_a_large_array_is_found(cupy: Any) -> None:
    reference = cupy.zeros((2**13, 2**13), dtype=np.float64)
    got = cupy.zeros(reference.shape, dtype=np.float32)
    got[8000, 5000] = 1e-3
    found = compare(reference, cupy.full(1, 1e-4), got, cupy, POISONS[0].floats)
    assert (found.wrong, found.index, found.poisoned) == (1, (8000, 5000), 0)
    assert found.worst == pytest.approx(10)
