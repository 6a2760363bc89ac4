"""The cuda executor without a GPU: NumPy as its CuPy, files as device memory, the fake runtime in its workers."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from msbench.errors import DeviceError, ExecutorError, ToolchainError
from msbench.executors import Options, _check_compilers, cuda
from msbench.executors.cuda import CudaExecutor
from msbench.gpu import devices as gpus
from msbench.gpu import health
from msbench.gpu import runner as gpu_runner
from msbench.gpu.profile import ncu as nsight
from msbench.gpu.profile.bottleneck import select_for_prompt
from msbench.gpu.shared_memory import Block, SharedMemory
from msbench.harness import evaluate as evaluating
from msbench.harness.batch import coordinator as batch
from msbench.harness.batch.coordinator import evaluate_all
from msbench.harness.batch.job import Job
from msbench.harness.check.case import VARIANTS
from msbench.harness.evaluate import evaluate
from msbench.harness.protocols import Checks, Executor, Plan
from msbench.model import BuildResult, Candidate, Ceilings, Failure, Fault, Profile, Status
from msbench.spec import Case, Operator, Precision, Task
from tests.gpu.fake_gpu import MODES, OPERATOR, FakeGpu, scale, tools
from tests.gpu.profile.test_bottleneck import CEILINGS
from tests.gpu.profile.test_ncu import CALLED_TWICE, LISTING, OUTPUT
from tests.harness.batch.divided import operator

GPU = gpus.Gpu(0, "GPU-fake", "Fake H200", (9, 0), 132, 141 << 30, 60 << 20)


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


class FileMemory:
    """What the executor uses of ``cupy.cuda.runtime``; device memory is files that worker processes map too."""

    CUDARuntimeError = CUDARuntimeError

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.maps: dict[int, tuple[Path, Any]] = {}

    def malloc(self, size: int) -> int:
        path = self._folder / f"m{uuid.uuid4().hex[:12]}"
        path.write_bytes(bytes(size))
        memory = np.memmap(path, dtype=np.uint8, mode="r+")
        self.maps[memory.ctypes.data] = (path, memory)
        return memory.ctypes.data

    def free(self, address: int) -> None:
        del self.maps[address]

    def ipcGetMemHandle(self, address: int) -> bytes:
        return str(self.maps[address][0]).encode().ljust(64, b"\0")

    def deviceSynchronize(self) -> None:
        pass

    def array(self, block: Block, nbytes: int) -> Any:
        return np.asarray(self.maps[block.address][1])[:nbytes]


class Kept:
    """A store that remembers ceilings."""

    def __init__(self) -> None:
        self.known: dict[str, Ceilings] = {}

    def ceilings(self, device_id: str) -> Ceilings | None:
        return self.known.get(device_id)

    def add_ceilings(self, device: Any, ceilings: Ceilings) -> None:
        self.known[device.id] = ceilings


def do_without_a_gpu(patch: pytest.MonkeyPatch, shared: Path, runtime: Path) -> None:
    """What the executor takes for CuPy, device memory and the CUDA runtime from here on."""
    memory = FileMemory(shared)
    fakes = {"LD_PRELOAD": str(runtime), "FAKE_KERNELS": str(runtime.with_name("fake_kernels.so"))}
    environment = gpu_runner.worker_environment("GPU-fake") | fakes
    patch.setattr(CudaExecutor, "xp", np)
    pool = SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None)
    for name, value in (
        ("cuda", SimpleNamespace(runtime=memory, Device=lambda index: SimpleNamespace(use=lambda: None))),
        ("asnumpy", np.asarray),
        ("get_default_memory_pool", lambda: pool),
    ):
        patch.setattr(np, name, value, raising=False)
    patch.setattr(SharedMemory, "array", lambda self, block: memory.array(block, block.nbytes))
    patch.setattr(gpu_runner, "worker_environment", lambda uuid: environment)
    patch.setattr(_check_compilers, "worker_environment", lambda uuid: environment)


@dataclasses.dataclass(frozen=True)
class FakeBeside:
    """``cuda.Beside`` in a referee that has no GPU either; ``told`` gets a file for each process that is started."""

    real: cuda.Beside
    shared: Path
    runtime: Path
    told: Path

    def __call__(self) -> CudaExecutor:
        _in_a_referee(self.shared, self.runtime, self.told)
        return self.real()


@cache
def _in_a_referee(shared: Path, runtime: Path, told: Path) -> None:
    patch = pytest.MonkeyPatch()
    do_without_a_gpu(patch, shared, runtime)

    class Process(gpu_runner.WorkerProcess):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            (told / f"{os.getpid()} {self.pid}").touch()

    patch.setattr(gpu_runner, "WorkerProcess", Process)


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def executor(fake: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CudaExecutor]:
    """The executor, whose builds are all the fake candidate."""
    do_without_a_gpu(monkeypatch, fake.shared, fake.runtime)
    monkeypatch.setenv("MSBENCH_CACHE", str(tmp_path))
    made = CudaExecutor(GPU, dataclasses.replace(tools(), ncu=None), Kept())
    made._store.add_ceilings(made.device(), CEILINGS)  # type: ignore[union-attr]
    monkeypatch.setattr(cuda.building, "native", lambda *_: fake.runner)

    def build(op: Operator, candidate: Candidate) -> BuildResult:
        return BuildResult("b", candidate.id, "nvcc", (), 1.0, False, binary=str(fake.candidate))

    monkeypatch.setattr(made, "build", build)
    with made:
        yield made


def candidate(label: str = "right") -> Candidate:
    return Candidate("scale", Precision.FP32, f"// {label}", label=label)


def run(executor: Executor, plan: Plan, count: int = 1) -> list[Any]:
    candidates = [candidate(f"right {n}") for n in range(count)]
    return evaluate(executor, Task(OPERATOR, Precision.FP32), candidates, plan, command="test")


def plan(**scalars: float) -> Plan:
    return Plan(cases=(scale(spin_us=100.0, **scalars),), checks=Checks.QUICK, time_budget_s=0.3, half_width=0.1)


def mode(name: str) -> dict[str, float]:
    return {"mode": float(MODES.index(name))}


def test_the_whole_way(executor: CudaExecutor) -> None:
    results = run(executor, dataclasses.replace(plan(), checks=Checks.FULL, profile=True), count=2)
    for result in results:
        assert result.status is Status.PASSED, result.failure
        assert result.measurements[0].hot_ns > 0
        assert result.profiles[0].source == "static"
        assert "not installed" in result.profiles[0].tool
        assert result.device.arch == "sm_90a"
        assert result.record["summary"] == "1 kernel"
    assert results[0].measurements[0].group == results[1].measurements[0].group
    assert {c.variant for r in results for c in r.checks} == set(VARIANTS)


@pytest.mark.parametrize(
    ("name", "fault", "status"),
    [
        ("returns", Fault.LAUNCH, Status.CHECK_FAILED),
        ("sticky", Fault.CRASH, Status.CHECK_FAILED),
        ("crashes", Fault.CRASH, Status.CHECK_FAILED),
        ("overruns", Fault.OUT_OF_BOUNDS, Status.CHECK_FAILED),
        ("synchronizes", Fault.FORBIDDEN, Status.CHECK_FAILED),
        ("tires", Fault.UNWRITTEN, Status.CHECK_FAILED),
    ],
)
def test_a_bad_kernel_is_one_failed_evaluation_and_the_next_one_works(
    executor: CudaExecutor, name: str, fault: Fault, status: Status
) -> None:
    (bad,) = run(executor, plan(**mode(name)))
    assert (bad.status, bad.failure.fault) == (status, fault)
    assert run(executor, plan())[0].status is Status.PASSED


def test_a_hanging_kernel_is_killed(executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_runner, "LAUNCH_LIMIT_S", 1.0)
    (bad,) = run(executor, plan(**mode("hangs")))
    assert (bad.status, bad.failure.fault) == (Status.CHECK_FAILED, Fault.TIMEOUT)
    assert run(executor, plan())[0].status is Status.PASSED


def test_a_sick_device_stops_everything(executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise CUDARuntimeError("cudaErrorDeviceUninitialized")

    monkeypatch.setattr(health, "computes", broken)
    with pytest.raises(DeviceError, match="does not work any more"):
        run(executor, plan(**mode("crashes")))


def test_a_device_that_no_new_process_can_use_stops_everything(
    executor: CudaExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The referee's own context may outlive that, so each failure that cost a process is followed by a new one."""
    lost = tmp_path / "lost"
    gpu_runner.worker_environment("GPU-fake")["FAKE_LOST"] = str(lost)
    examined = executor._require_health
    monkeypatch.setattr(executor, "_require_health", lambda process_lost: (lost.touch(), examined(process_lost)))
    with pytest.raises(DeviceError, match=r"Fake H200 does not work any more: .*cudaErrorFake.*see nvidia-smi"):
        run(executor, plan(**mode("crashes")))
    with pytest.raises(
        DeviceError, match=r"The GPU can't be used by a new process: .*cudaErrorFake"
    ):  # and before there is a kernel to blame
        run(executor, plan())


