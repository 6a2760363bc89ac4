"""The cpu executor end to end: right kernels pass, and each way to fail becomes one sentence with the kernel's line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from msbench import emulator, operators
from msbench.errors import LaunchFailed, UnsupportedError, WorkerCrashed, WorkerError, WorkerTimeout
from msbench.executors import cpu, pick
from msbench.executors.cpu import CpuExecutor
from msbench.harness.arena import Layout
from msbench.harness.check.case import check_case
from msbench.harness.evaluate import evaluate
from msbench.harness.protocols import Checks, Plan
from msbench.model import BuildResult, Candidate, Fault, Origin, Status
from msbench.spec import Precision, Task
from tests import turns

OP = operators.load("vector_add")
CASE = next(c for c in OP.cases if c.dim("N") == 1024)
FP32 = Precision.FP32


@pytest.fixture(scope="module")
def plain() -> Iterator[CpuExecutor]:
    with CpuExecutor(emulator.find(), launch_limit_s=3.0) as executor:
        yield executor


@pytest.fixture(scope="module")
def hasty() -> Iterator[CpuExecutor]:
    """For kernels that never end."""
    with CpuExecutor(emulator.find(), launch_limit_s=1.0) as executor:
        yield executor


@pytest.fixture(scope="module")
def sanitized() -> Iterator[CpuExecutor]:
    with CpuExecutor(emulator.find(), sanitize=True, launch_limit_s=10.0) as executor:
        yield executor


@pytest.fixture(scope="module")
def patient() -> Iterator[tuple[CpuExecutor, CpuExecutor]]:
    """Plain and sanitized, for kernels that take seconds where every core is busy."""
    with (
        CpuExecutor(emulator.find(), launch_limit_s=60) as one,
        CpuExecutor(emulator.find(), sanitize=True, launch_limit_s=60) as other,
    ):
        yield one, other


def candidate(
    kernel: str, launch: str = "k<<<(N + 127) / 128, 128, 0, stream>>>(A, B, C, N);", more: str = ""
) -> Candidate:
    """A vector_add whose kernel's first line is line 2 of the file."""
    source = f"""// a kernel
{kernel}
extern "C" cudaError_t vector_add(const float* A, const float* B, float* C, int64_t N, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {{
    {launch}
    return cudaGetLastError();
}}
{more}"""
    return Candidate(OP.name, FP32, source, Origin.EXTERNAL)


def kernel(body: str, before: str = "") -> str:
    """``body`` begins on line 3."""
    return f"{before}__global__ void k(const float* A, const float* B, float* C, int64_t N) {{\n{body}\n}}"


GLOBAL_INDEX = "const int64_t i = blockIdx.x * 128 + threadIdx.x;"
RIGHT = kernel(f"{GLOBAL_INDEX} if (i < N) C[i] = A[i] + B[i];")


def launch(executor: CpuExecutor, made: Candidate, *, misaligned: bool = False, times: int = 1) -> None:
    """Build and call; raises what the executor raises."""
    build = executor.build(OP, made)
    assert build.failure is None, build.failure
    runner = executor.open(OP, build, made)
    try:
        with executor.arena(Layout.of(Task(OP, FP32).at(CASE), misaligned=misaligned)) as arena:
            arena.buffer[:] = 0
            for _ in range(times):
                runner.launch(arena, CASE)
    finally:
        runner.close()


def failure(executor: CpuExecutor, made: Candidate, **how: bool) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        launch(executor, made, times=3, **how)  # type: ignore[arg-type]
    return caught.value


# ------------------------------------------------------------------ what works


def test_right_kernel_passes_every_check(plain: CpuExecutor) -> None:
    made = candidate(RIGHT)
    build = plain.build(OP, made)
    runner = plain.open(OP, build, made)
    results = check_case(plain, runner, Task(OP, FP32).at(CASE), 0)
    assert [r.variant for r in results] == ["aligned", "misaligned", "repeat", "aba", "touched"]
    assert all(r.passed for r in results), results
    assert results[0].bitwise_repeatable


