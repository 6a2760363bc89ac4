"""Inputs are seeded, typed as they are stored, and of the distribution that was asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench import operators
from msbench.errors import SpecError
from msbench.harness.inputs import DISTRIBUTIONS, FEW, TINY, Draw, generate
from msbench.operators import patchwork
from msbench.spec import Array, Case, Operator, Precision, Split, Task
from tests import elementwise

VECTOR_ADD = operators.load("vector_add")


def case(n: int, distribution: str = "uniform") -> Case:
    return Case((("N", n),), Split.HELDOUT, distribution)


def draw(n: int, distribution: str = "uniform", seed: int = 0, op: Operator = VECTOR_ADD) -> Any:
    return generate(Task(op, Precision.FP32).at(case(n, distribution)), seed, np)["A"]


def test_the_generator_is_splitmix64() -> None:
    """The published outputs for seed 1234567 (Vigna's splitmix64.c)."""
    rng = Draw(np, "any")
    rng._seed = lambda name: 1234567  # type: ignore[method-assign]
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert rng.uniform("x", (5,)).tolist() == [(value >> 40) / 2**24 for value in published]


def test_inputs_have_the_storage_types_and_the_order_of_the_prototype() -> None:
    spmv = operators.load("spmv_csr")
    here = Case((("rows", 9), ("cols", 5), ("nnz", 20)), Split.HELDOUT)
    for precision, dtype in ((Precision.FP32, np.float32), (Precision.BF16, ml_dtypes.bfloat16)):
        inputs = generate(Task(spmv, precision).at(here), 3, np)
        assert list(inputs) == ["values", "col_indices", "row_offsets", "x"]
        assert inputs["values"].dtype == inputs["x"].dtype == dtype
        assert inputs["col_indices"].dtype == inputs["row_offsets"].dtype == np.int32
        assert all(array.flags.c_contiguous for array in inputs.values())


def test_f32_arrays_stay_float32_in_bf16() -> None:
    op = dataclasses.replace(VECTOR_ADD, arrays=(*VECTOR_ADD.arrays, Array("scale", ("N",), "f32")))
    inputs = generate(Task(op, Precision.BF16).at(case(4)), 0, np)
    assert inputs["scale"].dtype == np.float32 and inputs["A"].dtype == ml_dtypes.bfloat16


@settings(deadline=None)
@given(st.integers(1, 2000), st.sampled_from(sorted(DISTRIBUTIONS)), st.integers(0, 2**40))
def test_the_same_seed_gives_the_same_inputs(n: int, distribution: str, seed: int) -> None:
    np.testing.assert_array_equal(draw(n, distribution, seed), draw(n, distribution, seed))


def test_seed_case_operator_and_array_all_matter() -> None:
    base = draw(64)
    other = dataclasses.replace(VECTOR_ADD, name="another")
    both = generate(Task(VECTOR_ADD, Precision.FP32).at(case(64)), 0, np)
    for changed in (draw(64, seed=1), draw(65)[:64], draw(64, op=other), both["B"]):
        assert (base != changed).mean() > 0.9


def test_both_precisions_see_the_same_numbers() -> None:
    wide = generate(Task(VECTOR_ADD, Precision.FP32).at(case(1000)), 0, np)["A"]
    narrow = generate(Task(VECTOR_ADD, Precision.BF16).at(case(1000)), 0, np)["A"]
    np.testing.assert_array_equal(wide.astype(ml_dtypes.bfloat16), narrow)


def test_arrays_longer_than_a_chunk_have_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(5000)
    monkeypatch.setattr("msbench.harness.inputs._CPU_CHUNK", 7)
    np.testing.assert_array_equal(draw(5000), whole)


def test_uniform() -> None:
    x = draw(100_000).astype(np.float64)
    assert -1 <= x.min() < -0.999 and 0.999 < x.max() < 1
    assert abs(x.mean()) < 0.01 and abs(x.var() - 1 / 3) < 0.01
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.02


def test_the_other_distributions() -> None:
    n = 10_000
    assert set(draw(n, "integers")) == set(range(-4, 5))
    spiked = np.abs(draw(n, "spiked"))
    assert 0.005 < (spiked > 1).mean() < 0.03 and spiked.max() > 100
    [constant] = set(draw(n, "constant"))
    assert constant != 0 and constant * 8 == int(constant * 8)
    assert set(draw(n, "zeros")) == {0}
    tiny, large = draw(n, "tiny"), draw(n, "large")
    assert 0 < np.abs(tiny).max() < 1e-16 and np.abs(tiny[tiny != 0]).min() > np.finfo(np.float32).tiny
    assert 1e11 < np.abs(large).max() < 1e13
    ascending = draw(n, "sorted")
    assert (np.diff(ascending) < 0).sum() == 1 and ascending[0] < -0.999 and ascending[-1] > 0.999


def test_what_is_not_finite_lies_anywhere_or_at_both_ends_alone() -> None:
    forms = set()
    for seed in range(20):
        odd = draw(1000, "nonfinite", seed)
        if np.isnan(odd).any():
            assert np.isnan(odd).sum() == 1 and set(odd[np.isinf(odd)]) == {np.inf, -np.inf}
        else:
            assert list(np.flatnonzero(np.isinf(odd))) == [0, 999]
        forms.add(bool(np.isnan(odd).any()))
    assert forms == {True, False}


@pytest.mark.parametrize("distribution", sorted(DISTRIBUTIONS))
def test_one_element_is_enough(distribution: str) -> None:
    assert draw(1, distribution).shape == (1,)


@settings(deadline=None)
@given(st.integers(-(2**31), 2**31 - 2), st.integers(1, 2**31), st.integers(0, 99))
def test_integers_stay_in_their_range(low: int, span: int, seed: int) -> None:
    high = min(low + span, 2**31 - 1)
    values = Draw(np, str(seed)).integers("i", (200,), low, high)
    assert values.dtype == np.int32
    assert low <= values.min() and values.max() < high


def test_integers_reach_both_ends() -> None:
    assert set(Draw(np, "k").integers("i", (1000,), 5, 8)) == {5, 6, 7}


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 50), st.integers(0, 99))
def test_few_elements_of_each_column_are_not_zero(terms: int, columns: int, seed: int) -> None:
    matrix = Draw(np, str(seed)).few("m", terms, columns)
    assert (matrix.shape, matrix.dtype) == ((terms, columns), np.float32)
    parts = np.array_split(matrix != 0, [terms * part // FEW for part in range(1, FEW)])
    assert [part.sum(axis=0).tolist() for part in parts] == [[min(len(part), 1)] * columns for part in parts]


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 30))
def test_crossed_factors_are_both_large_at_a_few_places_only(terms: int, lines: int) -> None:
    draw = Draw(np, "crossed")
    left, right = draw.crossed("A", (lines, terms), 1, 0), draw.crossed("B", (terms, lines), 0, 1)
    large = [(abs(left).max(axis=0) > TINY), (abs(right).max(axis=1) > TINY)]
    assert (abs(left) <= 1).all() and (abs(right) <= 1).all()
    if lines > 5:  # else one that is large may be small by chance
        assert (large[0] & large[1]).sum() == min(FEW, terms)
        assert (large[0] | large[1]).all()


