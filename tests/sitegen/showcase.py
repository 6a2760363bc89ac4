"""A database with everything that a site may have to show, made up: no figure in here was measured.

Beside ``factories.story``: a run with several rounds (improved, failed and repaired, slower, no kernel, duplicate) and its
replay, an operator whose cases differ in arithmetic intensity, one that was only checked on the CPU, one that nobody evaluated,
and names and sources that try to break out of their page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msbench.model import Candidate, Origin, Profile, Status
from msbench.spec import Case, Operator, Precision, Split, Task
from msbench.store.store import Store
from msbench.store.tables import RunRow
from tests import factories as make
from tests.sitegen.proven import NASTY, proven

HEAD = """// {idea}
__global__ void rows(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float factor, int64_t n) {{
"""
SCALAR = """    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scalar_t(factor * float(x[i]) + 1.0f);
}
"""
VECTOR = """    /* Four elements a thread: one 16-byte load
       and one 16-byte store. */
    int64_t i = 4 * (int64_t(blockIdx.x) * blockDim.x + threadIdx.x);
    if (i + 3 < n) {
        float4 v = *reinterpret_cast<const float4*>(x + i);
        v.x = factor * v.x + 1.0f;
        v.y = factor * v.y + 1.0f;
        v.z = factor * v.z + 1.0f;
        v.w = factor * v.w + 1.0f;
        *reinterpret_cast<float4*>(y + i) = v;
    } else {
        for (; i < n; ++i) y[i] = scalar_t(factor * float(x[i]) + 1.0f);  // the tail
    }
}
"""
STRIDED = VECTOR.replace("    if (i + 3 < n) {", "    for (; i + 3 < n; i += 4 * int64_t(gridDim.x) * blockDim.x) {")
LAUNCH = """
extern "C" cudaError_t {name}(const scalar_t* x, scalar_t* y, float factor, int64_t n,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {{
    const unsigned threads = {threads};
    const unsigned blocks = unsigned((n + {each} * threads - 1) / ({each} * threads));
    rows<<<blocks, threads, 0, stream>>>(x, y, factor, n);
    return cudaGetLastError();
}}
"""


TEMPLATE = {
    "name": f"void vendor::V_1300::detail::gemm::Kernel<{', '.join(['vendor::V_1300::detail::policy_of<float, unsigned>'] * 20)}>"
    "(T1 *, T2, vendor::V_1300::Layout<T3>)",
    "registers": 128,
    "shared_bytes": 49152,
    "spill_bytes": 0,
}
"""A kernel of a C++ library, whose name is wider than any screen."""


def written(
    op: Operator, label: str, idea: str, body: str, threads: int, each: int, parents: Sequence[str] = ()
) -> Candidate:
    """An agent's version of ``op``."""
    source = HEAD.format(idea=idea) + body + LAUNCH.format(name=op.name, threads=threads, each=each)
    return Candidate(op.name, Precision.FP32, source, Origin.AGENT, label, tuple(parents))


def fill(store: Store) -> None:
    """Put all of it into a store."""
    make.story(store, [make.operator("scale"), make.operator("shift")])
    long_run(store)
    dense(store)
    checked_only(store)
    unfriendly(store)
    store.add_task(Task(make.operator("untouched"), Precision.BF16))
    store.add_trials(proven())


def counters(case: Case, bandwidth: float, occupancy: float, issue: float, sectors: float, bottleneck: str) -> Profile:
    """A profile with the counters that a story turns on."""
    share = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
    return Profile(
        case=case,
        source="ncu",
        metrics={
            share: bandwidth,
            "sm__warps_active.avg.pct_of_peak_sustained_active": occupancy,
            "smsp__issue_active.avg.pct_of_peak_sustained_active": issue,
            "lts__t_sector_hit_rate.pct": 50.2,
            "smsp__inst_executed.sum": 4.0e7 / sectors,
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": sectors,
            "launch__registers_per_thread": 16 + 4 * sectors,
            "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 40 / sectors,
            "vendor__new_metric.sum": 12.0,
        },
        bottleneck=bottleneck,
        evidence=((share, bandwidth, 60.0),),
        tool="Nsight Compute 2025.3.1.0",
    )


def long_run(store: Store) -> None:
    """Six rounds on one task, answered by hand, and their replay."""
    op = replace(
        make.operator("rms_scale"), title="RMS scale", scenario="LLM", definition="y_i = w_i x_i / √(mean(x²) + ε) + b_i",
        bound_note="4u(|y| + |b|): two roundings, and √K growth of the sum's error", library_note="cuDNN normalization forward",
    )  # fmt: skip
    naive = make.candidate(op, "naive", Origin.NAIVE)
    library = make.candidate(op, "cudnn", Origin.LIBRARY)
    first = written(op, "vector loads", "Vector loads.", VECTOR, 256, 4, [naive.id])
    broken = written(op, "grid stride", "Grid stride.", STRIDED.replace("gridDim.x)", "gridDimx)"), 256, 4, [first.id])
    fixed = written(op, "grid stride, repaired", "Grid stride.", STRIDED, 256, 4, [broken.id, first.id])
    large = written(op, "large blocks", "Large blocks.", VECTOR, 1024, 4, [first.id])
    best = written(op, "small blocks", "Small blocks: more of them in flight.", STRIDED, 128, 4, [fixed.id])
    profiles = {
        naive.id: counters(op.cases[-1], 24.0, 83.0, 31.0, 4.0, "latency"),
        library.id: counters(op.cases[-1], 63.0, 70.0, 25.0, 16.0, "memory"),
        first.id: counters(op.cases[-1], 57.0, 74.0, 22.0, 16.0, "memory"),
        fixed.id: counters(op.cases[-1], 71.0, 78.0, 20.0, 16.0, "memory"),
        large.id: counters(op.cases[-1], 50.0, 60.0, 19.0, 16.0, "memory"),
        best.id: counters(op.cases[-1], 92.0, 88.0, 24.0, 16.0, "memory"),
    }
    evaluated: dict[str, str] = {}
    for one in make.measured(op, {naive: 0.21, library: 0.62}):
        evaluated[one.candidate.id] = store.add_evaluation(op, replace(one, profiles=(profiles[one.candidate.id],)))
    run = make.run_row(
        op, run_id="5f0c1f0e7d", provider="manual", model="answered by hand", note="Recorded for the demo.", seed=7
    )
    store.start_run(run)
    store.add_step(
        make.step_row(
            run,
            0,
            "baseline",
            action="baseline",
            version_id=naive.id,
            evaluation_id=evaluated[naive.id],
            speedup=1.0,
            plan="",
            hypothesis="",
            lesson="",
        )
    )
    rounds = (
        (first, naive, 0.55, "improved", 2.5, True),
        (broken, first, None, "failed", None, None),
        (fixed, broken, 0.70, "improved", 3.2, True),
        (large, first, 0.48, "slower", 2.2, False),
        (best, fixed, 0.91, "improved", 4.1, True),
    )
    for number, (version, parent, efficiency, outcome, speedup, held) in enumerate(rounds, start=1):
        if efficiency is None:
            failed = make.failed(op, version, Status.BUILD_FAILED, at=10 + number)
            evaluated[version.id] = store.add_evaluation(op, failed)
        else:
            beside = {
                one: known
                for one, known in ((first, 0.55), (fixed, 0.70))
                if one is (first if parent is broken else parent)
            }
            group = {naive: 0.21, library: 0.62, **beside, version: efficiency}
            for one in make.measured(op, group, at=10 + number, seed=number):
                profiled = replace(one, profiles=(profiles[one.candidate.id],))
                evaluated[one.candidate.id] = store.add_evaluation(op, profiled)
        conversation(store, run, number, version)
        step = make.step_row(
            run,
            number,
            outcome,
            parent_version_id=parent.id,
            version_id=version.id,
            evaluation_id=evaluated[version.id],
            speedup=speedup,
            held=held,
        )
        step.action = "debug" if parent is broken else "optimize"
        step.predicted_speedup = 2.0
        step.predicted_cases = {op.cases[0].id: 0.9, op.cases[-1].id: 8.0} if version is best else None
        store.add_step(step)
    conversation(store, run, 6, None)
    store.add_step(
        make.step_row(run, 6, "no_kernel", lesson="The reply had prose, but no kernel.", parent_version_id=best.id)
    )
    store.add_step(
        make.step_row(run, 7, "duplicate", version_id=best.id, parent_version_id=best.id, lesson="Already tried.")
    )
    store.update_run(
        run.id,
        status="finished",
        finished_at=make.instant(30),
        best_version_id=best.id,
        spend={"calls": 12, "cost_usd": 0.0, "tokens": 32880, "wall_seconds": 912.5},
    )
    replayed(store, op, run, naive, first)


def conversation(store: Store, run: RunRow, number: int, version: Candidate | None) -> None:
    """A planner's and a coder's call; the second goes on from the first."""
    facts = "You write CUDA kernels for an H200: 132 multiprocessors, 60 MiB L2.\n" + "Hardware facts. " * 60
    asked = [("system", facts), ("user", f"Round {number}: plan the next version.")]
    plan = '```json\n{"plan": "Load four elements at once.", "predicted_speedup": 2.0}\n```'
    code = (
        f"Here it is.\n\n```cuda\n{version.source}```\nIt handles the tail & every alignment <safely>."
        if version
        else "I would rather discuss it first."
    )
    for place, (agent, messages, reply) in enumerate(
        (("planner", asked, plan), ("coder", [*asked, ("assistant", plan), ("user", "Now write it.")], code))
    ):
        store.add_call(
            run_id=run.id, step_number=number, number=2 * number + place, agent=agent, messages=messages, reply=reply,
            model="answered by hand", seconds=75.0, prompt_tokens=2100, completion_tokens=640, created_at=make.instant(10 + number),
        )  # fmt: skip


def replayed(store: Store, op: Operator, original: RunRow, naive: Candidate, first: Candidate) -> None:
    """The same run on a machine without a GPU: figures from the recording."""
    run = make.run_row(
        op,
        run_id="0a77ab31c2",
        provider="replay",
        executor="recorded",
        replay_of=original.id,
        started_at=make.instant(90),
    )
    store.start_run(run)
    repeated: dict[str, str] = {}
    for version in (naive, first):
        found = store.recorded(version.id)
        assert found is not None
        identity, evaluation = found
        again = replace(
            evaluation,
            executor="recorded",
            recorded_from=identity,
            started_at=make.instant(91),
            profiles=(),
            measurements=(),
        )
        repeated[version.id] = store.add_evaluation(op, again)
    store.add_step(
        make.step_row(
            run, 0, "baseline", action="baseline", version_id=naive.id, evaluation_id=repeated[naive.id], speedup=1.0
        )
    )
    store.add_step(
        make.step_row(
            run,
            1,
            "improved",
            version_id=first.id,
            evaluation_id=repeated[first.id],
            parent_version_id=naive.id,
            speedup=2.5,
            predicted_speedup=2.0,
            held=True,
        )
    )
    store.update_run(run.id, status="finished", best_version_id=first.id)


def dense(store: Store) -> None:
    """A product: the cases' arithmetic intensities differ, so that its roofline is the classic one."""
    sizes = [(64, 512, 256), (256, 512, 1024), (1024, 2048, 2048), (8192, 8192, 8192)]
    op = replace(
        make.operator("tile_mul"), title="Tile multiplication", scenario="Algebra", definition="C = A B",
        cases=tuple(Case((("M", m), ("K", k), ("N", n)), Split.PAPER) for m, k, n in sizes),
        nbytes=lambda itemsize, M, K, N: itemsize * (M * K + K * N + M * N), flops=lambda M, K, N: 2 * M * N * K,
    )  # fmt: skip
    naive, library = make.candidate(op, "naive", Origin.NAIVE), make.candidate(op, "cublas", Origin.LIBRARY)
    for one in make.measured(op, {naive: 0.002, library: 0.05}):
        assert one.build is not None
        built = replace(one.build, kernels=(TEMPLATE, {**TEMPLATE, "registers": 168}))
        store.add_evaluation(op, replace(one, build=built) if one.candidate is library else one)


def checked_only(store: Store) -> None:
    """A task that was checked on the CPU alone, with one version that the CPU can't run."""
    op = replace(make.operator("cpu_only"), title="Checked on the CPU", scenario="Sparse")
    naive = make.candidate(op, "naive", Origin.NAIVE)
    passed = make.failed(op, naive, Status.UNSUPPORTED)
    store.add_evaluation(
        op,
        replace(
            passed, status=Status.PASSED, failure=None, device=make.CPU, executor="cpu", checks=make.checks(op.cases)
        ),
    )
    ptx = make.candidate(op, "inline ptx", parents=[naive.id])
    store.add_evaluation(op, replace(make.failed(op, ptx, Status.UNSUPPORTED), device=make.CPU, executor="cpu"))


def unfriendly(store: Store) -> None:
    """Texts with markup in every place that a page shows."""
    op = replace(
        make.operator("hostile"), title=f"Title {NASTY}", scenario=f"Other {NASTY}", definition=f"y < x {NASTY}",
        bound_note=NASTY, library_note=NASTY,
    )  # fmt: skip
    naive = make.candidate(op, "naive", Origin.NAIVE)
    sly = make.candidate(op, NASTY, parents=[naive.id], body=f"{NASTY} <img src=x onerror=alert(1)>")
    for one in make.measured(op, {naive: 0.3, sly: 0.5}):
        store.add_evaluation(op, replace(one, command=f"msbench {NASTY}"))
    run = make.run_row(op, run_id="../../escape", model=NASTY, note=NASTY, best_version_id=sly.id)
    store.start_run(run)
    store.add_call(
        run_id=run.id, step_number=1, number=1, agent=NASTY, messages=[("user", NASTY)], reply=f"```{NASTY}\n{NASTY}\n```", model=NASTY,
        seconds=1.0, created_at=make.instant(40),
    )  # fmt: skip
    store.add_step(
        make.step_row(
            run,
            1,
            "improved",
            version_id=sly.id,
            parent_version_id=naive.id,
            plan=NASTY,
            hypothesis=NASTY,
            lesson=NASTY,
            speedup=1.6,
        )
    )
