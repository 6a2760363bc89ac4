"""Trials as a study records them, and an executor on which copies of a kernel differ by the luck of their processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from msbench.harness.evaluate import Plan
from msbench.model import BuildResult, Candidate, Device, Measurement, Study, Trial
from msbench.spec import Operator, Precision, Problem, Task
from msbench.study.subjects import Subject
from tests import factories as make
from tests.harness.fakes import OPERATOR, FakeExecutor, FakeRunner, right

SOURCE = """\
__global__ void kernel(const scalar_t* x, scalar_t* y, float a, int64_t N) {
    y[0] = x[0];
}

extern "C" cudaError_t gather_scale(const scalar_t* x, scalar_t* y, float a, int64_t N, cudaStream_t stream) {
    kernel<<<1, 1, 0, stream>>>(x, y, a, N);
    return cudaGetLastError();
}
"""


class _AnySource(dict[str, Any]):
    def __missing__(self, source: str) -> Any:
        return right


@dataclass
class StudyExecutor(FakeExecutor):
    """Every source is right and takes 10 µs, and what it waits; each process is off by ``luck``, each round by a little."""

    kernels: Any = field(default_factory=_AnySource)
    luck: float = 0.002
    clock_mhz: float | None = 2000.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    def device(self) -> Device:
        return make.GPU

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        return replace(super().build(op, candidate), kernels=({"registers": 40},))

    def measure(self, problem: Problem, runners: Sequence[FakeRunner], plan: Plan) -> list[Measurement]:
        found = []
        for runner in runners:
            words = runner.candidate.label.split()
            wait_ns = float(words[2]) / 2.0 if words[:1] == ["waits"] else 0.0
            time_ns = (1e4 + wait_ns) * (1 + self.luck * self.rng.standard_normal())
            rounds = tuple((float(time_ns * (1 + 1e-3 * self.rng.standard_normal())),) for _ in range(5))
            found.append(
                Measurement(problem.case, "group", plan.seed, rounds, 4e4, 5e3, 2e3, False, self.clock_mhz, throttle="")
            )
        return found


def subjects() -> list[Subject]:
    """Two cases of the fake operator."""
    naive = Candidate(OPERATOR.name, Precision.FP32, SOURCE, label="naive")
    return [Subject(Task(OPERATOR, Precision.FP32), case, naive) for case in OPERATOR.cases[:2]]


def trial(kind: Study, number: int = 1, shift: float = 0.0, duration_ns: float = 4e3, **changes: Any) -> Trial:
    """A pair whose median is off by ``shift``, with an interval of ± 0.5 % around it."""
    factor = 1.03 if kind is Study.SLOWDOWN else 1.0
    ratio = factor + shift
    low, high = ratio - 0.005, ratio + 0.005
    details = {
        "task": f"relu/fp32-{duration_ns:.0f}",
        "case": "N=1024",
        "median": ratio,
        "low": low,
        "high": high,
        "duration_ns": duration_ns,
        "factor": factor,
        "sittings": 4,
        "samples": 1920,
        "between": 0.003,
        "disturbed": "",
    }
    one = make.trial(
        f"relu/fp32-{duration_ns:.0f} N=1024 #{number}",
        study=kind,
        details=details,
        held=low > 1 if kind is Study.SLOWDOWN else low <= 1 <= high and abs(shift) <= 0.01,
        command="msbench study",
    )
    return replace(one, **changes)
