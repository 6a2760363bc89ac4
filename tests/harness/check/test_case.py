"""Wrong kernels fail, each with the right fault and one clear sentence; right ones pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from msbench.errors import LaunchFailed, UnsupportedError, WorkerCrashed, WorkerError, WorkerTimeout
from msbench.harness.arena import Arena
from msbench.harness.check import case as checking
from msbench.harness.check.case import VARIANTS, CaseCheck, check_case
from msbench.model import CheckResult, Fault
from msbench.spec import Case, Operator, Precision, Split, Task
from tests.harness.fakes import OPERATOR, DeviceExecutor, FakeExecutor, Kernel, candidate, case, right

WHERE: list[type[FakeExecutor]] = []


@pytest.fixture(params=[FakeExecutor, DeviceExecutor], autouse=True)
def where(request: pytest.FixtureRequest) -> Iterator[type[FakeExecutor]]:
    """In memory that the host reaches, and in a device's, where what is small is checked by copies."""
    WHERE.append(request.param)
    yield request.param
    WHERE.pop()


BOTH = pytest.mark.parametrize("precision", list(Precision))


def check(
    kernel: Kernel,
    precision: Precision = Precision.FP32,
    at: Case = OPERATOR.cases[2],
    op: Operator = OPERATOR,
    variants: tuple[str, ...] = VARIANTS,
) -> tuple[CheckResult, ...]:
    executor = WHERE[-1]()
    wanted = candidate(kernel, precision)
    return check_case(
        executor, executor.open(op, executor.build(op, wanted), wanted), Task(op, precision).at(at), 0, variants
    )


@BOTH
@pytest.mark.parametrize(
    "at", [case(1), case(2), case(777), case(777, distribution="nonfinite"), case(9, distribution="zeros")]
)
def test_a_right_kernel_passes_everything(precision: Precision, at: Case) -> None:
    results = check(right, precision, at)
    assert [(r.variant, r.passed) for r in results] == [(v, True) for v in VARIANTS if v != "recorded"]
    assert all(r.worst is not None and r.worst <= 1 for r in results)
    assert results[0].bitwise_repeatable is True
    assert results[0].max_abs_error is not None


# ------------------------------------------------------------------ mutants


