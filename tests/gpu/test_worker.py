"""The measured process: native/runner.cu and worker.py as they are, on a CUDA runtime that needs no GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from msbench.errors import DeviceError, LaunchFailed, WorkerCrashed, WorkerTimeout
from msbench.gpu import bindings, worker
from msbench.gpu import runner as gpu_runner
from msbench.gpu.job import Job
from msbench.gpu.runner import GpuRunner
from msbench.harness.check.case import POISONS
from msbench.harness.sandbox.confine import Rules
from msbench.model import Origin
from tests.gpu.fake_gpu import OPERATOR, FakeGpu, filled, mode, scale


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def runner(gpu: FakeGpu) -> Iterator[GpuRunner]:
    with gpu.runner_of() as runner:
        yield runner


def test_a_launch_computes_in_shared_memory(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, expected = filled(gpu, scale())
    arena.poison(POISONS[0])
    runner.launch(arena, scale())
    np.testing.assert_array_equal(arena.view("y"), expected)
    assert not arena.damaged_redzones()


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("returns", "launch", "the launcher returned cudaErrorFake"),
        ("unreported", "launch", "which the launcher did not report"),
        ("overruns", "out_of_bounds", "outside its workspace"),
        ("huge_workspace", "out_of_memory", "cudaErrorFake"),
    ],
)
def test_a_failed_launch_says_why_and_the_next_one_works(
    gpu: FakeGpu, runner: GpuRunner, name: str, kind: str, says: str
) -> None:
    arena, _ = filled(gpu, mode(name))
    with pytest.raises(LaunchFailed, match=says) as failed:
        runner.launch(arena, mode(name))
    assert failed.value.kind == kind
    runner.launch(arena, scale())


def test_an_illegal_address_ends_the_process(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("sticky"))
    gpu.health_checks.clear()
    with pytest.raises(LaunchFailed, match="cudaErrorIllegalAddress, an illegal memory access") as failed:
        runner.launch(arena, mode("sticky"))
    assert failed.value.kind == "crash"
    assert gpu.health_checks == [True]
    assert not runner.alive
    with pytest.raises(WorkerCrashed):
        runner.launch(arena, scale())


def test_a_crash_is_named_and_survived(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("crashes"))
    with pytest.raises(WorkerCrashed, match="SIGSEGV"):
        runner.launch(arena, mode("crashes"))
    with gpu.runner_of() as another:
        another.launch(arena, scale())


def test_a_hanging_kernel_is_killed(gpu: FakeGpu, runner: GpuRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_runner, "LAUNCH_LIMIT_S", 1.0)
    arena, _ = filled(gpu, mode("hangs"))
    with pytest.raises(WorkerTimeout, match="within 1 s"):
        runner.launch(arena, mode("hangs"))
    assert not runner.alive


def test_memory_that_cannot_be_shared_is_no_fault_of_the_kernel(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, scale())
    arena.handle = b"/dev/shm/cuda-fake-nowhere".ljust(64, b"\0").hex()
    with pytest.raises(DeviceError, match="can't be shared between processes"):
        runner.launch(arena, scale())


def test_timing_overwrites_outputs_first_only_where_asked(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, expected = filled(gpu, scale())
    runner.launch(arena, scale())
    runner.prepare(Job.of(OPERATOR, scale(), [arena], poison=True), scale())
    arena.view("x")[...] = 0
    runner.cold(0, 1)
    assert not arena.view("y").any()
    np.testing.assert_array_equal(expected != 0, True)


def test_what_a_kernel_does_wrong_is_no_story_of_the_harness(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("returns"))
    with pytest.raises(LaunchFailed) as failed:
        runner.launch(arena, mode("returns"))
    assert "Traceback" not in failed.value.log


def test_a_library_may_prepare_and_says_how_long_that_took(gpu: FakeGpu, runner: GpuRunner) -> None:
    assert runner.untimed_ns() == 0
    with gpu.runner_of(origin=Origin.LIBRARY) as library:
        assert library.untimed_ns() == 1500


def test_memory_is_mapped_once_and_let_go(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, scale())
    runner.launch(arena, scale())
    Path(bytes.fromhex(arena.handle).rstrip(b"\0").decode()).unlink()
    runner.launch(arena, scale())
    runner.forget(arena.handle)
    with pytest.raises(DeviceError):
        runner.launch(arena, scale())


def test_the_worker_sees_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    environment = gpu_runner.worker_environment("GPU-1")
    assert "secret" not in environment.values()
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("forks", r"tried to start another process \(clone\), which is forbidden"),
        ("connects", r"tried to open a network connection \(socket\), which is forbidden"),
        ("writes", r"tried to write files \(openat /.*/fake-written\), which is forbidden"),
    ],
)
def test_what_is_forbidden_is_named_and_the_next_one_works(
    gpu: FakeGpu, runner: GpuRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arena, _ = filled(gpu, mode(name))
    with gpu.runner_of() as one, pytest.raises(WorkerCrashed, match=says) as caught:
        one.launch(arena, mode(name))
    assert caught.value.kind == "forbidden"
    assert not list(tmp_path.iterdir())
    runner.launch(arena, scale())


def test_what_the_driver_needs_is_allowed(gpu: FakeGpu, runner: GpuRunner) -> None:
    """A local socket, the null device: from a driver's thread they may come at any time."""
    arena, expected = filled(gpu, mode("local"))
    runner.launch(arena, mode("local"))
    np.testing.assert_array_equal(arena.view("y"), expected)


def test_a_library_may_write_files_and_start_nothing(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arena, _ = filled(gpu, mode("writes"))
    with gpu.runner_of(origin=Origin.LIBRARY) as runner, pytest.raises(LaunchFailed):  # which says that it could
        runner.launch(arena, mode("writes"))
    assert (tmp_path / "fake-written").exists()
    with gpu.runner_of(origin=Origin.LIBRARY) as runner, pytest.raises(WorkerCrashed, match="another process"):
        runner.launch(arena, mode("forks"))


def test_without_confinement_everything_runs(gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_runner, "CONFINED", False)
    arena, _ = filled(gpu, mode("connects"))
    with gpu.runner_of() as runner:
        runner.launch(arena, mode("connects"))


def test_a_library_chooses_anew_before_it_is_timed_and_not_for_each_check(monkeypatch: pytest.MonkeyPatch) -> None:
    one = worker.Worker()
    one._runner, one._loaded = mock.MagicMock(), mock.MagicMock()
    one._job = {"scalars": [], "dims": []}
    with mock.patch.object(one, "_done"):
        one.prepare(anew=True)
        one._loaded.msbench_choose_anew.assert_not_called()
        monkeypatch.setattr(worker.wire, "rules", lambda: Rules.LIBRARY)
        one.prepare(anew=False)
        one._loaded.msbench_choose_anew.assert_not_called()
        one.prepare(anew=True)
        one._loaded.msbench_choose_anew.assert_called_once_with()
        assert one._runner.runner_prepare.call_count == 2  # not again for the same arrays, but where it chooses anew
        one._loaded = mock.MagicMock(spec=["msbench_launch"])
        one.prepare(anew=True)


def test_a_call_stays_what_the_job_said() -> None:
    job = {"scalars": [], "dims": [], "output_bytes": [4], "poison": True, "permuted": [1024, 4, 0, 4]}
    call = bindings.Call.of(job, [[4096, 8192]], 0)
    gc.collect()
    bytearray(b"\xee" * 64)  # takes what was freed
    assert [call.permuted[i] for i in range(4)] == [1024, 4, 0, 4]
    assert [call.pointers[i] for i in range(2)] == [4096, 8192]
