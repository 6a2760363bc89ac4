"""Every element counts; NaN and infinity must be where they belong; overflow is right at a format's limit only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.errors import SpecError
from msbench.harness import compare as module
from msbench.harness.compare import compare, expected, prepare
from msbench.harness.inputs import generate
from msbench.spec import Precision
from tests.harness.fakes import OPERATOR, case

BF16 = ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
F32_MAX = float(np.finfo(np.float32).max)


def one(reference: float, bound: float, got: float, dtype: Any = np.float32) -> bool:
    """Whether a single element is right."""
    with np.errstate(over="ignore"):
        found = compare(np.array([reference]), np.array([bound]), np.array([got], dtype=dtype), np)
    assert (found.wrong == 0) == (found.worst <= 1)
    return found.wrong == 0


@pytest.mark.parametrize(
    ("reference", "bound", "got", "right"),
    [
        (1.0, 0.25, 1.25, True),
        (1.0, 0.25, 1.2500001, False),
        (1.0, 0.0, 1.0, True),
        (1.0, 0.0, 1.0000001, False),
        (0.0, 0.0, -0.0, True),
        (NAN, 1.0, NAN, True),
        (NAN, NAN, NAN, True),
        (NAN, INF, 0.0, False),
        (NAN, 1.0, INF, False),
        (INF, 0.0, INF, True),
        (INF, NAN, INF, True),
        (INF, 1.0, -INF, False),
        (INF, INF, 3.0, False),
        (INF, 1.0, NAN, False),
        (-INF, 1.0, -INF, True),
        (1.0, 1e30, NAN, False),
        (1.0, 1e30, INF, False),
        (1.0, INF, -5.0, True),
        (1.0, INF, NAN, False),
    ],
)
def test_finite_and_not(reference: float, bound: float, got: float, right: bool) -> None:
    assert one(reference, bound, got) is right


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_overflow(dtype: Any) -> None:
    """Rounding to nearest gives infinity from half a unit in the last place above the largest finite number."""
    largest = float(ml_dtypes.finfo(dtype).max)
    limit = largest + (largest - float(np.nextafter(dtype(largest), dtype(0)))) / 2
    with np.errstate(over="ignore"):
        assert np.isinf(np.float64(limit).astype(dtype))
        assert not np.isinf(np.float64(limit * (1 - 2.0**-20)).astype(dtype))
    assert one(limit, 0.0, INF, dtype)
    assert one(-limit, 0.0, -INF, dtype)
    assert one(1e300, 0.0, INF, dtype)
    assert not one(limit, 0.0, -INF, dtype)
    assert not one(1e300, 1e290, largest, dtype)  # saturated: no rounding gives that
    assert one(limit, limit * 2.0**-8, largest, dtype)  # within the bound
    assert not one(limit * 0.999, 0.0, INF, dtype)
    assert one(limit * 0.999, limit * 0.002, INF, dtype)  # a right kernel may round up to it
    assert not one(limit * 0.9, limit * 0.01, INF, dtype)


def test_integers_are_compared_exactly() -> None:
    reference = np.array([2**31 - 1, -(2**31), 0])
    good = reference.astype(np.int32)
    assert compare(reference, np.zeros(1), good, np).wrong == 0
    found = compare(reference, np.zeros(1), good + np.array([0, 1, 0], np.int32), np)
    assert (found.wrong, found.index, found.expected, found.got) == (1, (1,), -(2.0**31), -(2.0**31) + 1)


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    chunk=st.integers(1, 100),
    data=st.data(),
)
def test_exactly_the_wrong_elements_are_counted(shape: tuple[int, int], chunk: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    reference = rng.uniform(-1, 1, shape)
    bound = np.full(shape, 0.5)
    got = (reference + rng.uniform(-0.4, 0.4, shape)).astype(np.float32)
    size = got.size
    wrong = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    for number, at in enumerate(wrong):
        got.flat[at] = (NAN, 7.0, INF, -9.0)[number % 4]
    before = module._CHUNK
    module._CHUNK = chunk
    try:
        found = compare(reference, bound, got, np)
    finally:
        module._CHUNK = before
    assert (found.total, found.wrong) == (size, len(wrong))
    if wrong:
        assert found.index == tuple(int(i) for i in np.unravel_index(wrong[0], shape))
        assert found.worst > 1
        assert found.bound == 0.5
    else:
        assert found.index is None
        assert 0 <= found.worst <= 0.8001
        assert found.max_abs_error == pytest.approx(2 * found.worst * 0.25)


def test_one_bound_for_all_and_one_each_agree() -> None:
    reference, got = np.zeros(10), np.linspace(0, 1, 10, dtype=np.float32)
    single = compare(reference, np.array([0.5]), got, np)
    assert single == compare(reference, np.full(10, 0.5), got, np)
    assert single.wrong == 5
    assert single.worst == pytest.approx(2.0)


def test_poisoned_elements_are_counted() -> None:
    got = np.array([1.0, 0, 0, 3.0], dtype=BF16)
    got[1:3].view(np.uint8)[...] = 0xFF
    found = compare(np.ones(4), np.zeros(1), got, np, poison=0xFF)
    assert (found.wrong, found.poisoned, found.index) == (3, 2, (1,))


@pytest.mark.parametrize("bound", [NAN, -1.0])
def test_a_senseless_bound_is_the_specs_fault(bound: float) -> None:
    with pytest.raises(SpecError, match="bound"):
        compare(np.ones(3), np.full(3, bound), np.ones(3, np.float32), np)


def test_empty_arrays_are_right() -> None:
    assert compare(np.zeros((0, 3)), np.zeros(1), np.zeros((0, 3), np.float32), np).wrong == 0


# ------------------------------------------------------------------ expected values


@pytest.mark.parametrize("precision", list(Precision))
def test_references_are_float64_of_the_rounded_inputs(precision: Precision) -> None:
    prepared = prepare(OPERATOR, precision, case(50), 3, np)
    inputs = generate(OPERATOR, precision, case(50), 3, np)
    assert {n: a.tobytes() for n, a in prepared.inputs.items()} == {n: a.tobytes() for n, a in inputs.items()}
    x = inputs["x"].astype(np.float64)
    assert prepared.references["y"].dtype == np.float64
    np.testing.assert_array_equal(prepared.references["y"], 3.0 * x[inputs["index"]])
    assert prepared.bounds["rank"].size == 1
    assert prepared.bounds["y"].max() < 20 * precision.unit_roundoff


def test_a_bound_is_broadcast_to_its_output() -> None:
    rows = replace(OPERATOR, bound=lambda xp, u, out, **_: {"y": xp.ones((1, 50))[0], "rank": 0.0})
    inputs = generate(OPERATOR, Precision.FP32, case(50), 3, np)
    _, bounds = expected(rows, Precision.FP32, case(50), inputs, np)
    assert bounds["y"].shape == (50,)


def test_what_the_spec_forgets_is_said() -> None:
    inputs = generate(OPERATOR, Precision.FP32, case(50), 3, np)
    forgetful = replace(OPERATOR, reference=lambda xp, x, **_: x)
    with pytest.raises(SpecError, match="gather_scale: reference must return y, rank, not y"):
        expected(forgetful, Precision.FP32, case(50), inputs, np)
    odd = replace(OPERATOR, reference=lambda xp, x, **_: {"y": x[:10], "rank": x})
    with pytest.raises(SpecError, match="shape"):
        references, bounds = expected(odd, Precision.FP32, case(50), inputs, np)
        compare(references["y"], bounds["y"], np.zeros(50, np.float32), np)


@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_a_glance_agrees_with_the_comparison_wherever_nothing_is_wrong(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msbench.harness.compare._CHUNK", chunk)
    reference = np.linspace(-3, 5, 11)
    for bound in (np.full(11, 0.25), np.array([0.25])):
        got = (reference + np.linspace(-0.2, 0.24, 11)).astype(np.float32)
        found = compare(reference, bound, got, np)
        within, worst, max_abs_error = module.glance(reference, bound, got, np)
        assert (within, worst, max_abs_error) == (1, found.worst, found.max_abs_error)
        assert found.wrong == 0
        for value in (np.nan, np.inf, 9.0):
            for index in (0, 10):
                other = got.copy()
                other[index] = value
                assert module.glance(reference, bound, other, np)[0] == 0
    assert module.glance(np.full(11, np.nan), np.zeros(1), np.full(11, np.nan, np.float32), np)[0] == 0
    assert module.glance(np.zeros(11), np.zeros(1), np.zeros(11, np.float32), np).tolist() == [1, 0, 0]
    assert module.glance(np.zeros(0), np.zeros(1), np.zeros(0, np.float32), np).tolist() == [1, 0, 0]
