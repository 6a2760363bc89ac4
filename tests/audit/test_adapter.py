"""Files built with nvcc as they are audited on a GPU, run on a CUDA runtime that needs none: device memory is memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msbench import emulator, operators
from msbench.audit import abi, adapter, files
from msbench.executors.cpu import CpuExecutor
from msbench.gpu.job import Job
from msbench.gpu.runner import GpuRunner
from msbench.harness.arena import Arena, Layout
from msbench.harness.build.compile import build
from msbench.harness.check.case import POISONS
from msbench.model import Candidate, Entry, Fault
from msbench.operators import select_cases
from msbench.spec import Operator, Precision, Task
from tests.gpu.fake_gpu import FakeGpu, tools

ABI = abi.load("mskernelbench")
FP32 = Precision.FP32
INCLUDE = "#include <cuda_runtime.h>\n#include <algorithm>\n"


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(tmp_path_factory.mktemp("gpu"))


def candidate(body: str) -> tuple[Operator, Candidate]:
    found = files.identify("file.cu", (INCLUDE + body).encode(), ABI)
    assert found.symbol is not None, found.problem
    op = operators.load(found.symbol.function.operator)
    entry = adapter.entry(found.symbol, op, found.count, found.link)
    return op, Candidate(op.name, found.symbol.precision, found.source, entry=entry)


@contextmanager
def running(
    gpu: FakeGpu, op: Operator, made: Candidate, case_id: str, **inputs: Any
) -> Iterator[tuple[GpuRunner, Arena]]:
    """The built candidate, prepared on a case with these inputs and poisoned outputs."""
    result = build(op, made, tools(), "sm_90a")
    assert result.failure is None, result.failure
    (case,) = select_cases(op, case_id)
    arena = gpu.arena(Layout.of(Task(op, FP32).at(case)))
    arena.write_inputs(inputs)
    arena.poison(POISONS[0])
    with gpu.runner_of(op, built=(made, Path(result.binary or ""))) as runner:
        runner.launch(arena, case)
        assert not arena.damaged_redzones()
        runner.prepare_whole(Job.of(op, case, [arena], poison=True))
        yield runner, arena


def floats(*shape: int) -> Any:
    return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def test_what_is_added_to_is_zero_before_each_call(gpu: FakeGpu) -> None:
    body = """extern "C" void dot_product(float* loss, const float* X, const float* Y, const int N) {
        for (int i = 0; i < N; ++i) *loss += X[i] * Y[i];
    }"""
    x, y = floats(64), floats(64)
    op, made = candidate(body)
    with running(gpu, op, made, "N=64", X=x, Y=y) as (runner, arena):
        for _ in range(2):
            assert arena.view("out")[0] == pytest.approx(float(x @ y), abs=1e-5)
            runner.whole(0, 3)


def test_what_is_changed_in_place_is_copied_before_each_call(gpu: FakeGpu) -> None:
    body = 'extern "C" void sorting(float* data, int N) { std::sort(data, data + N); data[0] -= 1; }'
    x = floats(100)
    expected = np.sort(x)
    expected[0] -= 1
    op, made = candidate(body)
    with running(gpu, op, made, "N=100", x=x) as (runner, arena):
        for _ in range(2):
            np.testing.assert_array_equal(arena.view("y"), expected)
            runner.whole(0, 3)


HOST = """extern "C" void matrix_power(const float* A, float* B, int N, int P) {
    for (int i = 0; i < N * N; ++i) B[i] = A[i] + P;
    /* more */
}"""


def test_arrays_of_the_host_are_copies_and_results_come_back(gpu: FakeGpu) -> None:
    matrix = floats(8, 8)
    op, made = candidate(HOST)
    with running(gpu, op, made, "N=8,P=3", A=matrix) as (runner, arena):
        for _ in range(2):
            np.testing.assert_array_equal(arena.view("B"), matrix + np.float32(3))
            runner.whole(0, 2)
            assert not arena.damaged_redzones()


@pytest.mark.parametrize("write", ["B[N * N] = 1", "const_cast<float*>(A)[-1] = 1", "const_cast<float*>(A)[5] = 1"])
def test_what_is_written_beside_an_array_of_the_host_is_seen(gpu: FakeGpu, write: str) -> None:
    matrix = floats(8, 8)
    op, made = candidate(HOST.replace("/* more */", f"{write};"))
    result = build(op, made, tools(), "sm_90a")
    (case,) = select_cases(op, "N=8,P=3")
    arena = gpu.arena(Layout.of(Task(op, FP32).at(case)))
    arena.write_inputs({"A": matrix})
    arena.poison(POISONS[0])
    with gpu.runner_of(op, built=(made, Path(result.binary or ""))) as runner:
        runner.launch(arena, case)
    assert arena.damaged_redzones() or arena.changed_inputs({"A": matrix})


def test_our_version_behind_host_pointers_gives_the_same_result(gpu: FakeGpu) -> None:
    op = operators.load("matrix_power")
    body = """{ struct Work { const float* A; float* B; int64_t n, P; };
        cudaLaunchHostFunc(stream, [](void* p) { Work* w = static_cast<Work*>(p);
            for (int64_t i = 0; i < w->n; ++i) w->B[i] = w->A[i] + w->P; delete w; }, new Work{A, B, N * N, P});
        return cudaSuccess; }"""
    made = Candidate(op.name, FP32, operators.prototype(op).replace(";", body), entry=adapter.staged(Task(op, FP32)))
    matrix = floats(8, 8)
    with running(gpu, op, made, "N=8,P=2", A=matrix) as (runner, arena):
        for _ in range(2):
            np.testing.assert_array_equal(arena.view("B"), matrix + np.float32(2))
            runner.whole(0, 2)


@pytest.mark.parametrize(("freed", "grows"), [("cudaFree(copy);", False), ("", True)])
def test_memory_that_a_call_leaves_behind_is_counted(gpu: FakeGpu, freed: str, grows: bool) -> None:
    body = f"""extern "C" void RELU(float* output, const float* input, int N) {{
        float* copy;
        cudaMalloc(&copy, N * sizeof(float));
        cudaMemcpy(copy, input, N * sizeof(float), cudaMemcpyDeviceToDevice);
        for (int i = 0; i < N; ++i) output[i] = std::max(copy[i], 0.0f);
        {freed}
    }}"""
    op, made = candidate(body)
    x = floats(50)
    with running(gpu, op, made, "N=50", x=x) as (runner, arena):
        before = runner.live_bytes()
        runner.whole(0, 2)
        np.testing.assert_array_equal(arena.view("y"), np.maximum(x, 0))
        assert runner.live_bytes() - before == (2 * 200 if grows else 0)


def test_a_vendor_library_is_linked_where_its_header_is_included() -> None:
    found = files.identify("a.cu", b'#include <cublas_v2.h>\nextern "C" void gelu(float*, const float*, int) {}', ABI)
    assert found.link == ("cublas",)
    assert Candidate("gelu", FP32, "", entry=Entry("", "", "gelu", "", link=found.link)).link == ("cublas",)


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ("float* o, const float* i, const int N", None),
        ("float* __restrict__ o, float* i, long long N", None),
        ("const float* i, float* o, int N", Fault.SIGNATURE),  # const tells which is which
        ("float* __restrict__ const o, const float* const __restrict__ i, int N", None),
        ("const float* o, const float* i, int N", Fault.SIGNATURE),
        ("float* o, const float* i, float N", Fault.SIGNATURE),
        ("float* o, const double* i, int N", Fault.SIGNATURE),
        ("float* o, const float* i", Fault.SIGNATURE),
        ("float* o, const float* i, int N, int M", Fault.SIGNATURE),
        ("float* o, const Unknown* i, int N", Fault.COMPILE),
    ],
)
def test_other_parameters_are_refused_by_the_compiler(parameters: str, fault: Fault | None) -> None:
    op, made = candidate(f'extern "C" void gelu_optimized({parameters}) {{}}')
    with CpuExecutor(emulator.find()) as executor:
        failure = executor.build(op, made).failure
    assert (failure and failure.fault) == fault
    if fault is Fault.SIGNATURE:
        assert failure and failure.message == OTHER_PARAMETERS


@pytest.mark.parametrize("symbol", [s for s in ABI.symbols().values() if s.optimized], ids=lambda symbol: symbol.name)
def test_parameters_as_the_convention_has_them_suit_and_const_ones_wherever_nothing_is_written(
    symbol: abi.Symbol,
) -> None:
    """By the rule that is handed to the compiler: an input may be const or not, an output may not."""
    op = operators.load(symbol.function.operator)
    text = adapter.entry(symbol, op, len(symbol.function.parameters), ()).after
    (wanted,) = re.findall(r"MsbenchAlike<MsbenchTypes<(.*?)>, decltype", text)
    types = wanted.split(", ")
    outputs = {a.name for a in op.outputs}
    for parameter, type_ in zip(symbol.function.parameters, types, strict=True):
        assert type_.startswith("const ") == (parameter.pointer and parameter.name not in outputs)


def test_what_the_convention_does_not_call_const_may_be() -> None:
    with CpuExecutor(emulator.find()) as executor:
        for first, fault in (("const float* A", None), ("float* A", None), ("const double* A", Fault.SIGNATURE)):
            op, made = candidate(f'extern "C" void square_matrix_mul({first}, float* B, float* C, int M) {{}}')
            failure = executor.build(op, made).failure
            assert (failure and failure.fault) == fault


def test_swapped_parameters_of_rms_norm_are_refused() -> None:
    op, made = candidate('extern "C" void rms_norm_optimized(const float* x, const float* w, const float* b, float* y, float e, int N) {}')  # fmt: skip
    with CpuExecutor(emulator.find()) as executor:
        failures = build(op, made, tools(), "sm_90a").failure, executor.build(op, made).failure
    for failure in failures:
        assert failure and failure.fault is Fault.SIGNATURE
        assert failure.message.startswith("rms_norm_optimized takes other parameters than it should. The launcher must")


OTHER_PARAMETERS = (
    "gelu_optimized takes other parameters than it should. The launcher must be: "
    'extern "C" void gelu_optimized(float* y, const float* x, int N).'
)


def test_other_parameters_are_refused_by_nvcc_too() -> None:
    op, made = candidate('extern "C" void gelu_optimized(float* o, const float* i, float N) {}')
    failure = build(op, made, tools(), "sm_90a").failure
    assert failure and (failure.fault, failure.message) == (Fault.SIGNATURE, OTHER_PARAMETERS)


def test_macros_of_the_file_do_not_reach_the_adapter() -> None:
    macros = "".join(
        f"#define {name} 3\n" for name in ("N", "T", "x", "y", "arrays", "scalars", "dims", "min", "max", "R")
    )
    op, made = candidate('extern "C" void gelu(float* a, const float* b, int c) {}\n' + macros)
    assert build(op, made, tools(), "sm_90a").failure is None
