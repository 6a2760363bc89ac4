"""Cases are selected by split, id and seed."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench import operators
from msbench.errors import UnknownNameError
from msbench.harness.inputs import generate
from msbench.spec import Case, Operator, Precision, Scalar, Split, Task


def ids(cases: tuple[Case, ...]) -> list[str]:
    return [case.id for case in cases]


def test_selectors() -> None:
    op = operators.load("vector_add")
    paper = ["N=1024", "N=4096", "N=16384", "N=65536", "N=262144"]
    assert ids(operators.select_cases(op, "paper")) == paper
    assert ids(operators.select_cases(op, "large,odd")) == ["N=67108864", "N=1000003"]
    assert ids(operators.select_cases(op, "all")) == [*paper, "N=67108864", "N=1000003"]
    assert ids(operators.select_cases(op, "smallest")) == ["N=1024"]
    assert ids(operators.select_cases(op, "smallest+paper")) == paper
    assert ids(operators.select_cases(op, "N=4096")) == ["N=4096"]
    assert operators.select_cases(op, "heldout", 3) == operators.heldout(op, 3)


def test_case_ids_within_a_selector() -> None:
    op = operators.load("matrix_mul")
    text = "M=64,N=2048,K=4096,M=3,N=5,K=7,spiked+paper"
    selected = operators.select_cases(op, text)
    assert ids(selected)[:2] == ["M=64,N=2048,K=4096", "M=3,N=5,K=7,spiked"]
    assert [case.split for case in selected[:2]] == [Split.PAPER, Split.HELDOUT]
    assert len(selected) == 2 + 4


def test_sizes_that_do_not_go_together_are_refused() -> None:
    """A window that is wider than the padded image has no result; C++ and the definition round its count differently."""
    op = operators.load("max_pooling_2d")
    with pytest.raises(UnknownNameError, match=r"do not go together: see `valid` in .*max_pooling_2d/spec.py"):
        operators.select_cases(op, "N=1,C=1,H=2,W=2,k=4,stride=3,padding=0")


def test_a_distribution_after_an_id_belongs_to_it() -> None:
    op = operators.load("vector_add")
    assert ids(operators.select_cases(op, "odd,N=7,sorted")) == ["N=1000003", "N=7,sorted"]
    assert ids(operators.select_cases(op, "N=7+large")) == ["N=7", "N=67108864"]


def test_a_public_size_with_other_inputs_stays_public() -> None:
    [case] = operators.select_cases(operators.load("vector_add"), "N=1024,spiked")
    assert (case.split, case.distribution) == (Split.PAPER, "spiked")


def test_a_large_case_has_a_twin_with_other_inputs() -> None:
    op = operators.load("sorting")
    [large] = operators.select_cases(op, "large")
    assert operators.twin(op, large) == dataclasses.replace(large, distribution="magnitudes")
    assert operators.twin(op, dataclasses.replace(large, distribution="sorted")) is None
    assert all(operators.twin(op, case) is None for case in operators.select_cases(op, "paper+odd+heldout"))


def test_large_cases_are_taken_with_their_twins() -> None:
    op = operators.load("vector_add")
    cases = operators.with_twins(op, operators.select_cases(op, "paper+large"))
    *_, large, twin = cases
    assert (large.split, twin) == (Split.LARGE, operators.twin(op, large))
    assert operators.with_twins(op, cases) == cases
    assert operators.twins_among(cases) == {large.id: twin.id}
    assert operators.twins_among(cases[:-1]) == {}


@pytest.mark.parametrize("name", operators.names())
def test_the_twin_of_every_operator_can_be_drawn(name: str) -> None:
    op = operators.load(name)
    [large] = operators.select_cases(op, "large")
    [small] = operators.select_cases(op, "smallest")
    twin = operators.twin(op, large)
    assert twin is not None and (twin.dims, twin.scalars, twin.split) == (large.dims, large.scalars, Split.LARGE)
    drawn, plain = (
        generate(Task(op, Precision.FP32).at(dataclasses.replace(one, dims=small.dims)), 0, np) for one in (twin, large)
    )
    assert all(np.isfinite(array).all() for array in drawn.values())
    assert any(not np.array_equal(drawn[array], plain[array]) for array in plain)


def test_scalars_may_be_given() -> None:
    [case] = operators.select_cases(operators.load("stencil_2d"), "nx=5,ny=6,r=0.25")
    assert case.scalars == (("r", 0.25),)


@pytest.mark.parametrize(
    "text", ["", "papers", "N", "N=", "N=0", "N=2000000000", "M=4", "N=7,K=3", "N=7,gaussian", "paper,"]
)
def test_other_selectors_are_refused(text: str) -> None:
    with pytest.raises(UnknownNameError, match="There is no case of vector_add"):
        operators.select_cases(operators.load("vector_add"), text)


@pytest.mark.parametrize("name", operators.names())
def test_heldout_cases_obey_the_spec(name: str) -> None:
    op = operators.load(name)
    drawn = operators.heldout(op, 7, count=40, max_elements=10_000)
    assert (
        len(drawn) == len({case.dims for case in drawn}) == (12 if name == "fft" else 40)
    )  # fft has no more sizes up to there
    for case in drawn:
        dims = dict(case.dims)
        assert list(dims) == [d.name for d in op.dims]
        assert all(d.low <= dims[d.name] <= d.high for d in op.dims)
        assert operators.elements(op, dims) <= 10_000
        assert op.valid is None or op.valid(**dims)
        assert case.split is Split.HELDOUT
    assert len({case.distribution for case in drawn}) >= len(op.distributions) / 2
    assert any(1 in dict(case.dims).values() for case in drawn)


RANGED = [name for name in operators.names() if any(s.low is not None for s in operators.load(name).scalars)]


def test_every_scalar_has_a_range() -> None:
    assert sum(len(operators.load(name).scalars) for name in operators.names()) == 16
    assert all(s.low is not None for name in operators.names() for s in operators.load(name).scalars)


@pytest.mark.parametrize("name", RANGED)
def test_heldout_cases_have_other_scalars_which_their_ids_name(name: str) -> None:
    op = operators.load(name)
    for case in operators.heldout(op, 7, count=40, max_elements=10_000):
        values = dict(case.scalars)
        assert list(values) == [s.name for s in op.scalars]
        for scalar in op.scalars:
            value, low, high = values[scalar.name], scalar.low, scalar.high
            assert low is not None and high is not None and low <= value <= high
            assert abs(value - scalar.value) >= 0.1 * abs(scalar.value)
        [again] = operators.select_cases(op, case.id)
        assert (again.id, again.dims, again.scalars) == (case.id, case.dims, case.scalars)
        assert len(case.id) < 80


@pytest.mark.parametrize("name", ["stencil_2d", "stencil_3d"])
def test_a_filter_in_bf16_holds_the_stencils_drawn_factors(name: str) -> None:
    op = operators.load(name)
    neighbours = 2 * len(op.dims)
    for seed in range(200):
        [(_, r)] = operators.vary(op, op.cases[0], seed).scalars
        for weight in (r, 1 - neighbours * r):
            assert float(ml_dtypes.bfloat16(weight)) == weight


def scaled(scalar: Scalar) -> Operator:
    """An operator with one scalar."""
    return dataclasses.replace(operators.load("elu"), scalars=(scalar,))


def values(scalar: Scalar, count: int = 300) -> list[float | int]:
    """What is drawn for a scalar, one value a seed."""
    op = scaled(scalar)
    return [operators.vary(op, op.cases[0], seed).scalars[0][1] for seed in range(count)]


def test_wide_ranges_are_drawn_from_on_a_logarithmic_scale() -> None:
    wide = values(Scalar("a", "float", 1.0, low=1e-6, high=1.0))
    assert {1e-6} < set(wide)  # and the other end is the usual value
    between = [value for value in wide if value != 1e-6]
    assert 0.2 < sum(value < 1e-4 for value in between) / len(between) < 0.5
    narrow = values(Scalar("a", "float", 0.0, low=-1.0, high=3.0))
    assert 40 < sum(value < 0 for value in narrow) < 110
    assert all(value == float(f"{value:.3g}") for value in (*wide, *narrow))


def test_drawn_scalars_are_multiples_of_their_step() -> None:
    drawn = values(Scalar("a", "float", 0.0, low=-1.0, high=1.0, step=0.25))
    assert {4 * value for value in drawn} == {-4, -3, -2, -1, 1, 2, 3, 4}


def test_a_drawn_scalar_is_never_near_the_usual_one() -> None:
    drawn = values(Scalar("a", "float", 2.0, low=1.7, high=2.1))
    assert all(value <= 1.8 for value in drawn)
    assert 1.7 in drawn  # the end that is further away stands in for what is too near


def test_drawn_integers_are_integers() -> None:
    for scalar in (Scalar("k", "int64_t", 3, low=1, high=9), Scalar("k", "int64_t", 3, low=1, high=2**53)):
        drawn = values(scalar)
        assert all(type(value) is int and value != 3 for value in drawn)
        [case] = operators.select_cases(scaled(scalar), f"N=5,k={drawn[0]}")
        assert case.scalars == (("k", drawn[0]),)


def test_a_case_without_ranged_scalars_stays_as_it_is() -> None:
    for op in (operators.load("softmax"), scaled(Scalar("a", "float", 1.0))):
        assert operators.vary(op, op.cases[0], 1) is op.cases[0]


def test_an_id_with_a_large_scalar_names_its_case() -> None:
    op = scaled(Scalar("a", "float", 1.0, low=1e16, high=1e20))
    case = operators.vary(op, op.cases[0], 1)
    assert "+" not in case.id
    assert [c.scalars for c in operators.select_cases(op, f"{case.id}+smallest")] == [case.scalars, ()]


def test_heldout_cases_depend_on_the_seed_alone() -> None:
    op = operators.load("softmax")
    assert operators.heldout(op, 5) == operators.heldout(op, 5)
    assert operators.heldout(op, 5) != operators.heldout(op, 6)
    stencil = operators.load("stencil_2d")
    assert operators.vary(stencil, stencil.cases[0], 5) == operators.vary(stencil, stencil.cases[0], 5)
    assert operators.vary(stencil, stencil.cases[0], 5) != operators.vary(stencil, stencil.cases[0], 6)


def test_heldout_cases_run_out_where_the_ranges_do() -> None:
    op = operators.load("vector_add")
    narrow = dataclasses.replace(op, dims=(dataclasses.replace(op.dims[0], high=2),), distributions=("uniform",))
    assert sorted(ids(operators.heldout(narrow, 1, count=9))) == ["N=1", "N=2"]


@pytest.mark.parametrize("name", [name for name in operators.names() if name != "fft"])
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6))
def test_a_size_near_another_is_hidden_odd_and_nearly_as_large(name: str, seed: int) -> None:
    op = operators.load(name)
    public = max(op.cases, key=lambda one: operators.elements(op, dict(one.dims)))
    most = operators.elements(op, dict(public.dims))
    near = operators.nearly(op, public, seed)
    assert near is not None and near == operators.nearly(op, public, seed)
    dims = dict(near.dims)
    assert 0.8 * most <= operators.elements(op, dims) <= most and near.split is Split.HELDOUT
    assert op.valid is None or op.valid(**dims)
    assert any(size % 2 for size in dims.values())
    assert all(dim.low <= dims[dim.name] <= dim.high for dim in op.dims)


def test_there_is_none_near_a_power_of_two_where_nothing_else_is_allowed() -> None:
    op = operators.load("fft")
    assert operators.nearly(op, op.cases[0], 1) is None


def test_near_names_hidden_sizes_beside_public_ones() -> None:
    op = operators.load("vector_add")
    sizes = [case.dims[0][1] for case in operators.select_cases(op, "near", seed=3)]
    public = [case.dims[0][1] for case in op.cases if case.split is not Split.ODD]
    assert all(0.8 * n <= size < n and size % 2 for n, size in zip(public, sizes, strict=True))