@pytest.mark.parametrize("name", operators.names())
@pytest.mark.parametrize("precision", list(Precision))
def test_the_operators_kernels(patient: tuple[CpuExecutor, CpuExecutor], name: str, precision: Precision) -> None:
    """Naive kernels and stated bars run here; of other versions, those that use nothing that only a GPU has, in one precision
    where one source serves both. Each is checked on two cases; those whose turn it is get all checks, and run under the
    sanitizer too, which takes several times as long: with the quick checks, or, where all parts are run and it is plain, with all.
    What is not plain has a block of 1024 threads as one thread there.
    """
    plain, sanitized = patient
    op = operators.load(name)
    full = Plan(cases=operators.select_cases(op, "smallest"), heldout=1, measure=False)
    hidden = operators.heldout(op, seed=0, count=1, max_elements=20_000)
    quick = replace(full, cases=(*full.cases, *hidden), checks=Checks.QUICK)
    sources = {(v.label, p): v.source for p in op.precisions for v in operators.versions(Task(op, p))}
    first = op.precisions[operators.names().index(name) % len(op.precisions)]
    for version in operators.versions(Task(op, precision)):
        is_plain = version.label in ("naive", "straightforward")
        elsewhere = precision is not first and version.source == sources.get((version.label, first))
        if version.link or (elsewhere and not is_plain):
            continue
        ways = [(plain, quick)]
        if turns.has_turn(f"{name}/{precision} {version.label}"):
            whole = is_plain and turns.part() is None
            ways = [(plain, full), (sanitized, full if whole else quick)]
        for executor, plan in ways:
            (found,) = evaluate(executor, Task(op, precision), [version], plan, command="test")
            needs_gpu = found.status is Status.UNSUPPORTED and not is_plain
            assert needs_gpu or found.status is Status.PASSED, f"{version.label}: {found.failure}"
            if needs_gpu:
                break


def test_workspace_is_what_the_kernel_asks_for(plain: CpuExecutor) -> None:
    size = 'extern "C" size_t vector_add_workspace(int64_t N) { return N * sizeof(float); }'
    through = "k<<<(N + 127) / 128, 128, 0, stream>>>(A, B, (float*)workspace, N); if (workspace_bytes != N * 4) return cudaErrorInvalidValue;"
    launch(plain, candidate(RIGHT, f"{through} k<<<(N + 127) / 128, 128, 0, stream>>>(A, B, C, N);", size), times=2)
    beyond = kernel(f"{GLOBAL_INDEX} if (i <= N) C[i] = A[0];")
    error = failure(
        plain, candidate(beyond, "k<<<(N + 128) / 128, 128, 0, stream>>>(A, B, (float*)workspace, N);", size)
    )
    assert error.kind == Fault.OUT_OF_BOUNDS
    assert "after its 4096 bytes" in str(error)


def test_it_is_a_processor_without_times(plain: CpuExecutor) -> None:
    device = plain.device()
    assert device.kind == "cpu"
    assert device.name
    assert device.runtime.startswith("g++ ")
    assert device == plain.device()
    assert plain.ceilings() is None
    assert not plain.measures
    with pytest.raises(UnsupportedError, match="measures nothing"):
        plain.measure(Task(OP, FP32).at(CASE), [], Plan(cases=(CASE,)))
    with pytest.raises(UnsupportedError, match="profiles nothing"):
        plain.profile(Task(OP, FP32), [(CASE, None)], plain.build(OP, candidate(RIGHT)), candidate(RIGHT))


def test_pick_makes_it() -> None:
    with pick("cpu", sanitize=True, store=None, device=None) as executor:
        assert executor.name == "cpu"
        assert executor.check_limit == cpu.SANITIZED_CHECK_LIMIT


def test_arena_leaves_nothing_behind(plain: CpuExecutor) -> None:
    arena = plain.arena(Layout.of(Task(OP, FP32).at(CASE)))
    file = Path(f"/proc/self/fd/{arena.handle.file}")
    assert "msbench-arena" in str(file.readlink())
    arena.close()
    assert not file.is_symlink() or "msbench-arena" not in str(file.readlink())
    arena.close()


