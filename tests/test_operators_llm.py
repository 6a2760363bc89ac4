"""batch_norm, layer_norm, rope and merge_attn_states: references against slow definitions, and what their bounds tell apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from msbench import executors, operators
from msbench.harness.check.case import check_case
from msbench.harness.check.compare import compare, expected
from msbench.harness.inputs import generate
from msbench.model import Candidate, Origin
from msbench.operators import patchwork
from msbench.spec import Case, Operator, Precision, Split, Task

FP32, BF16 = Precision.FP32, Precision.BF16
FLT_MAX = float(np.finfo(np.float32).max)
SIZES = {
    "batch_norm": [{"N": 1, "C": 1}, {"N": 9, "C": 4}],
    "layer_norm": [{"N": 1}, {"N": 37}],
    "rope": [{"M": 1, "D": 2}, {"M": 5, "D": 6}],
    "merge_attn_states": [{"T": 1, "H": 1, "D": 1}, {"T": 5, "H": 3, "D": 4}],
}
OPERATORS = {name: operators.load(name) for name in SIZES}


def case(distribution: str = "uniform", **dims: int) -> Case:
    return Case(tuple(dims.items()), Split.HELDOUT, distribution)


# ------------------------------------------------------------------ what each operator is, spelled out slowly


def normalised(x: Any, weight: Any, bias: Any, epsilon: float) -> list[float]:
    mean = math.fsum(x) / len(x)
    variance = math.fsum((v - mean) ** 2 for v in x) / len(x)
    return [w * (v - mean) / math.sqrt(variance + epsilon) + b for v, w, b in zip(x, weight, bias, strict=True)]


def slow_batch_norm(x: Any, gamma: Any, beta: Any, epsilon: float, N: int, C: int) -> Any:
    return {"y": np.transpose([normalised(x[:, j], [gamma[j]] * N, [beta[j]] * N, epsilon) for j in range(C)])}


def slow_layer_norm(x: Any, weight: Any, bias: Any, epsilon: float, N: int) -> Any:
    return {"y": normalised(x, weight, bias, epsilon)}


def slow_rope(x: Any, base: float, M: int, D: int) -> Any:
    y = np.empty((M, D))
    for m in range(M):
        for p in range(D // 2):
            turned = complex(*x[m, 2 * p : 2 * p + 2]) * np.exp(1j * m * base ** (-2 * p / D))
            y[m, 2 * p : 2 * p + 2] = turned.real, turned.imag
    return {"y": y}


def slow_merge_attn_states(Va: Any, Vb: Any, la: Any, lb: Any, T: int, H: int, D: int) -> Any:
    V, lse = np.empty((T, H, D)), np.empty((H, T))
    for t in range(T):
        for h in range(H):
            a, b = (-FLT_MAX if math.isinf(state[h, t]) else state[h, t] for state in (la, lb))
            lse[h, t] = np.logaddexp(a, b)
            share = 0.5 if a == b else 1 / (1 + math.exp(b - a)) if a > b else 1 - 1 / (1 + math.exp(a - b))
            V[t, h] = share * Va[t, h] + (1 - share) * Vb[t, h]
    return {"V": V, "lse": lse}


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
    exact = {n: a.astype(np.float64) for n, a in inputs.items()}
    slow = globals()[f"slow_{name}"](**exact, **op.scalar_values(here), **dims)
    for output in op.outputs:
        reference, bound = references[output.name], bounds[output.name]
        assert reference.shape == operators.shape(output, dims)
        scale = max(1.0, *(float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in exact.values()))
        np.testing.assert_allclose(reference, slow[output.name], rtol=1e-12, atol=1e-13 * scale**2)
        assert np.all(np.isfinite(bound)) and np.all(bound >= 0)


@pytest.mark.parametrize("name", SIZES)
def test_finite_references_have_finite_bounds_beside_nan_and_infinity(name: str) -> None:
    op = OPERATORS[name]
    for seed in range(9):
        for distribution in patchwork.NAMES:
            here = case(distribution, **SIZES[name][1])
            references, bounds = expected(Task(op, FP32).at(here), generate(Task(op, FP32).at(here), seed, np), np)
            for output, reference in references.items():
                assert np.isfinite(bounds[output][np.isfinite(reference)]).all()


def test_two_infinite_log_sum_exps_give_the_mean_and_one_gives_the_other_state() -> None:
    op = OPERATORS["merge_attn_states"]
    Va, Vb = np.full((1, 4, 2), 1.0), np.full((1, 4, 2), 3.0)
    la, lb = np.array([[-np.inf], [np.inf], [np.inf], [2.0]]), np.array([[-np.inf], [-np.inf], [2.0], [-np.inf]])
    merged = op.reference(np, Va=Va, Vb=Vb, la=la, lb=lb, T=1, H=4, D=2)
    np.testing.assert_array_equal(merged["V"][0, :, 0], [2, 2, 3, 1])
    np.testing.assert_array_equal(merged["lse"][:, 0], [-FLT_MAX, -FLT_MAX, 2, 2])


# ------------------------------------------------------------------ statistics in fp32, in several ways


def two_passes(x: Any) -> Any:
    mean = np.add.reduce(x, axis=0, dtype=np.float32) / np.float32(len(x))
    return mean, np.add.reduce((x - mean) ** 2, axis=0, dtype=np.float32) / np.float32(len(x))


def welford(x: Any) -> Any:
    mean = squares = np.zeros(x.shape[1:], np.float32)
    for count, row in enumerate(x, 1):
        step = row - mean
        mean = mean + step / np.float32(count)
        squares = squares + step * (row - mean)
    return mean, squares / np.float32(len(x))


def one_pass(x: Any) -> Any:
    """E[x²] - E[x]²."""
    mean = np.add.reduce(x, axis=0, dtype=np.float32) / np.float32(len(x))
    return mean, np.add.reduce(x * x, axis=0, dtype=np.float32) / np.float32(len(x)) - mean * mean


def closeness(statistics: Any, distribution: str, N: int, seed: int, fused: bool = False) -> float:
    """The largest error over bound of a batch normalisation in fp32 with these statistics."""
    op = OPERATORS["batch_norm"]
    here = case(distribution, N=N, C=16)
    inputs = generate(Task(op, FP32).at(here), seed, np)
    references, bounds = expected(Task(op, FP32).at(here), inputs, np)
    with np.errstate(all="ignore"):
        mean, variance = statistics(inputs["x"])
        scale = inputs["gamma"] / np.sqrt(variance + np.float32(1e-5))
        shift = inputs["beta"] - mean * scale
        y = inputs["x"] * scale + shift if fused else (inputs["x"] - mean) * scale + inputs["beta"]
        return compare(references["y"], bounds["y"], y.astype(np.float32), np).worst


ORDINARY = [d for d in OPERATORS["batch_norm"].distributions if d not in patchwork.NAMES]


@pytest.mark.parametrize("statistics", [two_passes, welford])
@pytest.mark.parametrize("distribution", ORDINARY)
def test_two_passes_and_welford_are_well_within_the_bound(statistics: Any, distribution: str) -> None:
    for N in (1, 2, 3, 17, 256, 1003):
        assert closeness(statistics, distribution, N, seed=N) < 0.7
        assert closeness(statistics, distribution, N, seed=N, fused=True) < 0.7


@pytest.mark.parametrize("N", [3, 17, 256, 1003])
def test_one_pass_is_rejected_where_it_loses_the_variance_and_nowhere_else(N: int) -> None:
    assert closeness(one_pass, "uniform", N, seed=N) < 1
    assert closeness(one_pass, "offset", N, seed=N) > 3


# ------------------------------------------------------------------ kernels that are right on uniform inputs only


def passes(op: Operator, source: str, here: Case) -> bool:
    with executors.pick("cpu") as executor:
        candidate = Candidate(op.name, FP32, source, Origin.EXTERNAL)
        built = executor.build(op, candidate)
        assert built.failure is None, built.log
        return all(
            r.passed for r in check_case(executor, executor.open(op, built, candidate), Task(op, FP32).at(here), 1)
        )


def edited(op: Operator, *edits: tuple[str, str]) -> str:
    return operators.Mutant("", edits).source(operators.versions(Task(op, FP32))[0].source)


def test_the_check_finds_a_one_pass_variance() -> None:
    op = OPERATORS["batch_norm"]
    source = edited(
        op,
        ("static_cast<float>(x[row * C + column]) - mean;", "static_cast<float>(x[row * C + column]);"),
        ("column_sum(squares) / N + epsilon", "column_sum(squares) / N - mean * mean + epsilon"),
    )
    assert passes(op, source, case("uniform", N=999, C=5))
    assert not passes(op, source, case("offset", N=999, C=5))


def test_the_check_finds_weights_without_the_maximum() -> None:
    op = OPERATORS["merge_attn_states"]
    source = edited(op, ("expf(a - most)", "expf(a)"), ("expf(b - most)", "expf(b)"), ("most + logf", "logf"))
    assert not passes(op, source, case("uniform", T=9, H=3, D=5))  # by its outliers
    assert not passes(op, source, case("patchwork", T=9, H=3, D=5))


def test_the_check_finds_powers_by_recurrence() -> None:
    op = OPERATORS["rope"]
    source = edited(
        op,
        (
            "float angle = row * powf(base, -2.0f * pair / D);",
            "float step = powf(base, -2.0f / D), power = 1;\n"
            "    for (int64_t p = 0; p < pair; ++p) power *= step;\n    float angle = row * power;",
        ),
    )
    assert not passes(op, source, case("uniform", M=200, D=2048))


def test_a_light_state_of_large_values_may_outweigh_a_heavy_one_of_small_values() -> None:
    """In patches some weights are e^-80 of the other, and their values times that still count."""
    op = operators.load("merge_attn_states")
    case = Case((("T", 500), ("H", 4), ("D", 64)), Split.ODD, "patchwork")
    drawn = {name: array.astype(np.float64) for name, array in generate(Task(op, FP32).at(case), 1, np).items()}
    with np.errstate(invalid="ignore"):
        gap = np.abs(drawn["la"] - drawn["lb"])
        assert 0.02 < (np.isfinite(gap) & (gap > 52)).mean() < 0.2
        lighter = np.where((drawn["la"] < drawn["lb"]).T[:, :, None], drawn["Va"], drawn["Vb"])
        heavier = np.where((drawn["la"] < drawn["lb"]).T[:, :, None], drawn["Vb"], drawn["Va"])
        share = np.exp(-gap).T[:, :, None] * np.abs(lighter) > 1e-3 * np.abs(heavier)
    assert (share & ((gap > 52) & np.isfinite(gap)).T[:, :, None]).any()


@pytest.mark.parametrize("name", ["softmax_attention", "triangle_attention"])
def test_some_queries_have_no_score_above_what_may_stand_for_minus_infinity(name: str) -> None:
    op = operators.load(name)
    dims = {"q": 60, "kv": 40, "d": 8, "dv": 8, "B": 1, "H": 2, "S": 40, "D": 64}
    case = Case(tuple((dim.name, dims[dim.name]) for dim in op.dims), Split.ODD, "patchwork")
    drawn = generate(Task(op, FP32).at(case), 1, np)
    with np.errstate(invalid="ignore"):
        if name == "softmax_attention":
            largest = (drawn["Q"].astype(np.float64) @ drawn["K"].T / math.sqrt(8)).max(axis=1)
        else:  # of the query and channel with the lowest scores, where all keys are near 1
            largest = (drawn["q"].min(axis=2) * drawn["k"].min(axis=2)).ravel() / 8.0
    assert (largest < -1e4).any() and (largest < -65504).any() and (largest > -1).any()
