"""Plausible evaluations, runs and databases for tests, made up: no figure in here was measured.

``story(store)`` fills a store with a small optimization of each task of two operators; the rest makes its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from msbench.model import (
    BuildResult,
    Candidate,
    Ceilings,
    CheckResult,
    Device,
    Evaluation,
    Failure,
    Fault,
    Measurement,
    Origin,
    Profile,
    Status,
    Study,
    Trial,
    digest,
)
from msbench.spec import Array, Case, Dim, Operator, Precision, Scalar, Split
from msbench.store.store import Store
from msbench.store.tables import RunRow, StepRow

FP32, BF16 = Precision.FP32, Precision.BF16

GPU = Device(
    kind="cuda",
    name="NVIDIA Test GPU",
    uuid="GPU-00000000-0000-0000-0000-000000000001",
    arch="sm_90a",
    multiprocessors=132,
    memory_bytes=150_000_000_000,
    l2_bytes=62_914_560,
    driver="580.0",
    runtime="13.0",
    host="tester",
)
CPU = Device(kind="cpu", name="Test CPU", uuid="cpu-1", host="tester")
CEILINGS = Ceilings(
    copy_bytes_per_s=4.0e12,
    read_bytes_per_s=4.2e12,
    write_bytes_per_s=4.4e12,
    fp32_flops=5.0e13,
    tf32_flops=4.0e14,
    bf16_flops=8.0e14,
    fp64_flops=6.0e13,
    launch_ns=2000.0,
    graph_node_ns=900.0,
    l2_copy_bytes_per_s=6.0e12,
    measured_at="2026-11-01T08:00:00+00:00",
    sm_clock_mhz=1980.0,
)
START = datetime.fromisoformat("2026-11-01T09:00:00+00:00")


def instant(minutes: float) -> str:
    """So many minutes after START."""
    return (START + timedelta(minutes=minutes)).isoformat()


def operator(name: str = "scale", sizes: Sequence[int] = (1 << 16, 1 << 20, 1 << 24), odd: int = 1_000_003) -> Operator:
    """y = factor x + 1: one input, one output, one scalar, one dimension."""
    cases = [Case((("N", n),), Split.PAPER if n < 1 << 22 else Split.LARGE) for n in sizes]
    return Operator(
        name=name,
        title=name.replace("_", " ").capitalize(),
        scenario="dense",
        definition="y_i = a x_i + 1",
        dims=(Dim("N", 1, 1 << 28, "elements"),),
        arrays=(Array("x", ("N",)), Array("y", ("N",), output=True)),
        cases=(*cases, Case((("N", odd),), Split.ODD)),
        reference=lambda xp, x, factor, N: factor * x + 1,
        bound=lambda xp, u, out, x, factor, N: 4 * u * (abs(factor * x) + 1),
        nbytes=lambda itemsize, N: 2 * itemsize * N,
        flops=lambda N: 2 * N,
        scalars=(Scalar("factor", "float", 2.0),),
        bound_note="two roundings",
        library_note="a vendor's scale",
    )


def candidate(
    op: Operator,
    label: str,
    origin: Origin = Origin.AGENT,
    precision: Precision = FP32,
    parents: Sequence[str] = (),
    body: str = "",
) -> Candidate:
    """A version whose source is right CUDA for ``operator()`` and differs by ``label`` and ``body``."""
    source = f"""// {label}: one thread an element. {body}
__global__ void kernel(const scalar_t* x, scalar_t* y, float factor, int64_t n) {{
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scalar_t(factor * float(x[i]) + 1.0f);
}}

