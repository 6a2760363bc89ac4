"""Launchers that are recorded in one process and played in another, on a CUDA runtime that needs no GPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msbench.errors import LaunchFailed
from msbench.gpu import record
from msbench.gpu.job import Job
from msbench.gpu.runner import GpuRunner
from msbench.gpu.shared_memory import Block
from msbench.gpu.timing.permute import permute
from msbench.harness.arena import Layout
from msbench.harness.check.case import POISONS
from msbench.model import Candidate, Fault, Origin
from msbench.spec import Array, Precision, Task
from tests.gpu.fake_gpu import OPERATOR, FakeGpu, filled, mode, scale

GUARD = b"\xa5"  # what is around a workspace


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def runner(gpu: FakeGpu) -> Iterator[GpuRunner]:
    with gpu.runner_of() as runner:
        yield runner


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("idle", "put nothing into its stream"),
        ("synchronizes", "can't be recorded: it waits"),
        ("escapes", "runs host code in its stream"),
        ("early", "first kernel may start before what precedes it"),
        ("host_work", "copies from memory that is no array or workspace: the host's"),
        ("elsewhere", "sets memory that is no output or workspace"),
        ("window", "a window of persisting L2"),
        ("foreign", "a kernel that its file does not hold: foreign; declare the link"),
    ],
)
def test_what_cannot_be_played_is_refused_in_words(gpu: FakeGpu, runner: GpuRunner, name: str, says: str) -> None:
    arena, _ = filled(gpu, mode(name))
    with pytest.raises(LaunchFailed, match=says) as failed:
        runner.launch(arena, mode(name))
    assert failed.value.kind == Fault.FORBIDDEN
    runner.launch(arena, scale())


def test_a_size_that_is_not_supported_is_told_as_such(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("unsupported"))
    with pytest.raises(LaunchFailed) as failed:
        runner.launch(arena, mode("unsupported"))
    assert failed.value.kind == Fault.UNSUPPORTED


@pytest.mark.parametrize("origin", [Origin.EXTERNAL, Origin.LIBRARY])
def test_each_launch_has_the_shared_memory_that_its_launcher_allowed_for_it(gpu: FakeGpu, origin: Origin) -> None:
    with gpu.runner_of(origin=origin) as version:
        arena, expected = filled(gpu, mode("two_limits"))
        arena.poison(POISONS[0])
        version.launch(arena, mode("two_limits"))
        np.testing.assert_array_equal(arena.view("y"), expected)
        assert version.recorded is not None
        assert [node["shared"] for node in version.recorded["nodes"]] == [100 << 10, 60 << 10]


def test_a_launch_that_failed_is_not_laid_to_the_recording(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("refused"))
    with pytest.raises(LaunchFailed, match="a launch failed, which the launcher did not report") as failed:
        runner.launch(arena, mode("refused"))
    assert failed.value.kind == Fault.LAUNCH


def test_no_array_is_mapped_and_no_host_code_loaded_where_it_is_not_needed(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, scale())
    runner.launch(arena, scale())
    path = bytes.fromhex(arena.handle).rstrip(b"\0").decode()
    assert runner._recorder is not None
    recorder, worker = (Path(f"/proc/{p.pid}/maps").read_text() for p in (runner._recorder, runner._process))
    assert path not in recorder and path in worker
    assert str(gpu.candidate) in recorder


def test_the_recorder_stands_still_while_calls_are_timed(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, scale())
    job = Job.of(OPERATOR, scale(), [arena], poison=True)
    assert runner.prepare(job, scale()) == 1
    assert runner._recorder is not None
    status = Path(f"/proc/{runner._recorder.pid}/status")
    deadline = time.monotonic() + 10
    while "T (stopped)" not in status.read_text():
        assert time.monotonic() < deadline
    assert len(runner.cold(0, 2)) == 2
    runner.launch(arena, scale())  # goes on
    assert runner.prepare(job, scale()) == 1
    runner.close()  # does not wait for it
    assert not status.exists()


def test_within_a_call_a_kernel_may_start_early(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, expected = filled(gpu, mode("chained"))
    runner.launch(arena, mode("chained"))
    np.testing.assert_array_equal(arena.view("y"), expected)
    assert runner.recorded is not None
    assert runner.recorded["summary"] == "1 kernel, 1 memset"
    assert [node["kind"] for node in runner.recorded["nodes"]] == ["memset", "kernel"]
    assert runner.recorded["nodes"][1]["early"]
    assert not {"to", "from", "parameters"} & set().union(*runner.recorded["nodes"])


def test_a_librarys_call_is_recorded_where_it_is_played(gpu: FakeGpu) -> None:
    with gpu.runner_of(origin=Origin.LIBRARY) as library:
        arena, expected = filled(gpu, mode("early"))
        arena.poison(POISONS[0])
        library.launch(arena, mode("early"))
        np.testing.assert_array_equal(arena.view("y"), expected)
        assert library.prepare(Job.of(OPERATOR, mode("early"), [arena], poison=True), mode("early")) == 1
        assert len(library.cold(0, 3)) == 3
        library.launch(arena, mode("early"))  # its code can be called again
        refused, _ = filled(gpu, mode("escapes"))
        with pytest.raises(LaunchFailed, match="runs host code in its stream"):
            library.launch(refused, mode("escapes"))


def test_a_naive_kernel_needs_no_process_more(gpu: FakeGpu) -> None:
    with gpu.runner_of(origin=Origin.NAIVE) as naive:
        assert naive._recorder is None
        arena, expected = filled(gpu, mode("chained"))
        arena.poison(POISONS[0])
        naive.launch(arena, mode("chained"))
        np.testing.assert_array_equal(arena.view("y"), expected)
        assert naive.prepare(Job.of(OPERATOR, scale(), [arena], poison=True), scale()) == 1
        assert len(naive.cold(0, 2)) == 2


def test_preparing_a_library_leaves_the_outputs_alone(gpu: FakeGpu) -> None:
    """Or a version that does its work in that call, and nothing after it, would be right."""
    with gpu.runner_of(origin=Origin.LIBRARY) as library:
        arena, _ = filled(gpu, scale())
        arena.poison(POISONS[0])
        library._call("set_up", 30, job=Job.of(OPERATOR, scale(), [arena]).payload(), workspace_bytes=None, alone=False)
        library._call("prepare", 30, anew=False)
        assert np.isnan(arena.view("y")).all()


def test_who_declares_a_library_calls_it(gpu: FakeGpu) -> None:
    source = "// msbench: link cublas\n"
    built = (Candidate("scale", Precision.FP32, source, Origin.AGENT), gpu.candidate)
    with gpu.runner_of(built=built) as runner:
        arena, _ = filled(gpu, scale())
        with pytest.raises(LaunchFailed, match="declares a library and calls nothing of it") as failed:
            runner.launch(arena, scale())
        assert failed.value.kind == Fault.FORBIDDEN


def test_a_timed_call_of_a_librarys_own_code_ends_its_process(gpu: FakeGpu) -> None:
    """Nothing should call it; here a signal handler's place is taken by asking for the launcher while it is protected."""
    from msbench.gpu.worker import HostCode

    code = HostCode(os.path.realpath(np.__path__[0] + "/../no such file"))
    with code:
        pass
    assert code._spans == []


