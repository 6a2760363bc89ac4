"""Bounds tell right arithmetic from wrong: fp32 sums in any order pass, and zeros, halves, bf16 sums and TF32 inputs don't."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench import operators
from msbench.bounds import FP32_ROUNDOFF, absorbed, alike, probabilistic, product
from msbench.harness.check.compare import compare, expect, expected, outliers, prepare, touch
from msbench.harness.check.cost import work
from msbench.harness.inputs import Draw, generate
from msbench.operators import patchwork
from msbench.spec import Case, Operator, Precision, Split, Task

Arrays = dict[str, Any]
FP32, BF16 = Precision.FP32, Precision.BF16
OPERATORS = operators.load_all()
seeds = st.integers(0, 10_000)


def case(distribution: str = "uniform", **dims: int) -> Case:
    return Case(tuple(dims.items()), Split.HELDOUT, distribution)


def ratio(op: Operator, precision: Precision, case: Case, seed: int, compute: Callable[[Arrays], Any]) -> float:
    """The worst error over its bound of ``compute`` on float32 copies of the inputs, rounded to the precision."""
    inputs = generate(Task(op, precision).at(case), seed, np)
    references, bounds = expected(Task(op, precision).at(case), inputs, np)
    [name] = references
    wide = {n: a if a.dtype.kind == "i" else a.astype(np.float32) for n, a in inputs.items()}
    with np.errstate(all="ignore"):
        got = compute(wide).astype(np.float32 if precision is FP32 else ml_dtypes.bfloat16)
    return compare(references[name], bounds[name], got, np).worst


def rounded_to(values: Any, bits: int) -> Any:
    """float32 values rounded to ``bits`` significant bits: 8 is bf16, 11 is TF32."""
    step = np.uint32(1 << (24 - bits))
    raw = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((raw + step // 2) & ~(step - 1)).view(np.float32)


def serial_sum(terms: Any) -> Any:
    """Sums along the last axis in fp32, one term after another."""
    return np.add.accumulate(terms, axis=-1, dtype=np.float32)[..., -1]


def strided_sum(terms: Any, threads: int = 32) -> Any:
    """Sums along the last axis in fp32 as a block does it: each thread its own terms, then a tree."""
    padded = np.zeros((*terms.shape[:-1], -(-terms.shape[-1] // threads) * threads), np.float32)
    padded[..., : terms.shape[-1]] = terms
    partial = serial_sum(np.swapaxes(padded.reshape(*terms.shape[:-1], -1, threads), -1, -2))
    while partial.shape[-1] > 1:
        half = partial.shape[-1] // 2
        partial = partial[..., :half] + partial[..., half:]
    return partial[..., 0]


def backward_sum(terms: Any) -> Any:
    return serial_sum(terms[..., ::-1])


def bf16_sum(terms: Any) -> Any:
    """Sums along the last axis with an accumulator in bf16."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for k in range(terms.shape[-1]):
        total = rounded_to(total + terms[..., k], 8)
    return total


SUMS = [serial_sum, strided_sum, backward_sum]


ORDINARY = ["uniform", "integers", "spiked", "constant", "zeros", "tiny", "large", "sorted"]
distributions = st.sampled_from([*ORDINARY, *patchwork.NAMES])
precisions = st.sampled_from(list(Precision))
many = settings(deadline=None, max_examples=30)


def product_terms(a: Arrays) -> Any:
    return a["A"][:, None, :] * a["B"].T[None, :, :]


def rms(a: Arrays, total: Callable[[Any], Any], n: int | None = None) -> Any:
    x = a["x"]
    mean = total((x * x)[None, :])[0] / np.float32(n or x.size)
    return a["weight"] * x * (np.float32(1) / np.sqrt(mean + np.float32(1e-5))) + a["bias"]


def soft(a: Arrays, total: Callable[[Any], Any]) -> Any:
    x = a["x"]
    exponential = np.exp(x - x.max(axis=1, keepdims=True))
    return exponential / total(exponential)[:, None]


