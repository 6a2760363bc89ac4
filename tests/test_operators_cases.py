"""Cases are selected by split, id and seed."""

from __future__ import annotations

import dataclasses

import pytest

from msbench import operators
from msbench.errors import UnknownNameError
from msbench.spec import Case, Split


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


def test_a_distribution_after_an_id_belongs_to_it() -> None:
    op = operators.load("vector_add")
    assert ids(operators.select_cases(op, "odd,N=7,large")) == ["N=1000003", "N=7,large"]
    assert ids(operators.select_cases(op, "N=7+large")) == ["N=7", "N=67108864"]


def test_a_public_size_with_other_inputs_stays_public() -> None:
    [case] = operators.select_cases(operators.load("vector_add"), "N=1024,spiked")
    assert (case.split, case.distribution) == (Split.PAPER, "spiked")


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
    assert len(drawn) == 40 == len(set(ids(drawn)))
    for case in drawn:
        dims = dict(case.dims)
        assert list(dims) == [d.name for d in op.dims]
        assert all(d.low <= dims[d.name] <= d.high for d in op.dims)
        assert operators.elements(op, dims) <= 10_000
        assert op.valid is None or op.valid(**dims)
        assert case.split is Split.HELDOUT
    assert len({case.distribution for case in drawn}) > len(op.distributions) / 2
    assert any(1 in dict(case.dims).values() for case in drawn)


def test_heldout_cases_depend_on_the_seed_alone() -> None:
    op = operators.load("softmax")
    assert operators.heldout(op, 5) == operators.heldout(op, 5)
    assert operators.heldout(op, 5) != operators.heldout(op, 6)


def test_heldout_cases_run_out_where_the_ranges_do() -> None:
    op = operators.load("vector_add")
    narrow = dataclasses.replace(op, dims=(dataclasses.replace(op.dims[0], high=2),), distributions=("uniform",))
    assert sorted(ids(operators.heldout(narrow, 1, count=9))) == ["N=1", "N=2"]
