"""What a version may have left on the device from one call to the next: its variables, and memory of other jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from msbench.errors import LaunchFailed
from msbench.harness.gpu_runner import Job
from tests.harness.fake_gpu import OPERATOR, FakeGpu, filled, mode, scale


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(tmp_path_factory.mktemp("gpu"))


def test_a_variable_on_the_device_that_cannot_be_looked_at_is_refused(gpu: FakeGpu) -> None:
    arena, _ = filled(gpu, scale())
    with gpu.runner_of(variables=["table", "hidden"]) as runner:
        with pytest.raises(LaunchFailed, match="variable hidden can't be looked at") as failed:
            runner.launch(arena, scale())
        assert failed.value.kind == "forbidden"


def test_what_calls_leave_in_variables_is_seen_after_each_call_and_each_batch(gpu: FakeGpu) -> None:
    arena, _ = filled(gpu, mode("table"))
    with gpu.runner_of(variables=["table"]) as runner:
        runner.prepare(Job.of(OPERATOR, mode("table"), [arena], poison=True))
        runner.capture(3)
        for step in (
            lambda: runner.cold(0, 1),
            lambda: runner.cold(0, 2),
            lambda: runner.replay(1, 1),
            lambda: runner.launch(arena, mode("table")),
        ):
            with pytest.raises(LaunchFailed, match="the launcher left the constant variable table changed") as failed:
                step()
            assert failed.value.kind == "forbidden"
        runner.prepare(Job.of(OPERATOR, scale(), [arena], poison=True))
        runner.cold(0, 2)  # what was changed has been put back


def test_variables_are_put_back_before_each_timed_call(gpu: FakeGpu) -> None:
    """A version that finds what a call before it has left writes something else."""
    arena, _ = filled(gpu, mode("finds"))
    with gpu.runner_of(variables=["table"]) as runner:
        runner.prepare(Job.of(OPERATOR, mode("finds"), [arena], poison=True))
        with pytest.raises(LaunchFailed, match="variable table changed"):
            runner.cold(0, 5)
        assert arena.view("y")[0] != 77


def test_a_version_with_variables_whose_call_cannot_be_recorded_is_refused(gpu: FakeGpu) -> None:
    arena, _ = filled(gpu, mode("uncaptured"))
    for step in ("launch", "prepare"):
        with gpu.runner_of(variables=["table"]) as runner:
            with pytest.raises(LaunchFailed, match="the call can't be recorded") as failed:
                if step == "launch":
                    runner.launch(arena, mode("uncaptured"))
                else:
                    runner.prepare(Job.of(OPERATOR, mode("uncaptured"), [arena]))
            assert failed.value.kind == "forbidden"


def test_memory_of_other_jobs_is_let_go_of_before_one_is_timed(gpu: FakeGpu) -> None:
    arenas = [filled(gpu, scale())[0] for _ in range(3)]
    with gpu.runner_of() as runner:
        for arena in arenas:
            runner.launch(arena, scale())
        runner.prepare(Job.of(OPERATOR, scale(), arenas[:2]))
        maps = Path(f"/proc/{runner._process.pid}/maps").read_text(encoding="utf-8")
        assert [bytes.fromhex(arena.handle).rstrip(b"\0").decode() in maps for arena in arenas] == [True, True, False]
        runner.cold(0, 2)