def online_soft(a: Arrays) -> Any:
    """Softmax in one pass, with a running maximum and a sum that is rescaled whenever that grows."""
    x = a["x"]
    largest, total = np.full(x.shape[0], -np.inf, np.float32), np.zeros(x.shape[0], np.float32)
    for j in range(x.shape[1]):
        now = np.maximum(largest, x[:, j])
        shift = np.where(now == -np.inf, np.float32(0), now)
        total = total * np.exp(largest - shift) + np.exp(x[:, j] - shift)
        largest = now
    return np.exp(x - largest[:, None]) / total[:, None]


def blocked_scan(a: Arrays, block: int = 64, carry: Callable[[Any], Any] = lambda s: s) -> Any:
    out, before = [], np.float32(0)
    for start in range(0, a["x"].size, block):
        out.append(before + np.add.accumulate(a["x"][start : start + block], dtype=np.float32))
        before = carry(out[-1][-1:])[0]
    return np.concatenate(out)


def spmv(a: Arrays, total: Callable[[Any], Any]) -> Any:
    terms = a["values"] * a["x"][a["col_indices"]]
    ends = a["row_offsets"]
    rows = [terms[i:j] for i, j in pairwise(ends)]
    return np.array([total(row[None, :])[0] if row.size else 0 for row in rows], np.float32)


def heat(a: Arrays, r: float = 0.125) -> Any:
    u = a["u_old"]
    new = u.copy()
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    new[1:-1, 1:-1] += np.float32(r) * (around - 4 * u[1:-1, 1:-1])
    return new


def convolved(a: Arrays) -> Any:
    """The heat step as a library does it: weights r and 1-4r."""
    u = a["u_old"]
    new = u.copy()
    r, rest = np.float32(0.125), np.float32(0.5)
    new[1:-1, 1:-1] = r * u[:-2, 1:-1] + r * u[1:-1, :-2] + rest * u[1:-1, 1:-1] + r * u[1:-1, 2:] + r * u[2:, 1:-1]
    return new


RIGHT: dict[str, tuple[Case, list[Callable[[Arrays], Any]]]] = {
    "vector_add": (case(N=1000), [lambda a: a["A"] + a["B"]]),
    "rms_norm": (case(N=5000), [lambda a, s=s: rms(a, s) for s in SUMS]),
    "softmax": (case(N=3, C=1500), [*(lambda a, s=s: soft(a, s) for s in SUMS), online_soft]),
    "matrix_mul": (
        case(M=7, N=9, K=3000),
        [*(lambda a, s=s: s(product_terms(a)) for s in SUMS), lambda a: a["A"] @ a["B"]],
    ),
    "matrix_transpose": (case(M=30, N=50), [lambda a: a["A"].T]),
    "prefix_sum": (
        case(N=5000),
        [
            lambda a: np.add.accumulate(a["x"], dtype=np.float32),
            blocked_scan,
            lambda a: blocked_scan(a, block=1024),
        ],
    ),
    "spmv_csr": (case(rows=20, cols=300, nnz=3000), [lambda a, s=s: spmv(a, s) for s in SUMS]),
    "stencil_2d": (case(nx=20, ny=30), [heat, convolved]),
}


@pytest.mark.parametrize("name", RIGHT)
@many
@given(seeds, distributions, precisions)
def test_fp32_arithmetic_passes_in_any_order(name: str, seed: int, distribution: str, precision: Precision) -> None:
    base, ways = RIGHT[name]
    here = Case(base.dims, base.split, distribution)
    for compute in ways:
        with np.errstate(all="ignore"):
            assert ratio(OPERATORS[name], precision, here, seed, compute) <= 1


@many
@given(seeds, precisions)
def test_skewed_rows_pass_in_any_order(seed: int, precision: Precision) -> None:
    here = case("skewed", rows=30, cols=300, nnz=5000)
    for total in SUMS:
        assert ratio(OPERATORS["spmv_csr"], precision, here, seed, lambda a, s=total: spmv(a, s)) <= 1


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("distribution", [d for d in ORDINARY if d != "zeros"])
def test_zeros_fail(name: str, precision: Precision, distribution: str) -> None:
    base, ways = RIGHT[name]
    here = Case(base.dims, base.split, distribution)
    assert ratio(OPERATORS[name], precision, here, 1, lambda a: 0 * ways[0](a)) > 1