def test_a_batch_leaves_what_one_of_its_repetitions_wrote(gpu: FakeGpu, runner: GpuRunner) -> None:
    case = scale(spin_us=300.0)
    arenas = [filled(gpu, case, seed)[0] for seed in range(2)]
    drawn = [{"x": arena.view("x").copy()} for arena in arenas]
    runner.prepare(Job.of(OPERATOR, case, arenas, poison=True), case)
    for kept in (0, 1, 2, 5):
        for arena, inputs in zip(arenas, drawn, strict=True):
            arena.write_inputs(inputs)
            arena.poison(POISONS[0])
        samples = runner.cold(0, 6, drawn=9, kept=kept)
        assert len(samples) == 6 and min(samples) > 250_000
        number = kept % 2
        for repetitions, name in ((kept + 1, "y"), (6, "x")):
            moved = {"x": drawn[number]["x"].copy()}
            permute(moved, 9, 0, repetitions, 2, number)
            expected = moved["x"] if name == "x" else np.float32(3) * moved["x"]
            np.testing.assert_array_equal(arenas[number].view(name), expected)
        assert not any(arena.damaged_redzones() for arena in arenas)


def test_rows_of_calls_take_all_input_sets(gpu: FakeGpu, runner: GpuRunner) -> None:
    case = scale(spin_us=200.0)
    sets = [filled(gpu, case, seed) for seed in range(2)]
    runner.prepare(Job.of(OPERATOR, case, [arena for arena, _ in sets]), case)
    for arena, _ in sets:
        arena.poison(POISONS[0])
    samples = runner.hot(3, 4)
    assert len(samples) == 4 and min(samples) > 3 * 200_000 * 0.9
    for arena, expected in sets:
        np.testing.assert_array_equal(arena.view("y"), expected)


def test_empty_kernels_and_a_busy_device(runner: GpuRunner) -> None:
    assert len(runner.floor(20, 4)) == 20
    assert len(runner.hot(10, 3, launches=1)) == 3
    runner.busy(0.001)


def test_a_process_that_rests_works_again(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("keeps"))
    for _ in range(2):
        runner.launch(arena, mode("keeps"))
        assert arena.view("y")[0] == 0
        runner.rest()
        runner.rest()
    runner.close()
    runner.rest()


def test_a_workspace_is_redrawn_or_left_as_it_is_asked_to_be(gpu: FakeGpu, runner: GpuRunner) -> None:
    arena, _ = filled(gpu, mode("keeps"))
    for fresh, found in ((True, 0), (False, 1), (True, 0)):
        runner.launch(arena, mode("keeps"), fresh=fresh)
        assert arena.view("y")[0] == found
    runner.prepare(Job.of(OPERATOR, mode("keeps"), [arena], poison=True), mode("keeps"))
    runner.cold(0, 5)
    assert arena.view("y")[0] == 0