def zeros(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("y")[...] = 0


def off_by_one(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("rank")[...] += 1


def one_wrong_element(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("y")[700] *= np.float32(1.05)


def dropped_tail(arena: Arena, case: Case) -> None:
    y, rank = arena.view("y").copy(), arena.view("rank").copy()
    right(arena, case)
    tail = slice(y.size - y.size % 32, None)
    arena.view("y")[tail], arena.view("rank")[tail] = y[tail], rank[tail]


def forgets_an_output(arena: Arena, case: Case) -> None:
    rank = arena.view("rank").copy()
    right(arena, case)
    arena.view("rank")[...] = rank


def writes_its_input(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("index")[5] ^= 1


def makes_a_nan(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("y")[0] = np.nan


def makes_an_infinity(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("y")[0] = -np.inf


def _beside(output: str, side: str) -> Kernel:
    def kernel(arena: Arena, case: Case) -> None:
        right(arena, case)
        slot = arena.layout[output]
        at = slot.end if side == "after" else slot.offset - slot.dtype.itemsize
        arena.buffer[at : at + slot.dtype.itemsize] = 7

    kernel.__qualname__ = f"writes_{side}_{output}"
    return kernel


def needs_alignment(arena: Arena, case: Case) -> None:
    if arena.raw("y").ctypes.data % 16:
        raise LaunchFailed("The launcher returned cudaErrorMisalignedAddress.")
    right(arena, case)


def peels_as_if_all_were_aligned_alike(arena: Arena, case: Case) -> None:
    if len({arena.raw(n).ctypes.data % 16 for n in ("x", "y")}) > 1:
        raise LaunchFailed("The launcher returned cudaErrorMisalignedAddress.")
    right(arena, case)


MUTANTS: list[tuple[Kernel, Fault, str]] = [
    (
        zeros,
        Fault.MISMATCH,
        r"Case N=777: y\[\d+\] is 0 where .* was expected: the error .* times the bound .*; 777 of 777",
    ),
    (off_by_one, Fault.MISMATCH, r"rank\[0\] is -2 where exactly -3 was expected; 777 of 777 elements are wrong\.$"),
    (one_wrong_element, Fault.MISMATCH, r"y\[700\] is .*; 1 of 777 elements are wrong\.$"),
    (
        dropped_tail,
        Fault.UNWRITTEN,
        r"y\[768\] still holds what was there before the launch, as do 9 of 777 elements in all",
    ),
    (forgets_an_output, Fault.UNWRITTEN, r"rank\[0\] still holds what was there before"),
    (writes_its_input, Fault.INPUT_CHANGED, r"wrote to its input index: 1 bytes differ, first at index\[5\]\.$"),
    (makes_a_nan, Fault.MISMATCH, r"y\[0\] is nan where [-.\d]+ was expected; 1 of 777"),
    (makes_an_infinity, Fault.MISMATCH, r"y\[0\] is -inf where [-.\d]+ was expected; 1 of 777"),
    (_beside("y", "after"), Fault.OUT_OF_BOUNDS, r"wrote outside its arrays: \d bytes just after y\[777\]\.$"),
    (_beside("y", "before"), Fault.OUT_OF_BOUNDS, r"wrote outside its arrays: \d bytes just before y\[777\]\.$"),
    (_beside("rank", "after"), Fault.OUT_OF_BOUNDS, r"4 bytes just after rank\[777\]\.$"),
]


@BOTH
@pytest.mark.parametrize(("kernel", "fault", "message"), MUTANTS, ids=[m[0].__qualname__ for m in MUTANTS])
def test_a_wrong_kernel_fails_at_once(kernel: Kernel, fault: Fault, message: str, precision: Precision) -> None:
    results = check(kernel, precision)
    assert len(results) == 1
    assert not results[0].passed
    assert results[0].failure is not None
    assert results[0].failure.fault is fault
    assert re.search(message, results[0].failure.message), results[0].failure.message
    assert results[0].failure.message.count("\n") == 0


@pytest.mark.parametrize("kernel", [needs_alignment, peels_as_if_all_were_aligned_alike])
def test_alignment_beyond_the_element_must_not_be_assumed(kernel: Kernel) -> None:
    results = check(kernel)
    assert [(r.variant, r.passed) for r in results] == [("aligned", True), ("misaligned", False)]
    assert results[1].failure is not None
    assert results[1].failure.fault is Fault.LAUNCH
    assert results[1].failure.message.startswith("Case N=777 (misaligned): The launcher returned")


def test_at_hidden_sizes_each_array_has_to_be_looked_at() -> None:
    def looks_at_one(arena: Arena, case: Case) -> None:
        at = {slot.name: arena.raw(slot.name).ctypes.data % 16 for slot in arena.layout.slots}
        if not at["x"] and any(at.values()):
            raise LaunchFailed("The launcher returned cudaErrorMisalignedAddress.")
        right(arena, case)

    assert all(result.passed for result in check(looks_at_one))
    for size in range(700, 712):
        last = check(looks_at_one, at=replace(case(size), split=Split.HELDOUT))[-1]
        assert last.variant == "misaligned" and not last.passed


def test_a_kernel_that_looks_at_one_place_to_see_what_is_new_fails() -> None:
    def lazy(arena: Arena, case: Case) -> None:
        first = np.float32(3) * arena.view("x")[arena.view("index")[0]].astype(np.float32)
        if arena.view("y")[0] != first.astype(arena.view("y").dtype):
            right(arena, case)

    (result,) = check(lazy, at=case(2048), variants=("touched",))
    assert result.failure is not None
    assert result.failure.fault is Fault.MISMATCH
    assert "on inputs that differ from those of the launch before in a few elements, y[" in result.failure.message


def test_a_kernel_that_answers_from_memory_fails_when_inputs_change() -> None:
    kept: dict[int, np.ndarray] = {}

    def remembers(arena: Arena, case: Case) -> None:
        x = arena.raw("x").ctypes.data
        right(arena, case)
        kept.setdefault(x, arena.view("y").copy())
        arena.view("y")[...] = kept[x]

    results = check(remembers)
    assert results[-1].variant == "aba"
    failure = results[-1].failure
    assert failure is not None
    assert failure.fault is Fault.MISMATCH
    # rank does not depend on the inputs, so all outputs are bitwise the earlier ones
    assert "the result is that of the inputs before: y[0] is" in failure.message


@BOTH
def test_adding_to_an_output_fails(precision: Precision) -> None:
    """Adding to a NaN gives that NaN or another one, depending on the processor; so the fault is either."""

    def accumulates(arena: Arena, case: Case) -> None:
        before = arena.view("y").copy()
        right(arena, case)
        arena.view("y")[...] += before

    (result,) = check(accumulates, precision)
    assert result.failure is not None
    assert result.failure.fault in (Fault.UNWRITTEN, Fault.MISMATCH)


def test_a_stale_output_fails() -> None:
    """It writes in its first call only and later relies on what is still there."""
    calls = []

    def stale(arena: Arena, case: Case) -> None:
        if not calls:
            right(arena, case)
        calls.append(case)

    (result,) = check(stale)
    assert result.failure is not None
    assert result.failure.fault is Fault.UNWRITTEN


def test_nan_poison_does_not_pass_for_an_expected_nan() -> None:
    all_nan = replace(OPERATOR, reference=lambda xp, x, index, a, N: {"y": x * xp.nan, "rank": xp.arange(N) - 3})

    def only_rank(arena: Arena, case: Case) -> None:
        arena.view("rank")[...] = np.arange(case.dim("N")) - 3

    (result,) = check(only_rank, op=all_nan)
    assert result.failure is not None
    assert result.failure.fault is Fault.UNWRITTEN


def _wobbles(every: int) -> Kernel:
    calls = []

    def kernel(arena: Arena, case: Case) -> None:
        right(arena, case)
        calls.append(case)
        if len(calls) % every == 0:
            y = arena.view("y")
            y[...] = np.nextafter(y, np.float32(np.inf))

    return kernel


def test_other_bits_within_the_bound_are_recorded() -> None:
    results = check(_wobbles(5))
    assert all(r.passed for r in results)
    assert {r.variant: r.bitwise_repeatable for r in results} == {
        "aligned": True, "misaligned": None, "repeat": False, "aba": None, "touched": None,
    }  # fmt: skip


def test_other_bits_fail_where_the_operator_declares_determinism() -> None:
    results = check(_wobbles(2), op=replace(OPERATOR, deterministic=True))
    assert len(results) == 1
    assert results[0].failure is not None
    assert results[0].failure.fault is Fault.NONDETERMINISTIC


def test_a_value_that_is_wrong_in_a_later_launch_fails() -> None:
    calls = []

    def racy(arena: Arena, case: Case) -> None:
        right(arena, case)
        calls.append(case)
        if len(calls) == 6:
            arena.view("y")[3] = 0.25

    results = check(racy)
    assert (results[-1].variant, results[-1].bitwise_repeatable) == ("repeat", False)
    assert results[-1].failure is not None
    assert results[-1].failure.fault is Fault.MISMATCH


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (WorkerCrashed("The worker died of SIGSEGV."), Fault.CRASH),
        (WorkerTimeout("The worker did not finish."), Fault.TIMEOUT),
        (LaunchFailed("The launcher returned cudaErrorInvalidValue (1)."), Fault.LAUNCH),
        (
            WorkerCrashed("heap-buffer-overflow at line 12.", "out_of_bounds", "the sanitizer's report"),
            Fault.OUT_OF_BOUNDS,
        ),
        (WorkerError("cudaErrorMemoryAllocation.", "out_of_memory"), Fault.OUT_OF_MEMORY),
        (WorkerError("What the worker calls it.", "KeyError"), Fault.CRASH),
    ],
)
def test_what_happens_to_the_worker_is_told(error: WorkerError, fault: Fault) -> None:
    def fails(arena: Arena, case: Case) -> None:
        raise error

    (result,) = check(fails)
    assert result.worst is None
    assert result.failure is not None
    assert result.failure.fault is fault
    assert result.failure.log == error.log
    assert result.failure.message == f"Case N=777: {error}"


def test_what_an_executor_cannot_run_is_no_verdict() -> None:
    def unsupported(arena: Arena, case: Case) -> None:
        raise UnsupportedError("wgmma")

    with pytest.raises(UnsupportedError):
        check(unsupported)


@pytest.mark.parametrize("close", [True, False])
def test_memory_is_given_back(close: bool) -> None:
    executor = FakeExecutor()
    wanted = candidate(right if close else zeros)
    runner = executor.open(OPERATOR, executor.build(OPERATOR, wanted), wanted)
    check_case(executor, runner, Task(OPERATOR, Precision.FP32).at(OPERATOR.cases[0]), 0)
    assert executor.arenas
    assert all(a.buffer is None for a in executor.arenas)


def test_outputs_with_the_bits_of_right_ones_are_not_compared_again_and_all_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0

    def counted(*arguments: Any) -> Any:
        nonlocal compared
        compared += 1
        return original(*arguments)

    def another_way(arena: Arena, case: Case) -> None:
        """As right, with an error of its own."""
        right(arena, case)
        arena.view("y")[3] *= np.float32(1 + 2.0**-23)

    def wrong_the_second_time(arena: Arena, case: Case) -> None:
        right(arena, case)
        arena.view("y")[3] *= np.float32(1 + next(errors))

    original = checking.glance
    monkeypatch.setattr(checking, "glance", counted)
    executor = WHERE[-1]()
    with CaseCheck(executor, Task(OPERATOR, Precision.FP32).at(OPERATOR.cases[2]), 0) as once:
        for kernel, times in ((right, 3), (right, 2), (another_way, 3)):
            before, wanted = compared, candidate(kernel)
            results = once.run(executor.open(OPERATOR, executor.build(OPERATOR, wanted), wanted))
            assert [result.passed for result in results] == [True] * len(VARIANTS)
            assert results[0].worst is not None and results[0].worst > 0
            assert compared - before == times * len(OPERATOR.outputs)  # of other inputs and touched ones, each time
        errors = iter([0.0, 0.5])
        wanted = candidate(wrong_the_second_time)
        (result,) = once.run(executor.open(OPERATOR, executor.build(OPERATOR, wanted), wanted))
        assert result.failure is not None and result.failure.fault is Fault.MISMATCH


def test_both_poisons_are_seen_by_the_kernel() -> None:
    seen: list[bytes] = []

    def looks(arena: Arena, case: Case) -> None:
        seen.append(arena.raw("y").tobytes())
        right(arena, case)

    check(looks, variants=("aligned",))
    assert seen == [b"\xff" * 777 * 4, b"\x5d" * 777 * 4]  # NaN, and 9.97e17
