"""The measured process on a CUDA runtime that needs no GPU (native/fake_cudart.cpp), for tests of what talks to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from msbench.errors import ToolchainError
from msbench.gpu import runner as gpu_runner
from msbench.gpu.runner import GpuRunner
from msbench.harness.arena import Arena, Layout
from msbench.harness.build import compile as build
from msbench.harness.build import toolchain
from msbench.model import Candidate, Origin
from msbench.spec import Array, Case, Dim, Operator, Precision, Scalar, Split, Task

_NATIVE = Path(__file__).with_name("native")

MODES = (
    "right", "returns", "unreported", "sticky", "synchronizes", "escapes", "overruns", "crashes", "hangs",
    "huge_workspace", "forks", "connects", "writes", "local", "keeps", "early", "chained", "tires", "knows", "leaves",
    "idle", "table", "counter", "host_work", "elsewhere", "window", "foreign", "one_set", "unsupported", "refused", "two_limits",
)  # fmt: skip


def scale(**scalars: float) -> Case:
    """A case of OPERATOR in which the candidate behaves as ``mode`` says and takes ``spin_us`` a call."""
    return Case((("n", 1000),), Split.PAPER, scalars=tuple(scalars.items()))


def mode(name: str, **scalars: float) -> Case:
    """A case in which the candidate does what ``MODES`` calls so."""
    return scale(mode=float(MODES.index(name)), **scalars)


OPERATOR = Operator(
    name="scale",
    title="Scale",
    scenario="test",
    definition="y = a x",
    dims=(Dim("n", 1, 1 << 20),),
    arrays=(Array("x", ("n",)), Array("y", ("n",), output=True)),
    cases=(scale(),),
    scalars=(Scalar("a", "float", 3.0), Scalar("mode", "float", 0.0), Scalar("spin_us", "float", 0.0)),
    reference=lambda xp, x, a, **_: a * x,
    bound=lambda xp, u, out, **_: 2 * u * abs(out["y"]),
    nbytes=lambda itemsize, n: 2 * n * itemsize,
    flops=lambda n: n,
)


@cache
def tools() -> toolchain.Toolchain:
    """The compiler; skips the test where there is none."""
    try:
        return toolchain.find()
    except ToolchainError as error:
        pytest.skip(f"needs nvcc to compile native/runner.cu: {error}")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="msbench-fake-gpu-")


@cache
def _compiled(name: str) -> Path:
    target = Path(_folder().name, f"{name}.so")
    include = tools().include_dirs[0]
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", f"-I{include}"]
    subprocess.run(["g++", *options, "-o", target, _NATIVE / f"{name}.cpp", "-ldl"], check=True)
    return target


def compiled(name: str, folder: Path) -> Path:
    """One of native/*.cpp as a shared library in ``folder``; compiling the two takes two seconds, and eight modules have them."""
    return Path(shutil.copy(_compiled(name), folder))


class FakeGpu:
    """Files as device memory, and runners whose runtime is the fake one."""

    def __init__(self, folder: Path) -> None:
        # Where a version may open files for writing, as CUDA's driver does there.
        self.shared = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="cuda-fake-"))
        weakref.finalize(self, shutil.rmtree, self.shared)
        self.runner = build.native(gpu_runner.NATIVE, tools(), "sm_90a")
        self.runtime = compiled("fake_cudart", folder)
        self.candidate = compiled("fake_candidate", folder)
        kernels = folder / "fake_kernels.so"  # not the file whose host code a worker may not touch
        shutil.copy(self.candidate, kernels)
        self.environment = {"LD_PRELOAD": str(self.runtime), "FAKE_KERNELS": str(kernels)}
        (folder / "facts.json").write_text('{"variables": []}', encoding="utf-8")
        self.health_checks: list[bool] = []

    def arena(self, layout: Layout) -> Arena:
        """Memory that runners reach."""
        path = self.shared / uuid.uuid4().hex[:12]
        path.write_bytes(bytes(layout.nbytes))
        buffer = np.memmap(path, dtype=np.uint8, mode="r+")
        return Arena(layout, np.asarray(buffer), np, handle=str(path).encode().ljust(64, b"\0").hex())

    @contextmanager
    def runner_of(
        self,
        op: Operator = OPERATOR,
        label: str = "",
        origin: Origin = Origin.AGENT,
        built: tuple[Candidate, Path] | None = None,
        variables: Sequence[str] = (),
    ) -> Iterator[GpuRunner]:
        """The fake candidate, or one that was built, in a worker of its own; ``variables``: what it has on the device."""
        facts = self.candidate.with_name("facts.json")
        facts.write_text(json.dumps({"variables": variables}), encoding="utf-8")

        def healthy(process_lost: bool) -> None:
            self.health_checks.append(process_lost)

        environment = gpu_runner.worker_environment("GPU-fake") | self.environment
        with mock.patch.object(gpu_runner, "worker_environment", return_value=environment):
            candidate, binary = built or (
                Candidate(op.name, Precision.FP32, f"// {label}", origin, label=label),
                self.candidate,
            )
            runner = GpuRunner(op, candidate, self.runner, "GPU-fake", lambda: None, healthy)
        try:
            runner.load(binary)
            yield runner
        finally:
            runner.close()


def filled(gpu: FakeGpu, case: Case, seed: int = 0) -> tuple[Arena, Any]:
    """An arena with inputs, and what must come out."""
    arena = gpu.arena(Layout.of(Task(OPERATOR, Precision.FP32).at(case)))
    x = np.random.default_rng(seed).uniform(-1, 1, 1000).astype(np.float32)
    arena.write_inputs({"x": x})
    return arena, np.float32(3) * x
