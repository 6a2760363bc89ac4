"""Versions in a worker by itself under one of NVIDIA's tools: Nsight Compute counts, compute-sanitizer watches accesses."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench import resources
from msbench.errors import ExecutorError, ToolchainError
from msbench.gpu import memcheck
from msbench.gpu import runner as gpu_runner
from msbench.gpu.devices import Gpu
from msbench.gpu.job import Job
from msbench.gpu.profile import bottleneck, ncu
from msbench.harness import pool
from msbench.harness.arena import Arena, Layout
from msbench.harness.build.toolchain import Toolchain
from msbench.harness.check.case import POISONS
from msbench.harness.inputs import generate
from msbench.harness.sandbox.confine import Rules
from msbench.model import BuildResult, Ceilings, CheckResult, Failure, Fault, Measurement, Profile
from msbench.scratch import scratch
from msbench.spec import Case, Task
from msbench.statistics import median

_PROFILE_LIMIT_S = 240.0
_SANITIZE_LIMIT_S = 300.0


@dataclass(frozen=True)
class Alone:
    """One task on a GPU: makes its arrays with ``arena``, and waits with ``finish_own_work`` until they are filled."""

    task: Task
    gpu: Gpu
    tools: Toolchain
    runner: Path
    xp: Any
    arena: Callable[[Layout], Arena]
    finish_own_work: Callable[[], None]

    def profile(
        self, cases: Sequence[tuple[Case, Measurement | None]], build: BuildResult, ceilings: Ceilings
    ) -> list[Profile]:
        """Counters where Nsight Compute is there and permitted; else what the compiler and the times tell.

        All cases are profiled in one process; if that fails, each in one of its own, so that one that crashes costs the others
        nothing. Why there are no counters stands in ``Profile.tool``.
        """
        known = [bottleneck.static_metrics(build, self._achieved(*pair, ceilings)) for pair in cases]
        try:
            counted = self._counters([case for case, _ in cases], build)
        except ncu.NcuError as error:
            if len(cases) > 1:
                return [one for pair in cases for one in self.profile([pair], build, ceilings)]
            tool = f"no counters: {error}"
            return [
                Profile(case, "static", metrics, *bottleneck.classify(metrics), tool=tool)
                for (case, _), metrics in zip(cases, known, strict=True)
            ]
        found = []
        for (case, _), metrics, kernels in zip(cases, known, counted, strict=True):
            metrics = ncu.combine(kernels) | metrics
            if len(kernels) >= ncu.MOST_KERNELS:
                metrics["profiled_kernels"] = float(len(kernels))
            facts = tuple({"name": k.name, "time_ns": k.time_ns, **k.metrics} for k in kernels)
            tool = ncu.tool_name(self.tools.ncu)
            found.append(Profile(case, "ncu", metrics, *bottleneck.classify(metrics), tool=tool, kernels=facts))
        return found

    def sanitize(self, cases: Sequence[Case], build: BuildResult, seed: int) -> list[CheckResult]:
        """Under compute-sanitizer, on arrays of which each is an allocation of its own; ends with the first bad access.

        Raises:
            ToolchainError: there is no compute-sanitizer.
            ExecutorError: there is no verdict; the message says why.
        """
        if self.tools.sanitizer is None:
            raise ToolchainError("There is no compute-sanitizer beside nvcc, which belongs to a CUDA toolkit.")
        calls = [(case, misaligned) for case in cases for misaligned in (False, True)]
        with self._worker(calls, build, memcheck.SCRATCH, seed, apart=True) as worker:
            try:
                found = memcheck.first_bad_access(
                    self.tools.sanitizer, worker, gpu_runner.worker_environment(self.gpu.uuid), _SANITIZE_LIMIT_S
                )
            except memcheck.MemcheckError as error:
                raise ExecutorError(f"There is no verdict on memory accesses: {error}.") from error
        results = []
        for number, (case, misaligned) in enumerate(calls):
            failure = None
            if found and number == found.call:
                where = f"{case.id} (sanitized{', misaligned' if misaligned else ''})"
                failure = Failure(Fault.OUT_OF_BOUNDS, f"Case {where}: compute-sanitizer: {found.text}.")
            results.append(CheckResult(case, "sanitized", seed, failure is None, None, failure=failure))
            if failure:
                break
        return results

    def _achieved(self, case: Case, measurement: Measurement | None, ceilings: Ceilings) -> bottleneck.Achieved | None:
        samples = [s for samples in measurement.samples_ns for s in samples] if measurement else []
        if measurement is None or not samples:
            return None
        problem = self.task.at(case)
        compute = self.task.operator.compute_in(self.task.precision)
        return bottleneck.Achieved.of(
            median(samples), problem.nbytes, problem.flops, compute, ceilings, measurement.floor_ns
        )

    def _counters(self, cases: Sequence[Case], build: BuildResult) -> list[list[ncu.KernelProfile]]:
        if self.tools.ncu is None:
            raise ncu.NcuError("Nsight Compute (ncu) is not installed")
        with self._worker([(case, False) for case in cases], build, ncu.SCRATCH) as worker:
            return ncu.collect(
                self.tools.ncu,
                worker,
                gpu_runner.worker_environment(self.gpu.uuid),
                self.gpu.capability,
                resources.cache_dir(),
                _PROFILE_LIMIT_S * len(cases),
                len(cases),
            )

    @contextmanager
    def _worker(
        self,
        calls: Sequence[tuple[Case, bool]],
        build: BuildResult,
        folder: str,
        seed: int = 0,
        *,
        apart: bool = False,
    ) -> Iterator[list[str]]:
        """How a worker is started that makes these calls (a case, and whether its arrays are misaligned) on copies of their memory, and ends.

        ``apart``: each array is an allocation of its own.
        """
        with ExitStack() as memory, scratch(Path(tempfile.gettempdir()), folder) as work:
            jobs = []
            for case, misaligned in calls:
                problem = self.task.at(case)
                arena = memory.enter_context(self.arena(Layout.of(problem, misaligned=misaligned)))
                arena.write_inputs(generate(problem, seed, self.xp))
                arena.poison(POISONS[0])
                job = Job.of(self.task.operator, case, [arena])
                sizes = {"bytes": [*job.input_bytes, *job.output_bytes]} if apart else {}
                jobs.append(job.payload() | {"nbytes": arena.layout.nbytes} | sizes)
            self.finish_own_work()
            pool.shrink(self.xp, kept_bytes=0)
            version = {
                "runner": str(self.runner),
                "binary": build.binary,
                "rules": Rules.LIBRARY if gpu_runner.CONFINED_PROFILES else None,
                "announce": memcheck.CALL,
                "jobs": jobs,
            }
            (work / "version.json").write_text(json.dumps(version), encoding="utf-8")
            yield [sys.executable, "-P", "-m", "msbench.gpu.worker", "--profile", str(work / "version.json")]