def test_two_arenas_are_two_memories(plain: CpuExecutor) -> None:
    made = candidate(RIGHT)
    runner = plain.open(OP, plain.build(OP, made), made)
    for value in range(8):  # more than stay mapped, and names that are used again
        with (
            plain.arena(Layout.of(Task(OP, FP32).at(CASE))) as one,
            plain.arena(Layout.of(Task(OP, FP32).at(CASE))) as other,
        ):
            one.view("A")[:] = value
            other.view("A")[:] = -value
            runner.launch(one, CASE)
            runner.launch(other, CASE)
            assert (one.view("C") == value).all()
            assert (other.view("C") == -value).all()


def test_worker_sees_no_keys(sanitized: CpuExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    spy = candidate(
        RIGHT, 'if (getenv("OPENAI_API_KEY")) return cudaErrorUnknown; k<<<8, 128, 0, stream>>>(A, B, C, N);'
    )
    launch(sanitized, spy)


# ------------------------------------------------------------------ builds that fail


def build_failure(executor: CpuExecutor, made: Candidate) -> tuple[Fault, str]:
    build: BuildResult = executor.build(OP, made)
    assert build.failure is not None
    assert build.binary is None
    return build.failure.fault, build.failure.message


def test_empty_file(plain: CpuExecutor) -> None:
    fault, message = build_failure(plain, Candidate(OP.name, FP32, "// nothing but a comment\n"))
    assert fault is Fault.EMPTY
    assert "vector_add(" in message


def test_compile_error_has_the_kernels_line(plain: CpuExecutor) -> None:
    fault, message = build_failure(plain, candidate(kernel("C[0] = undefined_name;")))
    assert fault is Fault.COMPILE
    assert "vector_add.cu line 3" in message
    assert "undefined_name" in message


def test_missing_and_wrong_launcher(plain: CpuExecutor) -> None:
    fault, message = build_failure(plain, Candidate(OP.name, FP32, RIGHT))
    assert fault is Fault.SIGNATURE
    assert "vector_add(" in message
    wrong = candidate(RIGHT).source.replace("int64_t N, void*", "int N, void*")
    assert build_failure(plain, Candidate(OP.name, FP32, wrong))[0] is Fault.SIGNATURE


@pytest.mark.parametrize(
    ("code", "construct"),
    [
        ('asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0}, %1, %2, 1, 1;" : "+f"(C[0]) : "l"(N), "l"(N));',
         "inline PTX 'wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16' (vector_add.cu:3)"),
        ('asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0};" : "+f"(C[0]));', "mma.sync.aligned"),
        ('asm("{ .reg .pred p; setp.ne.b32 p, %0, 0; }" :: "r"(1));', "inline PTX 'setp.ne.b32'"),
        ('asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(0), "r"(1));', "inline PTX 'mbarrier.init.shared.b64'"),
    ],
)  # fmt: skip
def test_ptx_that_only_a_gpu_has_is_named(plain: CpuExecutor, code: str, construct: str) -> None:
    fault, message = build_failure(plain, candidate(kernel(code)))
    assert fault is Fault.UNSUPPORTED
    assert construct in message


@pytest.mark.parametrize(
    ("before", "construct"),
    [
        ("#include <mma.h>\nusing namespace nvcuda;\n", "nvcuda::wmma (tensor cores) (vector_add.cu:3)"),
        ("#include <cuda_fp16.h>\n__device__ __half h;\n", "__half (cuda_fp16.h) (vector_add.cu:3)"),
        ("#include <cuda.h>\nvoid f(CUtensorMap m) {}\n", "TMA (CUtensorMap) (vector_add.cu:3)"),
        ("#include <cuda.h>\nCUdevice d;\n", "the driver API (CUdevice) (vector_add.cu:3)"),
        (
            "#include <cub/cub.cuh>\nusing Sort = cub::BlockMergeSort<float, 256, 1>;\n",
            "CUB that it lacks (cub::BlockMergeSort)",
        ),
        (
            "#include <cooperative_groups.h>\n__device__ void f(cooperative_groups::thread_group g);\n",
            "cooperative_groups that it lacks (thread_group) (vector_add.cu:3)",
        ),
        ("__device__ float f(float x) { return __fadd_rd(x, x); }\n", "an intrinsic that it lacks (__fadd_rd)"),
        (
            "#include <cuda/barrier>\nconstexpr auto kBytes = sizeof(cuda::barrier<cuda::thread_scope_device>);\n",
            "cuda::barrier of this scope",
        ),
        ("#include <cuda_awbarrier.h>\n", "cuda::barrier (mbarrier)"),
        ("#include <thrust/sort.h>\n", "Thrust"),
        ("#include <cub/device/device_reduce.cuh>\n", "device-level CUB"),
        ("__cluster_dims__(2, 1, 1) ", "it uses thread block clusters."),
        ("template <int n> __global__ void __cluster_dims__(n, 1, 1) g() {}\n", "it uses thread block clusters."),
        ("__device__ cublasHandle_t h;\n", "cuBLAS (cublasHandle_t)"),
    ],
)
def test_constructs_that_only_a_gpu_has_are_named(plain: CpuExecutor, before: str, construct: str) -> None:
    fault, message = build_failure(plain, candidate(kernel("C[0] = 0;", before)))
    assert fault is Fault.UNSUPPORTED
    assert construct in message


def test_linked_libraries_are_named(plain: CpuExecutor) -> None:
    made = Candidate(OP.name, FP32, "// msbench: link cublas\n" + candidate(RIGHT).source)
    fault, message = build_failure(plain, made)
    assert fault is Fault.UNSUPPORTED
    assert "cublas" in message


# ------------------------------------------------------------------ launches that fail

PLAIN_FAULTS = [
    (
        "if (threadIdx.x < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}",
        Fault.LAUNCH,
        r"divergent barrier: .*in line [46] while \d+ of its block wait at line [46] at vector_add\.cu:[46] \(thread .* of block .* of k\)",
    ),
    (
        "if (threadIdx.x < 16) C[0] = __shfl_down_sync(0xffffffffu, 1.0f, 1);\nelse\n__syncthreads();",
        Fault.LAUNCH,
        r"deadlock: 112 of 128 threads wait at __syncthreads\(\) in line 5; warp 0 waits at a shuffle in line 3 for lanes "
        r"0xffff0000 of mask 0xffffffff, block \(\d,0,0\) at vector_add\.cu:5",
    ),
    (
        "if (threadIdx.x >= 4) C[0] = __shfl_sync(0xfu, 1.0f, 0);",
        Fault.LAUNCH,
        r"bad mask: lane \d+ calls a shuffle with mask 0x0000000f, which does not name it at vector_add\.cu:3 \(thread",
    ),
    (
        "if (threadIdx.x < 16) C[0] = __shfl_sync(~0u, 1.0f, 0);\nelse C[0] = __ballot_sync(~0u, 1);",
        Fault.LAUNCH,
        r"divergent warp: lane \d+ is at a (vote|shuffle) in line [34] while others of its mask wait at",
    ),
    (
        "*(volatile float*)nullptr = 1;",
        Fault.OUT_OF_BOUNDS,
        r"illegal access to address 0x0 \(a null pointer\) at vector_add\.cu:3 \(thread",
    ),
    (
        "C[N * 100000000] = 1;",
        Fault.OUT_OF_BOUNDS,
        r"illegal access to address 0x[0-9a-f]+.* at vector_add\.cu:3 \(thread",
    ),
    ("C[0] = int(N) / int(A[0]);", Fault.LAUNCH, r"integer division by zero at vector_add\.cu:3 \(thread"),
    (
        "float4 v = *(const float4*)(A + 1); C[0] = v.x;",
        Fault.LAUNCH,
        r"misaligned access: .* at vector_add\.cu:3 \(thread",
    ),
    (
        "__shared__ float s[32]; s[threadIdx.x % 33] = 1;\n__syncthreads(); C[0] = s[0];",
        Fault.OUT_OF_BOUNDS,
        r"out-of-bounds write behind s in shared memory, block \(\d,0,0\)",
    ),
    (
        "__shared__ float s[12289]; s[0] = 1; C[0] = s[0];",
        Fault.LAUNCH,
        r"uses 49156 bytes of static shared memory; the limit is 49152",
    ),
    (
        "while (*(volatile const float*)A == 0) {\n}",
        Fault.TIMEOUT,
        r"the launch did not end within 1 s at vector_add\.cu:[34] \(thread",
    ),
    (
        "while (atomicAdd(C, 0.0f) == 0) {\n}",
        Fault.TIMEOUT,
        r"the launch did not end within 1 s at vector_add\.cu:3 \(thread",
    ),
    ("for (;;)\n__syncthreads();", Fault.TIMEOUT, r"the launch did not end within 1 s at vector_add\.cu:4 \(thread"),
    ("for (;;) {\n}", Fault.TIMEOUT, r"the launch did not end within 1 s at vector_add\.cu:\d \(thread"),
    ("__trap();", Fault.LAUNCH, r"__trap\(\) at vector_add\.cu:3 \(thread \(\d+,0,0\) of block \(\d,0,0\) of k\)"),
    ("volatile float a[100000]; a[threadIdx.x] = 1; C[0] = a[5];", Fault.OUT_OF_BOUNDS, r"stack overflow.* \(thread"),
]


@pytest.mark.parametrize(("body", "fault", "sentence"), PLAIN_FAULTS)
def test_faults_are_told_with_line_and_thread(
    plain: CpuExecutor, hasty: CpuExecutor, body: str, fault: Fault, sentence: str
) -> None:
    error = failure(hasty if fault is Fault.TIMEOUT else plain, candidate(kernel(body)))
    assert re.fullmatch(f"{sentence}.*", str(error)), str(error)
    assert isinstance(error, WorkerTimeout if fault is Fault.TIMEOUT else LaunchFailed)
    assert error.kind == fault


def test_a_loop_of_barriers_needs_all_blocks(plain: CpuExecutor) -> None:
    grid = "#include <cooperative_groups.h>\n"
    body = "if (blockIdx.x != 2) cooperative_groups::this_grid().sync();"
    call = "void* p[] = {&A, &B, &C, &N}; cudaLaunchCooperativeKernel((void*)k, dim3(4), dim3(32), p, 0, stream);"
    assert "deadlock: grid.sync() waits for a block that has ended" in str(
        failure(plain, candidate(kernel(body, grid), call))
    )
    everyone = kernel("cooperative_groups::this_grid().sync();", grid)
    launch(plain, candidate(everyone, call))
    assert "not launched by cudaLaunchCooperativeKernel" in str(failure(plain, candidate(everyone)))


def test_refused_launch_is_told(plain: CpuExecutor) -> None:
    error = failure(plain, candidate(RIGHT, "k<<<N / 2048, 2048>>>(A, B, C, N);"))
    assert error.kind == Fault.LAUNCH
    assert "invalid configuration argument: grid (0,1,1), block (2048,1,1) (k)" in str(error)


def test_error_code_of_the_launcher_is_told(plain: CpuExecutor) -> None:
    error = failure(plain, candidate(RIGHT, "return cudaErrorInvalidValue;"))
    assert isinstance(error, LaunchFailed)
    assert "error 1" in str(error)


def test_failed_assertion_and_abort_are_survived(plain: CpuExecutor) -> None:
    error = failure(plain, candidate(kernel("assert(N < 5);", "#include <cassert>\n")))
    assert isinstance(error, WorkerCrashed)
    assert "vector_add.cu:4" in error.log
    launch(plain, candidate(RIGHT))


def test_missing_barrier_shows_in_some_order(plain: CpuExecutor) -> None:
    body = f"{GLOBAL_INDEX} __shared__ float s[128];\ns[threadIdx.x] = A[i] + B[i]; C[i - threadIdx.x + 127 - threadIdx.x] = s[127 - threadIdx.x];"
    made = candidate(kernel(body))
    runner = plain.open(OP, plain.build(OP, made), made)
    results = check_case(plain, runner, Task(OP, FP32).at(CASE), 0)
    assert not results[-1].passed


def test_worker_goes_on_after_a_failed_launch(plain: CpuExecutor) -> None:
    made = candidate(kernel(f"{GLOBAL_INDEX} if (A[0] == 1) __trap();\n__syncthreads(); C[i] = A[i] + B[i];"))
    runner = plain.open(OP, plain.build(OP, made), made)
    with plain.arena(Layout.of(Task(OP, FP32).at(CASE))) as arena:
        arena.buffer[:] = 0
        arena.view("A")[0] = 1
        with pytest.raises(LaunchFailed, match="__trap"):
            runner.launch(arena, CASE)
        arena.view("A")[:] = 2
        arena.view("B")[:] = 3
        runner.launch(arena, CASE)
        assert (arena.view("C") == 5).all()
    runner.close()
    with pytest.raises(WorkerCrashed), plain.arena(Layout.of(Task(OP, FP32).at(CASE))) as arena:
        runner.launch(arena, CASE)


# ------------------------------------------------------------------ under AddressSanitizer

SANITIZED_FAULTS = [
    (f"{GLOBAL_INDEX} if (i <= N)\nC[i] = A[0];", r"out-of-bounds write of 4 bytes, just after array C at vector_add\.cu:4 \(thread \(0,0,0\) of block \(8,0,0\) of k\)"),
    (f"{GLOBAL_INDEX} if (i < N) C[i] =\nA[i + 2] + B[i];", r"out-of-bounds read of 4 bytes, \w+( bytes)? after array A at vector_add\.cu:[34] \(thread \(12\d,0,0\) of block \(7,0,0\)"),
    ("C[0] = B[-2];", r"out-of-bounds read of 4 bytes, 8 bytes before array B at vector_add\.cu:3 \(thread \(0,0,0\) of block \(\d,0,0\)"),
    ("__shared__ float s[128];\ns[threadIdx.x + 1] = 1;", r"out-of-bounds write of 4 bytes, just after shared array s at vector_add\.cu:4 \(thread \(127,0,0\)"),
    ("extern __shared__ float s[];\nif (threadIdx.x == 5) s[2] = 1;", r"out-of-bounds write of 4 bytes, .* at vector_add\.cu:4 \(thread \(5,0,0\)"),
    ("float a[4] = {1, 2, 3, 4};\nC[0] = a[4 + int(A[0])];", r"out-of-bounds read of 4 bytes, beyond local array a at vector_add\.cu:4 \(thread"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "sentence"), SANITIZED_FAULTS)
def test_sanitizer_tells_line_thread_and_array(sanitized: CpuExecutor, body: str, sentence: str) -> None:
    blocks = "k<<<(N + 128) / 128, 128, 0, stream>>>(A, B, C, N);"
    with pytest.raises(LaunchFailed) as caught:
        launch(sanitized, candidate(kernel(body), blocks))
    assert re.fullmatch(f"{sentence}.*", str(caught.value)), str(caught.value)
    assert caught.value.kind == Fault.OUT_OF_BOUNDS


def test_sanitizer_sees_misaligned_arrays_too(sanitized: CpuExecutor) -> None:
    launch(sanitized, candidate(RIGHT), misaligned=True, times=3)
    with pytest.raises(LaunchFailed, match=r"after array C at vector_add\.cu:3"):
        launch(
            sanitized,
            candidate(kernel(f"{GLOBAL_INDEX} if (i <= N) C[i] = A[0];"), "k<<<9, 128>>>(A, B, C, N);"),
            misaligned=True,
        )


def test_other_faults_are_told_under_the_sanitizer_too(sanitized: CpuExecutor) -> None:
    for body, part in (
        ("__trap();", "__trap() at vector_add.cu:3"),
        ("float4 v = *(const float4*)(A + 1); C[0] = v.x;", "misaligned"),
    ):
        with pytest.raises(LaunchFailed, match=re.escape(part)):
            launch(sanitized, candidate(kernel(body)))


def test_no_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from msbench.errors import ToolchainError

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    emulator.host_compiler._examine.cache_clear()
    try:
        with pytest.raises(ToolchainError, match=r"apt install g\+\+"):
            pick("cpu")
    finally:
        emulator.host_compiler._examine.cache_clear()


def test_nothing_runs_after_close() -> None:
    executor = CpuExecutor(emulator.find())
    made = candidate(RIGHT)
    runner = executor.open(OP, executor.build(OP, made), made)
    pid = runner._process.pid  # type: ignore[attr-defined]
    executor.close()
    executor.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