extern "C" cudaError_t {op.name}(const scalar_t* x, scalar_t* y, float factor, int64_t n, void*, size_t,
                                 cudaStream_t stream) {{
    kernel<<<unsigned((n + 255) / 256), 256, 0, stream>>>(x, y, factor, n);
    return cudaGetLastError();
}}
"""
    return Candidate(op.name, precision, source, origin, label, tuple(parents))


def build(of: Candidate, failure: Failure | None = None) -> BuildResult:
    """A build by nvcc."""
    kernels = ({"name": "kernel", "registers": 24, "shared_bytes": 0, "spill_bytes": 0},)
    return BuildResult(
        id=digest("build", of.id),
        candidate_id=of.id,
        toolchain="nvcc 13.0",
        flags=("-O3", "-gencode", "arch=compute_90a,code=sm_90a"),
        seconds=2.5,
        cached=False,
        log=failure.log if failure else "",
        kernels=() if failure else kernels,
        sass=None if failure else {"FFMA": 4, "LDG": 1, "STG": 1},
        failure=failure,
    )


def checks(cases: Sequence[Case], seed: int = 0) -> tuple[CheckResult, ...]:
    """Every case passes, in two variants."""
    return tuple(
        CheckResult(case, variant, seed, True, 0.25, 1e-7, bitwise_repeatable=True)
        for case in cases
        for variant in ("aligned", "misaligned")
    )


def measurement(
    op: Operator, precision: Precision, case: Case, group: str, efficiency: float, drift: np.ndarray
) -> Measurement:
    """Times of a kernel that reaches ``efficiency`` of the copy bandwidth; ``drift`` has a row a round."""
    ideal = op.nbytes(precision.itemsize, **dict(case.dims)) / CEILINGS.copy_bytes_per_s * 1e9
    time_ns = max(ideal / efficiency, CEILINGS.launch_ns / min(1.0, 1.5 * efficiency))
    return Measurement(
        case=case,
        group=group,
        seed=1,
        samples_ns=tuple(tuple(float(round(sample)) for sample in one) for one in time_ns * drift),
        hot_ns=time_ns * 0.8,
        host_ns=3100.0,
        floor_ns=900.0,
        noisy=False,
        sm_clock_mhz=1980.0,
        temperature_c=41.0,
        power_w=310.0,
    )


def profile(case: Case, efficiency: float) -> Profile:
    """Counters of a kernel that is held up by memory."""
    share = 100.0 * efficiency
    return Profile(
        case=case,
        source="ncu",
        metrics={
            "dram__throughput.avg.pct_of_peak_sustained_elapsed": share,
            "sm__warps_active.avg.pct_of_peak_sustained_active": 71.0,
        },
        bottleneck="memory" if efficiency > 0.6 else "latency",
        evidence=(("dram__throughput.avg.pct_of_peak_sustained_elapsed", share, 60.0),),
        tool="Nsight Compute 2025.3.1.0",
        kernels=({"name": "kernel", "grid": [4096, 1, 1], "block": [256, 1, 1], "time_ns": 9000.0},),
    )


def measured(
    op: Operator,
    versions: Mapping[Candidate, float],
    *,
    at: float = 0.0,
    cases: Sequence[Case] | None = None,
    device: Device = GPU,
    rounds: int = 20,
    seed: int = 0,
) -> list[Evaluation]:
    """A passed evaluation of each version, all measured interleaved; ``versions`` has each one's efficiency (0..1)."""
    rng = np.random.default_rng(seed)
    cases = op.cases if cases is None else cases
    group = {case: digest("group", case.id, str(at), str(seed)) for case in cases}
    drift = {case: 1 + 0.02 * rng.random((rounds, 1)) for case in cases}
    evaluations = []
    for version, efficiency in versions.items():
        results = tuple(
            measurement(
                op, version.precision, case, group[case], efficiency, drift[case] * (1 + 0.01 * rng.random((rounds, 5)))
            )
            for case in cases
        )
        evaluations.append(
            Evaluation(
                candidate=version,
                device=device,
                executor="cuda",
                status=Status.PASSED,
                started_at=instant(at),
                seconds=12.5,
                command=f"msbench bench {op.name} --precision {version.precision}",
                seed=seed,
                build=build(version),
                checks=checks(cases, seed),
                measurements=results,
                profiles=(profile(cases[-1], efficiency),),
                harness="h1",
            )
        )
    return evaluations


