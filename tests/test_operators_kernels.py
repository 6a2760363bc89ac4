"""The naive kernels and msbench.cuh, run on the CPU: right for held-out sizes and every distribution.

Kernels run in other processes, a few in each: a crash fails one test, and a process has room for few emulated libraries.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msbench import emulator, operators, resources
from msbench.executors.cpu import CHECK_LIMIT
from msbench.harness.check.compare import compare, expected
from msbench.harness.check.schedule import schedule
from msbench.harness.inputs import generate, storage_dtype
from msbench.harness.protocols import Plan
from msbench.spec import Case, Operator, Precision, Split, Task
from tests import turns
from tests.forks import FORKS


def build(op: Operator, precision: Precision, source: str) -> ctypes.CDLL:
    built = emulator.build(
        source,
        f"{op.name}.cu",
        include_dirs=[resources.include_dir()],
        preinclude=operators.header(Task(op, precision)),
    )
    library = ctypes.CDLL(str(built.library))
    library.msbench_workspace.restype = ctypes.c_size_t
    return library


def launch(
    library: ctypes.CDLL, op: Operator, precision: Precision, case: Case, inputs: dict[str, Any]
) -> dict[str, Any]:
    """The outputs of one launch, by the generated header's calling convention."""
    shapes = operators.shapes(op, dict(case.dims))
    outputs = {a.name: np.full(shapes[a.name], 77, storage_dtype(a, precision)) for a in op.outputs}
    arrays = [*inputs.values(), *outputs.values()]
    pointers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
    scalars = (ctypes.c_double * max(1, len(op.scalars)))(*op.scalar_values(case).values())
    dims = (ctypes.c_int64 * len(op.dims))(*dict(case.dims).values())
    needed = library.msbench_workspace(scalars, dims)
    workspace = np.full(needed + 1, 0xFF, np.uint8)
    status = library.msbench_launch(
        pointers, scalars, dims, ctypes.c_void_p(workspace.ctypes.data), ctypes.c_size_t(needed), None
    )
    assert status == 0
    return outputs


SEEDS = int(os.environ.get("MSBENCH_TEST_SEEDS", "150"))
"""How often each naive kernel is tried in all parts, each time on another held-out case, as far as there are so many small ones."""


def mistakes(name: str, precision: Precision, ops_dir: Path | None = None) -> list[str]:
    """What an operator's naive kernel gets wrong on held-out cases."""
    op = operators.load(name, ops_dir)
    library = build(op, precision, operators.versions(Task(op, precision))[0].source)
    found = []
    cases = operators.heldout(op, seed=20, count=SEEDS, max_elements=6000)
    for seed, case in turns.share([*zip(range(SEEDS), cycle(cases))]):
        inputs = generate(Task(op, precision).at(case), seed, np)
        references, bounds = expected(Task(op, precision).at(case), inputs, np)
        for output, got in launch(library, op, precision, case, inputs).items():
            verdict = compare(references[output], bounds[output], got, np)
            if verdict.wrong:
                found.append(f"{case.id}, seed {seed}: {verdict}")
    return found


FEW_SEEDS = 20


def overlooked(name: str, precision: Precision) -> list[str]:
    """The scalars that a kernel may ignore, and pass every full check on a processor with uniform inputs."""
    op = operators.load(name)
    library = build(op, precision, operators.versions(Task(op, precision))[0].source)
    public, found = {case.dims for case in op.cases}, []
    for seed in range(FEW_SEEDS):
        plan = Plan(operators.select_cases(op, "smallest"), seed=seed)
        planned = [item.case for item in schedule(op, plan, CHECK_LIMIT)]
        varied = [case for case in planned if case.split is Split.HELDOUT and case.dims in public]
        for scalar in op.scalars:
            if all(ignores(library, op, precision, case, seed, scalar.name) for case in varied):
                found.append(f"{scalar.name}, seed {seed}")
    return found


def ignores(library: ctypes.CDLL, op: Operator, precision: Precision, case: Case, seed: int, scalar: str) -> bool:
    """Whether a case says nothing against a kernel for which a scalar always has its usual value."""
    inputs = generate(Task(op, precision).at(case), seed, np)
    references, bounds = expected(Task(op, precision).at(case), inputs, np)
    told = replace(case, scalars=tuple(pair for pair in case.scalars if pair[0] != scalar))
    outputs = launch(library, op, precision, told, inputs)
    return not any(compare(references[name], bounds[name], got, np).wrong for name, got in outputs.items())


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """A process that is replaced after four kernels."""
    with ProcessPoolExecutor(1, FORKS, max_tasks_per_child=4) as pool:
        yield pool


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("name", operators.names())
def test_naive_kernels_are_right_at_heldout_sizes(
    elsewhere: ProcessPoolExecutor, name: str, precision: Precision
) -> None:
    assert elsewhere.submit(mistakes, name, precision).result() == []


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("name", [name for name in operators.names() if operators.load(name).scalars])
def test_no_scalar_can_be_ignored(elsewhere: ProcessPoolExecutor, name: str, precision: Precision) -> None:
    assert elsewhere.submit(overlooked, name, precision).result() == []


@pytest.mark.parametrize("precision", list(Precision))
def test_a_new_operator_s_kernel_is_right(elsewhere: ProcessPoolExecutor, precision: Precision, tmp_path: Path) -> None:
    operators.scaffold("my_first", tmp_path)
    assert elsewhere.submit(mistakes, "my_first", precision, tmp_path).result() == []


HELPERS = """
#include <msbench.cuh>

// C[0] = the sum of A, C[1] = its maximum; from C[8] on a copy of B by packets, if the addresses allow it.
__global__ void helpers(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t N) {
    __shared__ float scratch[32];
    using namespace msbench;
    const float value = threadIdx.x < N ? to_float(A[threadIdx.x]) : 0;
    const float sum = block_reduce(value, Sum{}, scratch);
    const float largest = block_reduce(value, Max{}, scratch);
    if (threadIdx.x == blockDim.x - 1) C[0] = from_float<scalar_t>(sum);
    if (threadIdx.x == 0) C[1] = from_float<scalar_t>(largest);
    const int64_t packets = packets_allowed(B, C) ? N / Packet<scalar_t>::kSize : 0;
    const int64_t first = 8 / Packet<scalar_t>::kSize;
    if (threadIdx.x >= first && threadIdx.x < packets) store_packet(C, threadIdx.x, load_packet(B, threadIdx.x));
}

extern "C" cudaError_t vector_add(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t N, void* workspace,
                                  size_t workspace_bytes, cudaStream_t stream) {
    const int64_t threads = 32 * msbench::ceil_div(N, 32);
    helpers<<<1, threads, 0, stream>>>(A, B, C, N);
    return cudaGetLastError();
}
"""


def help_out(precision: Precision) -> tuple[Any, Any, Any]:
    op = operators.load("vector_add")
    case = Case((("N", 200),), Split.HELDOUT, "integers")
    inputs = generate(Task(op, precision).at(case), 3, np)
    outputs = launch(build(op, precision, HELPERS), op, precision, case, inputs)
    return tuple(array.astype(np.float64) for array in (inputs["A"], inputs["B"], outputs["C"]))


@pytest.mark.parametrize("precision", list(Precision))
def test_the_helpers_of_msbench_cuh(elsewhere: ProcessPoolExecutor, precision: Precision) -> None:
    A, B, C = elsewhere.submit(help_out, precision).result()
    assert C[0] == A.sum() and C[1] == A.max()
    np.testing.assert_array_equal(C[2:8], 77)
    np.testing.assert_array_equal(C[8:], B[8:])