def half(total: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda terms: 2 * total(terms[..., : (terms.shape[-1] + 1) // 2])


WRONG_IN_BOTH: dict[str, tuple[Case, Callable[[Arrays], Any]]] = {
    "vector_add: A alone": (case(N=100), lambda a: a["A"]),
    "rms_norm: half of x": (case(N=4096), lambda a: rms(a, half(serial_sum))),
    "rms_norm: squares in bf16": (case(N=4096), lambda a: rms(a, bf16_sum)),
    "rms_norm: variance instead": (
        case(N=1000),
        lambda a: rms({**a, "x": a["x"] - a["x"].mean(dtype=np.float32)}, serial_sum),
    ),
    "softmax: half of the row": (case(N=4, C=1000), lambda a: soft(a, half(serial_sum))),
    "softmax: sum in bf16": (case(N=4, C=1000), lambda a: soft(a, bf16_sum)),
    "matrix_mul: half of K": (case(M=8, N=8, K=4096), lambda a: half(serial_sum)(product_terms(a))),
    "matrix_mul: sums in bf16": (case(M=8, N=8, K=4096), lambda a: bf16_sum(product_terms(a))),
    "matrix_mul: two partial sums in bf16": (
        case(M=16, N=16, K=4096),
        lambda a: sum(rounded_to(a["A"][:, k : k + 2048] @ a["B"][k : k + 2048], 8) for k in (0, 2048)),
    ),
    "matrix_mul: last k missing": (case(M=8, N=8, K=515), lambda a: a["A"][:, :-1] @ a["B"][:-1]),
    "matrix_transpose: a copy": (case(M=8, N=8), lambda a: a["A"]),
    "prefix_sum: exclusive": (case(N=1000), lambda a: np.cumsum(a["x"]) - a["x"]),
    "prefix_sum: blocks not joined": (
        case(N=1000),
        lambda a: np.concatenate([np.cumsum(h) for h in np.split(a["x"], 2)]),
    ),
    "prefix_sum: carries in bf16": (case(N=100_000), lambda a: blocked_scan(a, 64, lambda s: rounded_to(s, 8))),
    "spmv_csr: half of each row": (case(rows=20, cols=300, nnz=3000), lambda a: spmv(a, half(serial_sum))),
    "spmv_csr: sums in bf16": (case(rows=20, cols=300, nnz=3000), lambda a: spmv(a, bf16_sum)),
    "stencil_2d: boundary not copied": (case(nx=9, ny=9), lambda a: np.pad(heat(a)[1:-1, 1:-1], 1)),
    "stencil_2d: no centre": (case(nx=9, ny=9), lambda a: heat(a) + np.float32(0.5) * a["u_old"]),
    "stencil_2d: weight rounded": (case(nx=99, ny=99), lambda a: heat(a, 0.1259765625)),
}


@pytest.mark.parametrize("name", WRONG_IN_BOTH)
@pytest.mark.parametrize("precision", list(Precision))
@settings(deadline=None, max_examples=5)
@given(seeds)
def test_wrong_arithmetic_fails(name: str, precision: Precision, seed: int) -> None:
    """On one of three inputs: the mean of a half can be that of the whole by chance. A check draws far more."""
    here, compute = WRONG_IN_BOTH[name]
    op = OPERATORS[name.partition(":")[0]]
    assert any(ratio(op, precision, here, drawn, compute) > 1 for drawn in range(seed, seed + 3))


def tf32(a: Arrays) -> Arrays:
    return {n: v if v.dtype.kind == "i" else rounded_to(v, 11) for n, v in a.items()}


WRONG_IN_FP32: dict[str, tuple[Case, Callable[[Arrays], Any]]] = {
    "vector_add": (case(N=1000), lambda a: tf32(a)["A"] + tf32(a)["B"]),
    "rms_norm": (case(N=1024), lambda a: rms(tf32(a), serial_sum)),
    "softmax": (case(N=4, C=1000), lambda a: soft(tf32(a), serial_sum)),
    "matrix_mul": (case(M=8, N=8, K=4096), lambda a: tf32(a)["A"] @ tf32(a)["B"]),
    "matrix_transpose": (case(M=8, N=8), lambda a: tf32(a)["A"].T),
    "prefix_sum": (case(N=2000), lambda a: np.add.accumulate(tf32(a)["x"])),
    "spmv_csr": (case(rows=20, cols=300, nnz=3000), lambda a: spmv(tf32(a), serial_sum)),
    "stencil_2d": (case(nx=20, ny=20), lambda a: convolved(tf32(a))),
}


@pytest.mark.parametrize("name", WRONG_IN_FP32)
@settings(deadline=None, max_examples=10)
@given(seeds)
def test_inputs_rounded_to_tf32_fail_in_fp32(name: str, seed: int) -> None:
    here, compute = WRONG_IN_FP32[name]
    assert ratio(OPERATORS[name], FP32, here, seed, compute) > 1


@pytest.mark.parametrize("k", [16, 64, 515, 4096, 16384])
def test_tf32_products_fail_at_every_length(k: int) -> None:
    here = case(M=64, N=64, K=k)
    assert ratio(OPERATORS["matrix_mul"], FP32, here, 0, lambda a: tf32(a)["A"] @ tf32(a)["B"]) > 1


def some(name: str, distribution: str, shape: tuple[int, int], index: Any, precision: Precision) -> Any:
    """Some elements of a large array of a distribution, by their flat indices."""

    class Some(Draw):
        def fill(self, name: str, shape: tuple[int, ...], dtype: str, value: Callable[[Any, Any], Any]) -> Any:
            bits = Draw(np, "some", name).integers(name, index.shape, 0, 2**31).astype(np.uint64) << np.uint64(33)
            return value(bits, index).astype(dtype)

    full = (1, 1) if distribution == "constant" else shape  # which is the same everywhere
    values = np.broadcast_to(Some(np, "some", name).floats(name, full, distribution), index.shape)
    return values if precision is FP32 else rounded_to(values, 8)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("distribution", ["sorted", "constant"])
@pytest.mark.parametrize("m", [4096, 8192, 12288, 16384])
def test_long_sums_of_terms_that_round_alike_pass(m: int, distribution: str, precision: Precision) -> None:
    """Found on a GPU: sums of sorted numbers, one term after another, err by more than independent roundings do."""
    lines, k = np.array([0, 1, 466, m // 2, m - 2, m - 1]), np.arange(m)
    a = some("A", distribution, (m, m), lines[:, None] * m + k, precision)
    b = some("B", distribution, (m, m), k[:, None] * m + lines, precision)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    operator = OPERATORS["square_matrix_mul"]
    bound = operator.bound(np, precision.unit_roundoff, {"C": exact}, *(x.astype(np.float64) for x in (a, b)), M=m)
    errors = [total(product_terms({"A": a, "B": b})) - exact for total in SUMS]
    if precision is BF16:
        bound = bound - precision.unit_roundoff * abs(exact)  # what is left beside the last rounding
    assert all((abs(error) <= bound / 2).all() for error in errors)
    if distribution == "sorted" and m == 8192 and precision is FP32:
        independent = probabilistic(m) * abs(np.cumsum(a[:, None, :] * b.T, axis=-1)).max(axis=-1)
        assert (abs(errors[0]) > independent).any()


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("rows", [1, 128, 4096, 8192])
def test_softmax_of_rows_that_hardly_change_passes(rows: int, precision: Precision) -> None:
    columns = 16384
    for row in (0, rows // 2, rows - 1):
        x = some("x", "sorted", (rows, columns), row * columns + np.arange(columns), precision)[None, :]
        inputs = {"x": x.astype(np.float64)}
        exact = OPERATORS["softmax"].reference(np, **inputs, N=1, C=columns)
        bound = OPERATORS["softmax"].bound(np, precision.unit_roundoff, {"y": exact}, **inputs, N=1, C=columns)
        for total in SUMS:
            assert (abs(soft({"x": x}, total) - exact) <= bound).all()


@pytest.mark.parametrize("distribution", ["uniform", "positive", "integers", "spiked", "tiny", "large", "around 1"])
def test_bounds_of_numbers_in_random_order_stay_those_of_independent_roundings(distribution: str) -> None:
    draw, k = Draw(np, "random order"), 8192
    if distribution in ("positive", "around 1"):
        a, b = (draw.uniform(name, (k, 4)).astype(np.float64) for name in "AB")
        if distribution == "around 1":
            a, b = 0.9 + 0.2 * a, 0.9 + 0.2 * b
    else:
        a, b = (draw.floats(name, (k, 4), distribution).astype(np.float64) for name in "AB")
    assert not alike(np, a).any()
    terms = a.T[:, :, None] * b
    partial = abs(np.cumsum(terms, axis=1)[:, k // 8 - 1 :: k // 8]).max(axis=1)
    filled = (terms != 0).sum(axis=1)  # of integers one in nine is zero
    expected = 8 * FP32_ROUNDOFF * np.sqrt(filled) * (partial + np.sqrt((terms**2).sum(axis=1)))
    np.testing.assert_allclose(product(np, a.T, b), expected, rtol=1e-9)


def test_which_neighbours_are_alike() -> None:
    rising = np.linspace(-1, 1, 1000)
    step = np.ones(1000)
    step[-1] = 1 + 2.0**-8  # as bf16 makes of numbers that hardly rise
    nan = np.where(np.arange(1000) == 7, np.nan, rising)
    values = np.stack([rising, rising[::-1], step, np.full(1000, 1 / 3), np.zeros(1000), nan], axis=1)
    assert (alike(np, values)[:5] > 0.95).all()
    assert (alike(np, values.T, axis=1) == alike(np, values)).all()
    assert alike(np, values)[5] == 0
    assert alike(np, np.resize([1.0, -1.0], 1000)) == 0


@settings(deadline=None, max_examples=5)
@given(seeds)
def test_bf16_sums_that_are_truncated_like_a_tensor_core_s_pass(seed: int) -> None:
    """A tensor core adds several products at a time and cuts the sum off instead of rounding it (Fasi et al. 2021)."""

    def truncating(a: Arrays) -> Any:
        total = np.zeros((a["A"].shape[0], a["B"].shape[1]))
        for k in range(0, a["A"].shape[1], 16):
            wide = total + a["A"][:, k : k + 16].astype(np.float64) @ a["B"][k : k + 16].astype(np.float64)
            total = np.copysign(np.nextafter(np.abs(wide).astype(np.float32), np.float32(0)), wide).astype(np.float64)
        return total

    for distribution in ("uniform", "sorted", "spiked"):
        here = case(distribution, M=16, N=16, K=8192)
        assert ratio(OPERATORS["matrix_mul"], BF16, here, seed, truncating) <= 1


def test_the_running_maximum_of_a_scan_s_bound() -> None:
    """The bound must see the largest partial sum, of which the last sums of a sorted input show nothing."""
    here = case("sorted", N=50_000)
    references, bounds = expected(
        Task(OPERATORS["prefix_sum"], FP32).at(here), generate(Task(OPERATORS["prefix_sum"], FP32).at(here), 1, np), np
    )
    deepest = np.abs(references["y"]).max()
    assert np.abs(references["y"][-1]) < deepest / 1000
    assert bounds["y"][-1] > 2.0**-24 * deepest
    assert (np.diff(bounds["y"]) > -2e-8 * deepest).all()


@pytest.mark.parametrize("op", OPERATORS.values(), ids=list(OPERATORS))
@pytest.mark.parametrize("precision", list(Precision), ids=str)
def test_a_few_outliers_move_results_far_beyond_their_bounds(op: Operator, precision: Precision) -> None:
    """So who remembers a result, or does not look at some of the inputs, is wrong."""
    works = {case: work(op, case) for case in op.cases}
    limit = max(3e7, min(works.values()))
    at = max((case for case in op.cases if works[case] <= limit), key=works.__getitem__)
    problem = Task(op, precision).at(at)
    drawn = prepare(problem, 0, np)
    inputs = {name: array.copy() for name, array in drawn.inputs.items()}
    touch(problem, 0, inputs, outliers(problem, 0, np), np)
    touched = expect(problem, 0, inputs, np)
    with np.errstate(all="ignore"):
        moved = [
            float(np.nanmax(abs(touched.references[name] - one) / drawn.bounds[name]))
            for name, one in drawn.references.items()
        ]
    assert max(moved) > 100


def weighted_sums(scores: Any, values: Any) -> tuple[Any, Any]:
    """Softmax of each row and its weighted sums in fp32, one term after another."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / serial_sum(exponentials)[..., None]
    return weights, serial_sum(weights[..., None, :] * values.T)


@settings(max_examples=40)
@given(seed=seeds, gap=st.floats(8.0, 24.0), spread=st.floats(0.05, 1.0))
def test_terms_that_get_lost_beside_a_large_one_are_no_fault(seed: int, gap: float, spread: float) -> None:
    rng = np.random.default_rng(seed)
    count = 2**13
    row = (spread * rng.uniform(-1, 1, (1, count))).astype(np.float32)
    row[0, 0] = gap
    values = rng.uniform(-1, 1, (count, 2)).astype(np.float32)

    inputs: Arrays = {"x": row}
    softmax, attention = operators.load("softmax"), operators.load("softmax_attention")
    references, bounds = expected(Task(softmax, FP32).at(case(N=1, C=count)), inputs, np)
    weights, sums = weighted_sums(row, values)
    assert compare(references["y"], bounds["y"], weights, np).worst <= 1

    inputs = {"Q": np.ones((1, 1), np.float32), "K": row.T, "V": values}
    references, bounds = expected(Task(attention, FP32).at(case(q=1, kv=count, d=1, dv=2)), inputs, np)
    assert compare(references["Y"], bounds["Y"], sums, np).worst <= 1


def truncated_product(left: Any, right: Any, bits: int = 24) -> Any:
    """As a chain of tensor core steps on Hopper: 16 products and the sum are cut off two bits below the largest one's last, their sum at ``bits``."""
    total = np.zeros((len(left), right.shape[1]))
    for start in range(0, left.shape[1], 16):
        part = slice(start, start + 16)
        terms = np.concatenate([total[..., None], left[:, None, part] * right.T[None, :, part]], axis=-1)
        last = np.ldexp(1.0, np.frexp(np.abs(terms).max(axis=-1, keepdims=True))[1] - bits - 2)
        total = (np.trunc(terms / last) * last).sum(axis=-1)
        last = np.ldexp(1.0, np.frexp(total)[1] - bits)
        total = np.trunc(total / last) * last
    return total


def test_scores_that_tensor_cores_truncate_are_no_fault() -> None:
    """Half of the keys have their scores truncated 255 times, always towards zero, and a few values, of other keys, show it."""
    q, kv, d, depth = 2, 1024, 4096, 2.0**14
    rng = np.random.default_rng(1)
    Q, K, V = rng.uniform(-1, 1, (q, d)), rng.uniform(-1, 1, (kv, d)), np.zeros((kv, 8))
    Q[:, 0], K[::2], K[:, 0] = -depth * np.sqrt(d), 0, 1
    V[[100, 500, 900]] = rng.uniform(0.5, 1, (3, 8))
    inputs: Arrays = {name: a.astype(ml_dtypes.bfloat16) for name, a in (("Q", Q), ("K", K), ("V", V))}
    Q, K, V = (a.astype(np.float64) for a in inputs.values())
    references, bounds = expected(
        Task(operators.load("softmax_attention"), BF16).at(case(q=q, kv=kv, d=d, dv=8)), inputs, np
    )

    def worst(bits: int) -> float:
        scores = truncated_product(Q, K.T, bits) / np.sqrt(d)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        Y = (weights / weights.sum(axis=1, keepdims=True)) @ V
        return compare(references["Y"], bounds["Y"], Y.astype(ml_dtypes.bfloat16), np).worst

    assert worst(24) <= 1
    assert worst(20) > 1  # what is no fp32


def test_only_terms_that_may_get_lost_widen_a_bound() -> None:
    units = np.array([0.5, 1.0, 31.0, 32.0, 2.0**24])
    assert absorbed(np, units * FP32_ROUNDOFF).tolist() == [0.5, 1.0, 1.0, 0.0, 0.0]