def slowed(evaluation: Evaluation, case: Case, times: float) -> Evaluation:
    """The evaluation with so many times the time on a case."""
    return replace(
        evaluation,
        measurements=tuple(
            replace(one, samples_ns=tuple(tuple(sample * times for sample in each) for each in one.samples_ns))
            if one.case == case
            else one
            for one in evaluation.measurements
        ),
    )


def failed(
    op: Operator, version: Candidate, status: Status = Status.CHECK_FAILED, *, at: float = 0.0, case: Case | None = None
) -> Evaluation:
    """An evaluation that ended at ``status``, with a fitting failure; a wrong result is in ``case`` (or the first)."""
    case = case or op.cases[0]
    mismatch = Failure(Fault.MISMATCH, f"{case.id}: y[17] is 0.5, expected 1.5 ± 1e-6.")
    compiler = Failure(
        Fault.COMPILE, "Line 3: identifier 'blockIdy' is undefined.", "kernel.cu(3): error: identifier …"
    )
    failure = {
        Status.BUILD_FAILED: compiler,
        Status.CHECK_FAILED: mismatch,
        Status.MEASURE_FAILED: Failure(Fault.TIMEOUT, f"{case.id}: no answer within 20 s."),
        Status.UNSUPPORTED: Failure(Fault.UNSUPPORTED, "The kernel has inline PTX, which the cpu executor can't run."),
    }[status]
    passed = Evaluation(
        candidate=version,
        device=GPU,
        executor="cuda",
        status=status,
        started_at=instant(at),
        seconds=3.0,
        command=f"msbench eval kernel.cu --op {op.name} --precision {version.precision}",
        seed=0,
        build=build(version, compiler if status is Status.BUILD_FAILED else None),
        failure=failure,
        harness="h1",
    )
    if status is Status.CHECK_FAILED:
        wrong = CheckResult(case, "aligned", 0, False, 4.0e5, 1.0, failure=mismatch)
        return replace(passed, checks=(wrong, *checks([one for one in op.cases if one != case])))
    if status is Status.MEASURE_FAILED:
        nothing = Measurement(case, digest("group", str(at)), 0, (), None, None, None, False, failure=failure)
        return replace(passed, checks=checks(op.cases), measurements=(nothing,))
    return passed


def trial(subject: str = "cached_by_pointer", at: float = 0, **changes: Any) -> Trial:
    """An exploit that was refused on the GPU."""
    held = Trial(
        study=Study.EXPLOITS,
        subject=subject,
        expected="mismatch",
        outcome="mismatch: y[0] is 0.5, expected 0.25",
        held=True,
        details={"trick": "remembers its result by the address of x", "seconds": 1.5},
        device_id=GPU.id,
        harness="h1",
        command="msbench exploits",
        created_at=instant(at),
    )
    return replace(held, **changes)


def run_row(op: Operator, precision: Precision = FP32, run_id: str = "", **changes: Any) -> RunRow:
    """A run that has just begun."""
    fields: dict[str, Any] = {
        "id": run_id or digest("run", op.name, precision),
        "task_id": f"{op.name}/{precision}",
        "strategy": "cudamaster",
        "provider": "replay",
        "model": "answered by hand",
        "executor": "cuda",
        "device_id": GPU.id,
        "seed": 0,
        "budget": {"rounds": 3},
        "spend": {"calls": 0},
        "settings": {},
        "status": "running",
        "note": "",
        "command": f"msbench optimize {op.name} --precision {precision}",
        "started_at": instant(10),
    }
    return RunRow(**{**fields, **changes})


