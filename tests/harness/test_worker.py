"""The measured process: native/runner.cu and worker.py as they are, on a CUDA runtime that needs no GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from msbench.errors import DeviceError, LaunchFailed, WorkerCrashed, WorkerTimeout
from msbench.harness import gpu_runner, worker
from msbench.harness.arena import Layout
from msbench.harness.check import POISONS
from msbench.harness.confine import Rules
from msbench.harness.gpu_runner import GpuRunner, Job
from msbench.harness.shared_memory import Block
from msbench.harness.stirring import stir
from msbench.model import Origin
from msbench.spec import Array, Precision
from tests.harness.fake_gpu import MODES, OPERATOR, FakeGpu, filled, mode, scale

GUARD = b"\xa5"  # what is around a workspace


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


def test_cold_batches_time_every_repetition_and_write_every_set(gpu: FakeGpu, runner: GpuRunner) -> None:
    case = scale(spin_us=300.0)
    sets = [filled(gpu, case, seed) for seed in range(2)]
    runner.prepare(Job.of(OPERATOR, case, [arena for arena, _ in sets], poison=True))
    for arena, _ in sets:
        arena.poison(POISONS[0])
    batch = runner.cold(1, 5)
    assert len(batch.samples_ns) == len(batch.host_ns) == 5
    assert min(batch.samples_ns) > 250_000
    assert max(batch.host_ns) < 10 * 300_000  # the launcher itself returns at once
    for arena, _ in sets:
        np.testing.assert_array_equal(arena.view("y"), np.float32(3) * arena.view("x"))
        assert not arena.damaged_redzones()


def test_timing_overwrites_outputs_first_only_where_asked(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, expected = filled(gpu, scale())
    runner.launch(arena, scale())
    runner.prepare(Job.of(OPERATOR, scale(), [arena], poison=True))
    arena.view("x")[...] = 0
    runner.cold(0, 1)
    assert not arena.view("y").any()
    np.testing.assert_array_equal(expected != 0, True)


def test_a_launcher_that_waits_for_the_held_stream_is_found_out(gpu: FakeGpu, runner: GpuRunner) -> None:
    case = mode("synchronizes")
    arena, _ = filled(gpu, case)
    runner.prepare(Job.of(OPERATOR, case, [arena]))
    for call in (lambda: runner.keeps_stream(0.01), lambda: runner.cold(0, 8)):
        with pytest.raises(LaunchFailed, match="it synchronises") as failed:
            call()
        assert failed.value.kind == "forbidden"
    assert len(runner.cold(0, 2, held=False).samples_ns) == 2


def test_what_a_kernel_does_wrong_is_no_story_of_the_harness(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("returns"))
    with pytest.raises(LaunchFailed) as failed:
        runner.launch(arena, mode("returns"))
    assert "Traceback" not in failed.value.log


def test_work_outside_the_stream_is_found_out(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("escapes"))
    runner.prepare(Job.of(OPERATOR, mode("escapes"), [arena]))
    with pytest.raises(LaunchFailed, match="another stream") as failed:
        runner.keeps_stream(0.01)
    assert failed.value.kind == "forbidden"
    runner.prepare(Job.of(OPERATOR, scale(), [arena]))
    runner.keeps_stream(0.01)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("settings", "the size of the persisting L2 changed"),
        ("rounding", "the floating-point environment changed"),
    ],
)
def test_what_a_launcher_leaves_changed_is_named(gpu: FakeGpu, runner: GpuRunner, name: str, says: str) -> None:
    arena, _ = filled(gpu, mode(name))
    runner.launch(arena, scale())
    with pytest.raises(LaunchFailed, match=says) as failed:
        runner.launch(arena, mode(name))
    assert failed.value.kind == "forbidden"


def test_what_timed_calls_leave_changed_is_seen_at_the_end(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("rounding"))
    runner.prepare(Job.of(OPERATOR, mode("rounding"), [arena]))
    runner.cold(0, 2)
    with pytest.raises(LaunchFailed, match="the floating-point environment changed") as failed:
        runner.cold(0, 2, last=True)
    assert failed.value.kind == "forbidden"


def test_a_recorded_call_runs_on_inputs_that_came_later(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, scale())
    arena.poison(POISONS[0])
    assert runner.record(arena, scale())
    assert np.isnan(arena.view("y")).all()
    arena.view("x")[...] = 2.0
    runner.replay_record()
    np.testing.assert_array_equal(arena.view("y"), 6.0)


def test_a_call_that_puts_its_work_elsewhere_is_found_out_when_recorded(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("escapes"))
    with pytest.raises(LaunchFailed, match="its work is on another stream, or done by the host") as failed:
        runner.record(arena, mode("escapes"))
    assert failed.value.kind == "forbidden"


def test_a_call_that_need_not_wait_for_its_turn_is_refused(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("early"))
    runner.prepare(Job.of(OPERATOR, mode("early"), [arena]))
    for ask in (lambda: runner.record(arena, mode("early")), lambda: runner.capture(4)):
        with pytest.raises(
            LaunchFailed, match="first kernel may start before what precedes it in the stream"
        ) as failed:
            ask()
        assert failed.value.kind == "forbidden"


def test_within_a_call_a_kernel_may_start_early(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, expected = filled(gpu, mode("chained"))
    assert runner.record(arena, mode("chained"))
    runner.replay_record()
    np.testing.assert_array_equal(arena.view("y"), expected)
    assert runner.capture(4) == 8


def test_a_library_may_start_early(gpu: FakeGpu) -> None:
    with gpu.runner_of(origin=Origin.LIBRARY) as library:
        arena, _ = filled(gpu, mode("early"))
        assert library.record(arena, mode("early"))


def test_a_workspace_is_left_where_it_is_asked_to_be(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("keeps"))
    arena.poison(POISONS[0])
    for fresh, calls in ((True, 1.0), (False, 2.0), (True, 1.0)):
        runner.launch(arena, mode("keeps"), fresh=fresh)
        assert arena.view("y")[0] == calls


def test_a_workspace_is_overwritten_between_timed_repetitions(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("keeps"))
    runner.prepare(Job.of(OPERATOR, mode("keeps"), [arena], poison=True))
    runner.cold(0, 5)
    assert arena.view("y")[0] == 1.0


def test_versions_share_lent_memory_for_their_workspaces(gpu: FakeGpu) -> None:
    """Of which "keeps" writes the first byte: 1, where it was overwritten before."""
    lent = gpu.shared / "lent"
    lent.write_bytes(bytes(1 << 16))
    block = Block(0, 1 << 16, str(lent).encode().ljust(64, b"\0").hex())
    found = []
    with gpu.runner_of(label="a") as first, gpu.runner_of(label="b") as second:
        arena, _ = filled(gpu, mode("keeps"))
        for place in (3, 4):
            for one in (first, second):
                one.prepare(Job.of(OPERATOR, mode("keeps"), [arena], poison=True, workspace=block))
                one.cold(0, 1, place=place)
                found.append(lent.read_bytes().index(1))
                # nothing of who worked there before
                assert lent.read_bytes().count(GUARD) == (1 << 16) - 1000
                assert lent.read_bytes().count(b"\xff") == 999
        lent.write_bytes(bytes(1 << 16))
        first.prepare(Job.of(OPERATOR, mode("keeps"), [arena], poison=True))
        first.cold(0, 1, place=3)
    assert found[0] == found[1] != found[2] == found[3]
    assert not any(at % 256 for at in found)
    assert lent.read_bytes() == bytes(1 << 16)  # nothing is left there by a job that was not lent it


def test_a_workspace_that_does_not_fit_what_is_lent_is_its_own(gpu: FakeGpu, runner: GpuRunner) -> None:
    lent = gpu.shared / "small"
    lent.write_bytes(bytes(1024))  # no room for the guard behind 1000 bytes
    block = Block(0, 1024, str(lent).encode().ljust(64, b"\0").hex())
    arena, _ = filled(gpu, mode("keeps"))
    runner.prepare(Job.of(OPERATOR, mode("keeps"), [arena], poison=True, workspace=block))
    runner.cold(0, 5, place=7)
    assert arena.view("y")[0] == 1.0
    assert lent.read_bytes() == GUARD * 1024  # overwritten, and not written to


def test_what_is_left_around_a_workspace_is_found(gpu: FakeGpu, runner: GpuRunner) -> None:
    lent = gpu.shared / "left"
    lent.write_bytes(bytes(1 << 16))
    block = Block(0, 1 << 16, str(lent).encode().ljust(64, b"\0").hex())
    arena, _ = filled(gpu, mode("leaves"))
    runner.prepare(Job.of(OPERATOR, mode("leaves"), [arena], poison=True, workspace=block))
    with pytest.raises(LaunchFailed, match="wrote outside its workspace") as failed:
        runner.cold(0, 2, place=0)
    assert failed.value.kind == "out_of_bounds"


def test_which_elements_change_places_is_known_here(gpu: FakeGpu, runner: GpuRunner) -> None:
    """Of sets of two arrays that move and one of indices that stays."""
    op = replace(
        OPERATOR,
        arrays=(
            Array("x", ("n",)),
            Array("index", ("n",), "i32"),
            Array("z", ("7",)),
            Array("y", ("n",), output=True),
        ),
    )
    layout = Layout.of(op, Precision.FP32, scale())
    rng = np.random.default_rng(0)
    drawn = [
        {
            "x": rng.random(1000, np.float32),
            "index": np.arange(1000, dtype=np.int32),
            "z": rng.random(7, np.float32),
        }
        for _ in range(2)
    ]
    arenas = [gpu.arena(layout) for _ in drawn]
    for stirs, first, repetitions in ((2**64 - 1, 0, 16), (5, 1, 7), (0, 3, 1)):
        for arena, inputs in zip(arenas, drawn, strict=True):
            arena.write_inputs(inputs)
        runner.prepare(Job.of(op, scale(mode=float(MODES.index("idle"))), arenas))
        runner.cold(first, repetitions, stirs=stirs)
        for number, (arena, inputs) in enumerate(zip(arenas, drawn, strict=True)):
            moved = {name: array.copy() for name, array in inputs.items()}
            stir(moved, stirs, first, repetitions, 2, number)
            for name, array in moved.items():
                np.testing.assert_array_equal(arena.view(name), array)
            assert (moved["x"] != inputs["x"]).any() == (repetitions > 1 or first % 2 == number)


def test_a_process_that_rests_works_again(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("keeps"))
    runner.launch(arena, mode("keeps"))
    runner.rest()
    runner.rest()
    runner.launch(arena, mode("keeps"))
    assert arena.view("y")[0] == 1.0
    runner.close()
    runner.rest()


def test_a_library_may_prepare_and_says_how_long_that_took(gpu: FakeGpu, runner: GpuRunner) -> None:
    assert runner.untimed_ns() == 0
    with gpu.runner_of(origin=Origin.LIBRARY) as library:
        assert library.untimed_ns() == 1500


def test_graphs_replay_the_call(gpu: FakeGpu, runner: GpuRunner) -> None:
    case = scale(spin_us=200.0)
    arena, expected = filled(gpu, case)
    runner.prepare(Job.of(OPERATOR, case, [arena]))
    assert runner.capture(1) == 1
    assert runner.capture(3) == 3
    arena.poison(POISONS[0])
    samples = runner.replay(2, 4)
    assert len(samples) == 4
    assert min(samples) > 2 * 3 * 200_000 * 0.9
    np.testing.assert_array_equal(arena.view("y"), expected)
    assert runner.capture(3, fresh=True) == 9  # outputs overwritten, elements swapped, the call
    assert runner.replay(1, 1)
    np.testing.assert_array_equal(arena.view("y"), expected)
    assert runner.capture(3, nothing=True, fresh=True) == 9
    runner.replay(1, 1)
    assert np.isnan(arena.view("y")).all()


def test_a_fresh_call_takes_what_it_takes_without_the_overwriting(gpu: FakeGpu, runner: GpuRunner) -> None:
    case = scale(spin_us=500.0)
    arena, _ = filled(gpu, case)
    runner.prepare(Job.of(OPERATOR, case, [arena]))
    found = runner.fresh_ns(3, 2, 3)
    assert found is not None and found > 400_000


def test_empty_kernels_and_a_busy_device(runner: GpuRunner) -> None:
    assert len(runner.floor(20).samples_ns) == 20
    assert runner.capture(10, nothing=True) == 10
    runner.busy(0.001)


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
    assert int(environment["MALLOC_PERTURB_"]) % 256  # what is freed is overwritten


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
    one._runner = one._candidate = mock.MagicMock()
    with mock.patch.object(one, "_set_up", return_value={}), mock.patch.object(one, "_done"):
        job = {"sets": []}
        one.launch(job, fresh=True)
        one.prepare(job)
        one._candidate.msbench_choose_anew.assert_not_called()
        monkeypatch.setattr(worker.wire, "rules", lambda: Rules.LIBRARY)
        one.launch(job, fresh=True)
        one._candidate.msbench_choose_anew.assert_not_called()
        one.prepare(job)
        one._candidate.msbench_choose_anew.assert_called_once_with()
        one._candidate = mock.MagicMock(spec=["msbench_launch"])
        one.prepare(job)


def test_which_elements_change_places_stays_what_the_job_said(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []

    def cold(call: worker._Call, *_: object) -> dict[str, list[float]]:
        gc.collect()
        bytearray(b"\xee" * 64)  # takes what was freed
        seen.append([call.stirred[i] for i in range(4)])
        return {"ms": [], "host_ns": []}

    one = worker.Worker()
    one._runner = one._candidate = mock.MagicMock(
        **{"msbench_workspace.return_value": 0, "runner_reserve.return_value": 0}
    )
    monkeypatch.setattr(worker.ctypes, "cast", lambda *_: None)
    monkeypatch.setattr(one, "_cold", cold)
    monkeypatch.setattr(one, "_state", dict)
    job = {"scalars": [], "dims": [], "output_bytes": [4], "poison": True, "stirred": [1024, 4, 0, 4]}
    one._set_up(job, [[4096, 8192]])
    for last in (False, True, False):
        one.cold(0, 1, held=True, place=0, stirs=1, last=last)
    assert seen == [[1024, 4, 0, 4]] * 3
