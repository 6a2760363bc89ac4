"""What a version may have left on the device from one call to the next: its variables, and memory of other jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from msbench.errors import LaunchFailed
from msbench.gpu.job import Job
from tests.gpu.fake_gpu import OPERATOR, FakeGpu, filled, mode, scale


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(tmp_path_factory.mktemp("gpu"))


def test_a_variable_on_the_device_that_cannot_be_looked_at_is_refused(gpu: FakeGpu) -> None:
    with (
        pytest.raises(LaunchFailed, match="variable hidden can't be looked at") as failed,
        gpu.runner_of(variables=["table", "hidden"]),
    ):
        pass
    assert failed.value.kind == "forbidden"


def test_what_calls_leave_in_variables_is_seen_after_each_call_and_each_batch(gpu: FakeGpu) -> None:
    case = mode("table")
    arena, _ = filled(gpu, case)
    with gpu.runner_of(variables=["table"]) as runner:
        runner.prepare(Job.of(OPERATOR, case, [arena], poison=True), case)
        for step in (
            lambda: runner.cold(0, 1),
            lambda: runner.cold(0, 2),
            lambda: runner.hot(1, 1),
            lambda: runner.launch(arena, case),
        ):
            with pytest.raises(
                LaunchFailed, match="variable table is not after a call what it was before it"
            ) as failed:
                step()
            assert failed.value.kind == "forbidden"
        runner.prepare(Job.of(OPERATOR, scale(), [arena], poison=True), scale())
        runner.cold(0, 2)  # what was changed has been put back


def test_a_variable_that_a_call_sets_back_itself_is_fine(gpu: FakeGpu) -> None:
    case = mode("counter")
    arena, expected = filled(gpu, case)
    with gpu.runner_of(variables=["table"]) as runner:
        runner.launch(arena, case)
        assert arena.view("y")[0] == expected[0]
        runner.prepare(Job.of(OPERATOR, case, [arena], poison=True), case)
        runner.cold(0, 3)
        runner.hot(3, 1)


def test_memory_of_other_jobs_is_let_go_of_before_one_is_timed(gpu: FakeGpu) -> None:
    arenas = [filled(gpu, scale())[0] for _ in range(3)]
    with gpu.runner_of() as runner:
        for arena in arenas:
            runner.launch(arena, scale())
        runner.prepare(Job.of(OPERATOR, scale(), arenas[:2]), scale())
        maps = Path(f"/proc/{runner._process.pid}/maps").read_text(encoding="utf-8")
        assert [bytes.fromhex(arena.handle).rstrip(b"\0").decode() in maps for arena in arenas] == [True, True, False]
        runner.cold(0, 2)
