"""The eight specs: references against slow definitions, counts, public cases, and the sparse matrices that are drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench import operators
from msbench.harness.check.compare import expected
from msbench.harness.inputs import generate
from msbench.model import Origin
from msbench.operators import patchwork
from msbench.spec import Case, Precision, Split, Task

Arrays = dict[str, Any]
FP32, BF16 = Precision.FP32, Precision.BF16
OPERATORS = operators.load_all()
seeds = st.integers(0, 10_000)


def case(distribution: str = "uniform", **dims: int) -> Case:
    return Case(tuple(dims.items()), Split.HELDOUT, distribution)


# ------------------------------------------------------------------ what each operator is, spelled out slowly


def slow_vector_add(A: Any, B: Any, N: int) -> Any:
    return [A[i] + B[i] for i in range(N)]


def slow_rms_norm(x: Any, weight: Any, bias: Any, epsilon: float, N: int) -> Any:
    mean = math.fsum(v * v for v in x) / N
    return [weight[i] * x[i] / math.sqrt(mean + epsilon) + bias[i] for i in range(N)]


def slow_softmax(x: Any, N: int, C: int) -> Any:
    y = np.empty((N, C))
    for i in range(N):
        total = math.fsum(math.exp(v - max(x[i])) for v in x[i])
        for j in range(C):
            y[i, j] = math.exp(x[i, j] - max(x[i])) / total
    return y


def slow_matrix_mul(A: Any, B: Any, M: int, N: int, K: int) -> Any:
    return [[math.fsum(A[i, k] * B[k, j] for k in range(K)) for j in range(N)] for i in range(M)]


def slow_matrix_transpose(A: Any, M: int, N: int) -> Any:
    return [[A[i, j] for i in range(M)] for j in range(N)]


def slow_prefix_sum(x: Any, N: int) -> Any:
    return [math.fsum(x[: i + 1]) for i in range(N)]


def slow_spmv_csr(values: Any, col_indices: Any, row_offsets: Any, x: Any, rows: int, cols: int, nnz: int) -> Any:
    entries = [range(row_offsets[i], row_offsets[i + 1]) for i in range(rows)]
    return [math.fsum(values[k] * x[col_indices[k]] for k in row) for row in entries]


def slow_stencil_2d(u_old: Any, r: float, nx: int, ny: int) -> Any:
    u_new = u_old.copy()
    for i in range(1, nx - 1):
        for j in range(1, ny - 1):
            around = u_old[i - 1, j] + u_old[i + 1, j] + u_old[i, j - 1] + u_old[i, j + 1]
            u_new[i, j] = u_old[i, j] + r * (around - 4 * u_old[i, j])
    return u_new


SIZES = {
    "vector_add": [{"N": 1}, {"N": 37}],
    "rms_norm": [{"N": 1}, {"N": 37}],
    "softmax": [{"N": 1, "C": 1}, {"N": 5, "C": 7}],
    "matrix_mul": [{"M": 1, "N": 1, "K": 1}, {"M": 5, "N": 3, "K": 11}, {"M": 2, "N": 4, "K": 8}],
    "matrix_transpose": [{"M": 1, "N": 1}, {"M": 5, "N": 3}],
    "prefix_sum": [{"N": 1}, {"N": 37}],
    "spmv_csr": [{"rows": 1, "cols": 1, "nnz": 1}, {"rows": 9, "cols": 4, "nnz": 5}, {"rows": 3, "cols": 8, "nnz": 20}],
    "stencil_2d": [{"nx": 1, "ny": 1}, {"nx": 2, "ny": 5}, {"nx": 5, "ny": 2}, {"nx": 6, "ny": 7}],
}
FINITE = [
    pytest.param(name, dims, distribution, id=f"{name}-{'x'.join(map(str, dims.values()))}-{distribution}")
    for name, sizes in SIZES.items()
    for dims in sizes
    for distribution in OPERATORS[name].distributions
    if distribution not in ("nonfinite", *patchwork.NAMES)
]


@pytest.mark.parametrize(("name", "dims", "distribution"), FINITE)
def test_references_agree_with_their_definition(name: str, dims: dict[str, int], distribution: str) -> None:
    op = OPERATORS[name]
    here = case(distribution, **dims)
    inputs = generate(Task(op, FP32).at(here), 1, np)
    references, bounds = expected(Task(op, FP32).at(here), inputs, np)
    exact = {n: a if a.dtype.kind == "i" else a.astype(np.float64) for n, a in inputs.items()}
    slow = globals()[f"slow_{name}"](**exact, **op.scalar_values(here), **dims)
    [output] = op.outputs
    assert references[output.name].shape == operators.shape(output, dims)
    scale = np.abs(np.asarray(slow)).max()
    np.testing.assert_allclose(references[output.name], slow, rtol=1e-13, atol=1e-14 * scale)
    assert np.all(np.isfinite(bounds[output.name])) and np.all(bounds[output.name] >= 0)


@pytest.mark.parametrize("name", SIZES)
def test_finite_references_have_finite_bounds_beside_nan_and_infinity(name: str) -> None:
    op = OPERATORS[name]
    if name == "stencil_2d":
        pytest.skip("it leaves NaN and infinity out")
    inside = []
    for seed in range(12):
        for distribution in ("nonfinite", *patchwork.NAMES):
            here = case(distribution, **SIZES[name][1])
            references, bounds = expected(Task(op, FP32).at(here), generate(Task(op, FP32).at(here), seed, np), np)
            [reference], [bound] = references.values(), bounds.values()
            bound = np.broadcast_to(bound, reference.shape)
            inside.append(not np.isfinite(reference).all())
            assert np.isfinite(bound[np.isfinite(reference)]).all()
    assert sum(inside) >= 9


def test_bytes_and_operations_are_those_of_the_definition() -> None:
    counts = {
        name: (op.nbytes(itemsize=2, **dims), op.flops(**dims))
        for name, op in OPERATORS.items()
        for dims in (SIZES.get(name, [None, None])[1],)
        if dims
    }
    assert counts["vector_add"] == (3 * 37 * 2, 37)
    assert counts["rms_norm"] == (4 * 37 * 2, 5 * 37 + 3)
    assert counts["softmax"] == (2 * 35 * 2, 5 * 35)
    assert counts["matrix_mul"] == ((55 + 33 + 15) * 2, 2 * 5 * 3 * 11)
    assert counts["matrix_transpose"] == (2 * 15 * 2, 0)
    assert counts["prefix_sum"] == (2 * 37 * 2, 36)
    assert counts["spmv_csr"] == (5 * (2 + 4) + 10 * 4 + (4 + 9) * 2, 10)
    assert counts["stencil_2d"] == (2 * 10 * 2, 0)
    assert OPERATORS["stencil_2d"].flops(nx=6, ny=7) == 7 * 4 * 5


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("name", OPERATORS)
def test_every_task_has_a_bar(name: str, precision: Precision) -> None:
    origins = [version.origin for version in operators.versions(Task(OPERATORS[name], precision))]
    assert origins.count(Origin.NAIVE) == 1
    assert Origin.LIBRARY in origins
    assert OPERATORS[name].library_note


def test_there_are_fifty_operators() -> None:
    assert len(OPERATORS) == 50
    assert {op.scenario for op in OPERATORS.values()} == {
        "Activations and losses", "Arrays", "Dense algebra", "LLM", "Scientific", "Sparse",
    }  # fmt: skip
    for op in OPERATORS.values():
        assert {case.split for case in op.cases} == {Split.PAPER, Split.LARGE, Split.ODD}, op.name


def test_the_public_cases() -> None:
    def sizes(name: str, split: Split) -> list[tuple[int, ...]]:
        return [tuple(dict(c.dims).values()) for c in OPERATORS[name].cases if c.split is split]

    powers = [2**k for k in (10, 12, 14, 16, 18)]
    for name in ("vector_add", "prefix_sum"):
        assert sizes(name, Split.PAPER) == [(n,) for n in powers]
        assert sizes(name, Split.LARGE) == [(2**26,)]
        assert sizes(name, Split.ODD) == [(1_000_003,)]
    assert sizes("rms_norm", Split.PAPER) == [(64,), (128,), (256,), (512,), (1024,)]
    assert sizes("rms_norm", Split.LARGE) + sizes("rms_norm", Split.ODD) == [(2**25,), (100_003,)]
    assert sizes("softmax", Split.PAPER) == [(n, c) for n in (16, 32, 64, 128) for c in (256, 1024, 4096, 16384)]
    assert sizes("softmax", Split.LARGE) + sizes("softmax", Split.ODD) == [(8192, 8192), (37, 1003)]
    assert sizes("matrix_mul", Split.PAPER) == [(m, 2048, 4096) for m in (64, 256, 1024, 4096, 16384)]
    assert sizes("matrix_mul", Split.LARGE) + sizes("matrix_mul", Split.ODD) == [(8192, 8192, 8192), (777, 1003, 515)]
    assert len(set(sizes("matrix_transpose", Split.PAPER))) == 25
    assert sizes("matrix_transpose", Split.LARGE) == [(32768, 16384)]
    assert sizes("spmv_csr", Split.PAPER)[0] == (1024, 2048, 20971)
    assert sizes("spmv_csr", Split.LARGE) == [(2**19, 2**19, 2**25)]
    assert sizes("spmv_csr", Split.ODD)[0] == (10_007, 5_003, 500_650)
    assert len(sizes("stencil_2d", Split.PAPER)) == 9
    assert sizes("stencil_2d", Split.LARGE) + sizes("stencil_2d", Split.ODD) == [(2**15, 2**15), (1003, 777)]


# ------------------------------------------------------------------ sparse inputs


def row_lengths(distribution: str, rows: int, cols: int, nnz: int, seed: int = 0) -> tuple[Any, Arrays]:
    here = case(distribution, rows=rows, cols=cols, nnz=nnz)
    inputs = generate(Task(OPERATORS["spmv_csr"], FP32).at(here), seed, np)
    return np.diff(inputs["row_offsets"]), inputs


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 400), st.sampled_from(["uniform", "skewed"]), seeds)
def test_csr_inputs_are_well_formed(rows: int, cols: int, nnz: int, distribution: str, seed: int) -> None:
    lengths, inputs = row_lengths(distribution, rows, cols, nnz, seed)
    assert inputs["row_offsets"][0] == 0 and inputs["row_offsets"][-1] == nnz
    assert (lengths >= 0).all()
    assert inputs["col_indices"].min() >= 0 and inputs["col_indices"].max() < cols


def test_skewed_matrices_have_a_full_row_empty_rows_and_a_long_tail() -> None:
    lengths, inputs = row_lengths("skewed", 1000, 200, 10_000)
    assert set(inputs["col_indices"][: lengths[0]]) == set(range(200))
    assert (lengths[3::7] == 0).all()
    assert lengths[0] > 10 * lengths[500:].max()
    uniform, _ = row_lengths("uniform", 1000, 200, 10_000)
    assert uniform.max() < 30


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPERATORS)
def test_cupy_and_numpy_expect_the_same(name: str) -> None:
    import cupy

    op = OPERATORS[name]
    for here in operators.heldout(op, seed=1, count=12, max_elements=20_000):
        inputs = generate(Task(op, BF16).at(here), 1, np)
        references, bounds = expected(Task(op, BF16).at(here), inputs, np)
        on_gpu = expected(Task(op, BF16).at(here), generate(Task(op, BF16).at(here), 1, cupy), cupy)
        for output, exact in references.items():
            scale = np.nanmax(np.abs(exact), initial=0, where=np.isfinite(exact))
            np.testing.assert_allclose(cupy.asnumpy(on_gpu[0][output]), exact, rtol=1e-12, atol=1e-13 * scale)
            finite = np.isfinite(exact)  # elsewhere bounds are ignored
            mine, theirs = (
                np.broadcast_to(some, exact.shape)[finite] for some in (bounds[output], cupy.asnumpy(on_gpu[1][output]))
            )
            np.testing.assert_allclose(theirs, mine, rtol=1e-12, atol=1e-13 * scale)