def test_versions_share_lent_memory_for_their_workspaces(gpu: FakeGpu) -> None:
    lent = gpu.shared / "lent"
    lent.write_bytes(bytes(1 << 16))
    block = Block(0, 1 << 16, str(lent).encode().ljust(64, b"\0").hex())
    with gpu.runner_of(label="a") as first, gpu.runner_of(label="b") as second:
        arena, _ = filled(gpu, mode("keeps"))
        for one in (first, second):
            one.prepare(Job.of(OPERATOR, mode("keeps"), [arena], poison=True, workspace=block), mode("keeps"))
            one.cold(0, 1)
            assert lent.read_bytes().startswith(b"\x01\x02")
            assert lent.read_bytes()[1000:] == GUARD * ((1 << 16) - 1000)  # nothing of who worked there before


def test_a_workspace_that_does_not_fit_what_is_lent_is_its_own(gpu: FakeGpu, runner: GpuRunner) -> None:
    lent = gpu.shared / "small"
    lent.write_bytes(bytes(1024))  # no room for the guard behind 1000 bytes
    block = Block(0, 1024, str(lent).encode().ljust(64, b"\0").hex())
    arena, _ = filled(gpu, mode("keeps"))
    runner.prepare(Job.of(OPERATOR, mode("keeps"), [arena], poison=True, workspace=block), mode("keeps"))
    runner.cold(0, 5)
    assert lent.read_bytes() == GUARD * 1024  # overwritten, and not written to


def test_what_is_left_around_a_workspace_is_found(gpu: FakeGpu, runner: GpuRunner) -> None:
    lent = gpu.shared / "left"
    lent.write_bytes(bytes(1 << 16))
    block = Block(0, 1 << 16, str(lent).encode().ljust(64, b"\0").hex())
    arena, _ = filled(gpu, mode("leaves"))
    runner.prepare(Job.of(OPERATOR, mode("leaves"), [arena], poison=True, workspace=block), mode("leaves"))
    with pytest.raises(LaunchFailed, match="wrote outside its workspace") as failed:
        runner.cold(0, 2)
    assert failed.value.kind == Fault.OUT_OF_BOUNDS


def test_which_elements_change_places_is_known_here(gpu: FakeGpu, runner: GpuRunner) -> None:
    """Of sets of two arrays that move and one of indices that stays."""
    op = replace(
        OPERATOR,
        arrays=(
            Array("x", ("n",)),
            Array("y", ("n",)),
            Array("index", ("n",), "i32"),
            Array("z", ("7",)),
            Array("out", ("n",), output=True),
        ),
    )
    layout = Layout.of(Task(op, Precision.FP32).at(scale()))
    rng = np.random.default_rng(0)
    drawn = [
        {
            "x": rng.random(1000, np.float32),
            "y": rng.random(1000, np.float32),
            "index": np.arange(1000, dtype=np.int32),
            "z": rng.random(7, np.float32),
        }
        for _ in range(2)
    ]
    arenas = [gpu.arena(layout) for _ in drawn]
    case = mode("one_set")
    for number, first, repetitions in ((2**64 - 1, 0, 16), (5, 1, 7), (0, 3, 1)):
        for arena, inputs in zip(arenas, drawn, strict=True):
            arena.write_inputs(inputs)
        runner.prepare(Job.of(op, case, list(reversed(arenas))), case)
        runner.prepare(Job.of(op, case, arenas), case)
        runner.cold(first, repetitions, drawn=number)
        for which, (arena, inputs) in enumerate(zip(arenas, drawn, strict=True)):
            moved = {name: array.copy() for name, array in inputs.items()}
            permute(moved, number, first, repetitions, 2, which)
            for name in ("x", "index", "z"):  # y is what the version takes for its output
                np.testing.assert_array_equal(arena.view(name), moved[name])
            assert (moved["x"] != inputs["x"]).any() == (repetitions > 1 or first % 2 == which)


def test_a_summary_names_what_there_is() -> None:
    kinds = [{"kind": kind} for kind in (record.KERNEL, record.KERNEL, record.COPY)]
    assert record.summary(kinds) == "2 kernels, 1 copy"
    assert record.summary([]) == ""


def test_copies_stay_inside_what_is_given() -> None:
    copy = {
        "kind": record.COPY,
        "odd": "",
        "early": 0,
        "to": 100,
        "from": 0,
        "width": 8,
        "height": 2,
        "to_pitch": 16,
        "from_pitch": 8,
    }
    assert record.refused([copy], [(0, 16)], [(100, 124)]) is None
    assert "copies to memory" in str(record.refused([copy], [(0, 16)], [(100, 123)]))
    assert "copies from memory" in str(record.refused([copy], [(0, 15)], [(100, 124)]))


def test_a_stopped_process_ends_at_once(runner: GpuRunner) -> None:
    assert runner._recorder is not None
    runner._recorder.stop()
    started = time.monotonic()
    runner._recorder.close()
    assert time.monotonic() - started < 0.9
    with pytest.raises(ProcessLookupError):
        os.kill(runner._recorder.pid, signal.SIG_DFL)