def test_positions_are_indices() -> None:
    rng = Draw(np, "k")
    assert {rng.position(str(i), 3) for i in range(50)} == {0, 1, 2}


def wrong(result: Any) -> Operator:
    def inputs(rng: Draw, distribution: str, N: int) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return dataclasses.replace(VECTOR_ADD, inputs=inputs)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (ZeroDivisionError("oops"), r"spec.py: inputs\('uniform'\) of N=4: ZeroDivisionError: oops"),
        ({"A": np.zeros(4, np.float32)}, "array 'B' is missing. Return a dict with A, B"),
        (None, "array 'A' is missing"),
        ({"A": np.zeros(4), "B": [0, 0, 0, 0]}, "array 'B' is list, no numpy array"),
        ({"A": np.zeros(4), "B": np.zeros(5)}, r"array 'B' has the shape \(5,\); the spec declares \(4,\)"),
        ({"A": np.zeros(4), "B": np.zeros(4, np.int32)}, "array 'B' is int32; the spec declares 'T'"),
    ],
)
def test_what_a_spec_s_own_inputs_get_wrong_is_named(result: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        generate(Task(wrong(result), Precision.FP32).at(case(4)), 0, np)


def test_an_unknown_distribution_is_named() -> None:
    with pytest.raises(SpecError, match=r"'gaussian' is no standard distribution\. There are uniform"):
        Draw(np, "k").floats("x", (3,), "gaussian")


def _bits(values: Any) -> bytes:
    """NaN has many patterns, and which one a conversion gives is the device's choice."""
    wide = values.astype(np.float32)
    wide[np.isnan(wide)] = np.nan
    return wide.tobytes()


WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"axis": -1},
    {"axis": 0},
    {"axis": 1, "kinds": patchwork.ORDERED},
    {"tile": (3, 5), "kinds": patchwork.TERMS},
)
"""How arrays are cut into patches, and of what kinds they are."""


def _drawn(xp: Any, distribution: str, seed: int) -> Iterator[Any]:
    """Arrays of several shapes, in every way."""
    for number, how in enumerate(WAYS):
        for shape in ((4, 60, 7), (1, 3, 33)):
            yield Draw(xp, "k", str(seed), str(number)).floats("x", shape, distribution, **how)
    yield Draw(xp, "k", str(seed)).integers("n", (100,), -5, 2**31 - 5)


@pytest.mark.parametrize("distribution", sorted({*DISTRIBUTIONS, *patchwork.NAMES}))
@given(seed=st.integers(0, 10**9))
@settings(deadline=None, max_examples=5)
def test_what_cupy_computes_in_one_kernel_has_the_same_bits(distribution: str, seed: int) -> None:
    pairs = zip(_drawn(np, distribution, seed), _drawn(elementwise.xp(), distribution, seed), strict=True)
    assert all(here.tobytes() == there.tobytes() and here.dtype == there.dtype for here, there in pairs)


@pytest.mark.gpu
@pytest.mark.parametrize("distribution", sorted({*DISTRIBUTIONS, *patchwork.NAMES}))
def test_cupy_gives_the_same_bits(distribution: str) -> None:
    import cupy

    for precision in Precision:
        here = generate(Task(VECTOR_ADD, precision).at(case(5000, distribution)), 1, np)
        there = generate(Task(VECTOR_ADD, precision).at(case(5000, distribution)), 1, cupy)
        for name in here:
            assert _bits(here[name]) == _bits(cupy.asnumpy(there[name]))
    for seed in range(3):
        for one, other in zip(_drawn(np, distribution, seed), _drawn(cupy, distribution, seed), strict=True):
            assert one.tobytes() == cupy.asnumpy(other).tobytes()


def test_a_device_without_room_is_no_fault_of_the_spec() -> None:
    def inputs(rng: Any, distribution: str, N: int) -> dict[str, Any]:
        raise MemoryError("of 8 GiB")

    with pytest.raises(MemoryError, match="of 8 GiB"):
        draw(8, op=dataclasses.replace(VECTOR_ADD, inputs=inputs))