def step_row(run: RunRow, number: int, outcome: str, **changes: Any) -> StepRow:
    """A finished step."""
    fields: dict[str, Any] = {
        "run_id": run.id,
        "number": number,
        "action": "optimize",
        "plan": "Load four elements at once.",
        "hypothesis": "Fewer, wider loads bring it closer to the bandwidth.",
        "outcome": outcome,
        "lesson": "Wide loads pay.",
        "started_at": instant(10 + number),
        "finished_at": instant(10.5 + number),
    }
    return StepRow(**{**fields, **changes})


def story(
    store: Store, operators: Sequence[Operator] | None = None, precisions: Sequence[Precision] = (FP32, BF16)
) -> None:
    """Bench naive, a library and "best" of each task, then run four steps: baseline, slower, failed, improved."""
    store.add_ceilings(GPU, CEILINGS)
    for op in operators or (operator("scale"), operator("shift")):
        for precision in precisions:
            _one_task(store, op, precision)


def prove(store: Store) -> None:
    """Check what the story's runs found on hidden cases of a seed that no step was checked by."""
    for op in (operator("scale"), operator("shift")):
        for precision in (FP32, BF16):
            naive = candidate(op, "naive", Origin.NAIVE, precision)
            found = candidate(op, "round 3", Origin.AGENT, precision, [naive.id], "Loads four at once.")
            for evaluation in measured(op, {found: 0.9}, at=20, seed=9):
                store.add_evaluation(op, evaluation)


def _one_task(store: Store, op: Operator, precision: Precision) -> None:
    naive = candidate(op, "naive", Origin.NAIVE, precision)
    library = candidate(op, "vendor", Origin.LIBRARY, precision)
    best = candidate(op, "best", Origin.EXPERT, precision)
    for evaluation in measured(op, {naive: 0.3, library: 0.75, best: 0.92}):
        store.add_evaluation(op, evaluation)

    slow = candidate(op, "round 1", Origin.AGENT, precision, [naive.id], "Loads through shared memory.")
    wrong = candidate(op, "round 2", Origin.AGENT, precision, [naive.id], "Skips the tail.")
    good = candidate(op, "round 3", Origin.AGENT, precision, [naive.id], "Loads four at once.")
    run = run_row(op, precision)
    store.start_run(run)
    store.add_step(step_row(run, 0, "baseline", version_id=naive.id, speedup=1.0, plan="", hypothesis="", lesson=""))
    outcomes = (
        (slow, measured(op, {naive: 0.3, slow: 0.25, library: 0.75}, at=11, seed=1), "slower", 0.83),
        (wrong, [failed(op, wrong, at=12)], "failed", None),
        (good, measured(op, {naive: 0.3, good: 0.9, library: 0.75}, at=13, seed=2), "improved", 2.9),
    )
    for number, (version, evaluations, outcome, speedup) in enumerate(outcomes, start=1):
        prompt = [("system", "You write fast CUDA kernels."), ("user", f"Make {op.name} faster (round {number}).")]
        store.add_call(
            run_id=run.id,
            step_number=number,
            number=number,
            agent="coder",
            messages=prompt,
            reply=f"```cuda\n{version.source}```",
            model="answered by hand",
            seconds=20.0,
            prompt_tokens=900,
            completion_tokens=400,
            cost_usd=0.01,
            created_at=instant(10 + number),
        )
        ids = {one.candidate.id: store.add_evaluation(op, one) for one in evaluations}
        held = {"improved": True, "slower": False}.get(outcome)
        step = step_row(
            run, number, outcome, parent_version_id=naive.id, version_id=version.id, evaluation_id=ids[version.id]
        )
        store.add_step(
            StepRow(**{**step.model_dump(exclude={"id"}), "speedup": speedup, "predicted_speedup": 2.0, "held": held})
        )
    store.update_run(
        run.id,
        status="finished",
        finished_at=instant(15),
        best_version_id=good.id,
        spend={"calls": 3, "cost_usd": 0.03},
    )