def test_a_version_that_fills_the_device_is_ended_and_named(
    executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what NVML says of the device while it hangs; nobody else is at fault."""
    free = [100 << 30]
    monkeypatch.setattr(executor._memory_watch, "memory", lambda: (free[0], 141 << 30))
    begin = executor._memory_watch.begin

    def launched() -> None:
        begin()
        if executor._runners:  # the process is there: the next call is the launch
            free[0] = 50 << 20

    monkeypatch.setattr(executor._memory_watch, "begin", launched)
    (bad,) = run(executor, plan(**mode("hangs")))
    assert (bad.status, bad.failure.fault) == (Status.CHECK_FAILED, Fault.OUT_OF_MEMORY)
    assert "took 100 GiB of the GPU's memory, of which 0.049 GiB were left, and was killed" in bad.failure.message


def test_memory_is_used_again_from_case_to_case(executor: CudaExecutor) -> None:
    run(executor, plan())
    maps = executor.xp.cuda.runtime.maps
    blocks = set(maps)
    run(executor, plan())
    assert set(maps) == blocks
    executor.close()
    assert not maps


def test_counters_come_from_a_process_of_their_own(
    executor: CudaExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu = tmp_path / "fake_ncu"
    ncu.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        "if '--version' in sys.argv: print('Version 1'); sys.exit()\n"
        f"if '--query-metrics' in sys.argv: print({LISTING!r}); sys.exit()\n"
        f"argv = sys.argv[sys.argv.index({sys.executable!r}):]\n"
        f"open({str(tmp_path / 'job')!r}, 'w').write(open(argv[-1]).read())\n"
        f"code = subprocess.run(argv).returncode\njobs = len(__import__('json').load(open(argv[-1]))['jobs'])\nprint({CALLED_TWICE!r} if jobs == 2 else {OUTPUT!r})\nsys.exit(code)\n"
    )
    ncu.chmod(0o755)
    executor.toolchain = dataclasses.replace(executor.toolchain, ncu=ncu)
    case = scale()
    built = executor.build(OPERATOR, candidate())

    def profiles(*cases: Case) -> list[Profile]:
        pairs = [(case, None) for case in cases]
        return executor.profile(Task(OPERATOR, Precision.FP32), pairs, built, candidate())

    (profile,) = profiles(case)
    assert profile.source == "ncu", profile.tool
    assert [k["time_ns"] for k in profile.kernels] == [40_000, 10_000]
    assert "profiled_kernels" not in profile.metrics
    (job,) = json.loads((tmp_path / "job").read_text())["jobs"]
    assert job["dims"] == [1000]
    with monkeypatch.context() as few:
        few.setattr(nsight, "MOST_KERNELS", 2)
        (limited,) = profiles(case)
    assert "kernels that were profiled, the first of the call: 2" in select_for_prompt(limited)
    both = profiles(case, scale(spin_us=1.0))
    assert [len(one.kernels) for one in both] == [2, 1]
    fine, crashing = profiles(case, scale(**mode("returns")))
    assert (fine.source, crashing.source) == ("ncu", "static")
    assert "the launcher returned cudaErrorFake" in crashing.tool
    (forking,) = profiles(scale(**mode("forks")))
    assert forking.source == "ncu"  # it could not, and went on


def test_accesses_are_watched_in_a_process_of_their_own(executor: CudaExecutor, tmp_path: Path) -> None:
    sanitizer, says = tmp_path / "fake_sanitizer", tmp_path / "says"
    sanitizer.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        f"argv = sys.argv[sys.argv.index({sys.executable!r}):]\n"
        f"open({str(tmp_path / 'job')!r}, 'w').write(open(argv[-1]).read())\n"
        f"code = subprocess.run(argv).returncode\nprint(open({str(says)!r}).read())\nsys.exit(code)\n"
    )
    sanitizer.chmod(0o755)
    executor.toolchain = dataclasses.replace(executor.toolchain, sanitizer=sanitizer)
    built = executor.build(OPERATOR, candidate())

    says.write_text("========= ERROR SUMMARY: 0 errors")
    results = executor.sanitize(Task(OPERATOR, Precision.FP32), [scale(), scale(spin_us=1.0)], built, 0)
    assert [result.passed for result in results] == [True] * 4
    jobs = json.loads((tmp_path / "job").read_text())["jobs"]
    assert all(job["bytes"] == [4000, 4000] for job in jobs)
    aligned, misaligned = (job["sets"][0]["offsets"] for job in jobs[:2])
    assert all(offset % 16 == 0 for offset in aligned) and any(offset % 16 for offset in misaligned)

    says.write_text("========= Invalid __global__ read of size 4 bytes\n=========     at scale")
    good, bad = executor.sanitize(Task(OPERATOR, Precision.FP32), [scale()], built, 0)
    assert good.passed and bad.failure is not None and bad.failure.fault is Fault.OUT_OF_BOUNDS
    assert bad.failure.message == (
        f"Case {scale().id} (sanitized, misaligned): compute-sanitizer: Invalid __global__ read of size 4 bytes, at scale."
    )

    says.write_text("")
    with pytest.raises(ExecutorError, match="no verdict on memory accesses: compute-sanitizer ended with code 3"):
        executor.sanitize(Task(OPERATOR, Precision.FP32), [scale(**mode("returns"))], built, 0)


def count_processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the processes that are started from now on."""
    opened: list[int] = []
    start = gpu_runner.WorkerProcess

    def counted(*arguments: Any, **settings: Any) -> Any:
        process = start(*arguments, **settings)
        opened.append(process.pid)
        return process

    monkeypatch.setattr(gpu_runner, "WorkerProcess", counted)
    return opened


def test_processes_start_while_their_kernels_are_built(executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = count_processes(monkeypatch)
    build, late = executor.build, time.monotonic() + 30

    def slow(op: Operator, one: Candidate) -> BuildResult:
        while len(opened) < 4:
            assert time.monotonic() < late
            time.sleep(0.01)
        failed = Failure(Fault.COMPILE, "line 1: no kernel") if one.label == "bad" else None
        return dataclasses.replace(build(op, one), failure=failed)

    monkeypatch.setattr(executor, "build", slow)
    wanted = dataclasses.replace(plan(), sittings=1)
    good, bad = evaluate(
        executor, Task(OPERATOR, Precision.FP32), [candidate(), candidate("bad")], wanted, command="test"
    )
    assert (good.status, bad.status) == (Status.PASSED, Status.BUILD_FAILED)
    assert len(opened) == 4  # a worker and a recorder each
    assert not any(Path(f"/proc/{pid}").exists() for pid in opened)


def test_tasks_side_by_side_are_checked_and_measured_in_the_same_processes(
    executor: CudaExecutor, fake: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    told.mkdir()
    real = executor.beside()
    monkeypatch.setattr(executor, "beside", lambda _: FakeBeside(real, fake.shared, fake.runtime, told))
    monkeypatch.setattr(batch, "CORES", 2)
    once = dataclasses.replace(plan(), sittings=1)
    op = operator(tmp_path / "ops", "scale", "tests.gpu.fake_gpu")
    jobs = [Job(Task(op, Precision.FP32), (candidate(f"{n} a"), candidate(f"{n} b")), once) for n in range(3)]
    found = list(evaluate_all(executor, jobs, command="test", progress=evaluating._Silence(), batch=2))
    assert len(found) == len(jobs)
    for _, results in found:
        assert isinstance(results, list)
        assert [(one.status, len(one.measurements)) for one in results] == [(Status.PASSED, 1)] * 2
    referees, opened = zip(*(path.name.split() for path in told.iterdir()), strict=True)
    assert (len(set(referees)), len(opened)) == (2, 12)  # a worker and a recorder each
    assert not any(Path(f"/proc/{pid}").exists() for pid in {*referees, *opened})


def test_beside_it_others_know_what_it_knows_and_see_no_other_gpu(
    executor: CudaExecutor, fake: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    beside = executor.beside()
    made = pickle.loads(pickle.dumps(dataclasses.replace(beside, gpu=dataclasses.replace(beside.gpu, index=3))))()
    assert (os.environ["CUDA_VISIBLE_DEVICES"], made.gpu) == (executor.gpu.uuid, executor.gpu)
    assert made.device() == executor.device()
    assert made.ceilings() == CEILINGS
    assert made._runner_binary == fake.runner
    assert made._nvml._coordinator == os.getpid()  # whose family all are


def test_it_compiles_nothing_for_an_operator_without_a_file_and_may_be_used_after_its_end(
    executor: CudaExecutor,
) -> None:
    for _ in range(2):
        executor.compile_checks(OPERATOR).result(10)
        executor.checks_compiled()
        executor.close()


def test_ceilings_come_from_the_store(executor: CudaExecutor) -> None:
    assert executor.ceilings() == CEILINGS


def test_creating_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "gpus", lambda: ())
    with pytest.raises(DeviceError, match="no NVIDIA GPU"):
        cuda.create(Options())
    monkeypatch.setattr(gpus, "gpus", lambda: (GPU,))

    def missing() -> None:
        raise ToolchainError("There is no CUDA compiler")

    monkeypatch.setattr(cuda.toolchain, "find", missing)
    with pytest.raises(ToolchainError):
        cuda.create(Options(device="0"))


def test_what_cupy_compiles_is_kept_with_the_builds_unless_its_user_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime = SimpleNamespace(CUDARuntimeError=CUDARuntimeError, deviceSynchronize=lambda: None)
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(Device=lambda index: SimpleNamespace(use=lambda: None), runtime=runtime)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda, "gpu_lock", lambda *_, **__: nullcontext())
    monkeypatch.setenv("MSBENCH_CACHE", str(tmp_path))
    for before, after in ((None, str(tmp_path / "cupy")), ("/elsewhere", "/elsewhere")):
        monkeypatch.setenv("CUPY_CACHE_DIR", before or "")
        if before is None:
            monkeypatch.delenv("CUPY_CACHE_DIR")
        assert CudaExecutor(GPU, tools()).xp is cupy
        assert os.environ["CUPY_CACHE_DIR"] == after


def test_asked_to_sanitize_without_compute_sanitizer_it_says_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.toolchain, "find", lambda: replace(tools(), sanitizer=None))
    with pytest.raises(ExecutorError, match="--executor cpu --sanitize"):
        cuda.create(Options(sanitize=True))
