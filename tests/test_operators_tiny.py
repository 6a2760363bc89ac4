"""Tiny hidden sizes: many, valid, spread over what dimensions may be, and different for each seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from msbench import operators
from msbench.harness.inputs import generate
from msbench.operators import elements
from msbench.operators.patchwork import OF_EVERY_KIND
from msbench.operators.tiny import (
    BROAD_COUNT,
    CORNER_COUNT,
    COUNT,
    EDGE_COUNT,
    EDGES,
    MOST_ELEMENTS,
    SQUARE_ELEMENTS,
    THINNEST_ELEMENTS,
    tiny,
)
from msbench.spec import Precision, Split, Task

SEEDS = range(6)


@pytest.mark.parametrize("name", operators.names())
def test_they_obey_the_spec_and_hold_few_elements(name: str) -> None:
    op = operators.load(name)
    for seed in SEEDS:
        cases = tiny(op, seed)
        assert cases == tiny(op, seed) and len({(case.dims, case.distribution) for case in cases}) == len(cases) > 5
        for case in cases:
            dims = dict(case.dims)
            assert case.split is Split.HELDOUT and case.distribution in op.distributions
            assert all(dim.low <= dims[dim.name] <= dim.high for dim in op.dims)
            assert op.valid is None or op.valid(**dims)
            assert elements(op, dims) <= THINNEST_ELEMENTS
        assert (
            sum(elements(op, dict(case.dims)) > MOST_ELEMENTS for case in cases)
            <= 16 + BROAD_COUNT + CORNER_COUNT + EDGE_COUNT
        )
    assert tiny(op, 0) != tiny(op, 1)


def test_two_sizes_are_the_largest_together() -> None:
    """A length x·y of a contraction has one bit more where both are 64 than anywhere else."""
    for seed in SEEDS:
        cases = [dict(case.dims) for case in tiny(operators.load("high_order_contraction"), seed)]
        assert any(dims["x"] == dims["y"] == 64 for dims in cases)


def test_rows_are_as_many_as_they_may_be() -> None:
    """One more than a grid has in its second and third dimension."""
    for seed in SEEDS:
        assert any(case.dim("N") == 65536 for case in tiny(operators.load("softmax"), seed))


def test_windows_lie_side_by_side_with_padding() -> None:
    for seed in SEEDS:
        cases = [dict(case.dims) for case in tiny(operators.load("max_pooling_2d"), seed)]
        assert any(dims["k"] == dims["stride"] in (2, 4, 8) and dims["padding"] for dims in cases)


def test_rows_that_are_long_are_tried_in_patches() -> None:
    for seed in SEEDS:
        cases = tiny(operators.load("softmax"), seed)
        assert any(
            case.distribution in OF_EVERY_KIND and case.dim("C") >= 4096 and case.dim("N") >= 16 for case in cases
        )


def test_a_dimension_with_few_values_takes_all_of_them() -> None:
    op = operators.load("matrix_power")
    for seed in SEEDS:
        assert {dict(case.dims)["P"] for case in tiny(op, seed)} == set(range(1, 17))


@pytest.mark.parametrize(
    ("name", "dim", "least"),
    [("conv_2d", "KW", 17), ("max_pooling_2d", "k", 12), ("high_order_contraction", "x", 16)],
)
def test_one_with_more_values_than_cases_takes_different_ones(name: str, dim: str, least: int) -> None:
    op = operators.load(name)
    for seed in SEEDS:
        assert len({dict(case.dims)[dim] for case in tiny(op, seed)}) >= least


def test_sizes_beside_multiples_of_tiles_are_frequent() -> None:
    """One column more than tiles of 96 or 128 columns hold is one size in about a hundred."""
    op = operators.load("stencil_2d")
    for tile, remainder in ((96, 1), (128, 65)):
        hit = sum(any(dict(case.dims)["ny"] % tile == remainder for case in tiny(op, seed)) for seed in range(40))
        assert hit > 15  # of sizes without a preference, 11 for 96 and 9 for 128


def test_each_long_dimension_comes_near_its_end() -> None:
    for name, long in (("rope", ("M", "D")), ("conv_1d", ("K",)), ("triangle_attention", ("S",))):
        op = operators.load(name)
        for seed in SEEDS:
            sizes = [dict(case.dims) for case in tiny(op, seed)]
            for dim in op.dims:
                assert any(one[dim.name] >= dim.high / 2 for one in sizes) or dim.name not in long


def test_an_operator_of_one_dimension_has_no_thin_ones() -> None:
    op = operators.load("vector_add")
    *some, one, two, three, four = (case for case in tiny(op, 0) if dict(case.dims)["N"] not in (1, 2, *EDGES))
    assert all(elements(op, dict(case.dims)) <= SQUARE_ELEMENTS for case in some) and len(some) <= COUNT
    for number, broad in enumerate((one, two, three, four)):
        assert 1 <= dict(broad.dims)["N"] % (105 * 2 ** (9 + number)) <= 7


@pytest.mark.parametrize("name", ["matrix_transpose", "stencil_2d", "matrix_vector_mul", "batch_norm"])
def test_wide_matrices_show_who_divides_by_a_reciprocal_in_32_bits(name: str) -> None:
    op = operators.load(name)

    def wrong(rows: int, width: int) -> bool:
        reciprocal = -(-(2**32) // width)
        return any(((row * width + width - 1) * reciprocal) >> 32 != row for row in range(min(rows, 2**32 // width)))

    broad = [[[size for _, size in case.dims] for case in tiny(op, seed)[-BROAD_COUNT:]] for seed in range(20)]
    assert sum(any(wrong(*sizes) for sizes in some) for some in broad) > 15


@pytest.mark.parametrize("name", ["spmv_csr", "spmm_csr", "spmm_coo", "spmv_ell"])
def test_some_sparse_matrices_have_hundreds_of_long_rows(name: str) -> None:
    op = operators.load(name)
    sizes = [[dict(case.dims) for case in tiny(op, seed)] for seed in range(20)]

    def long(rows: int, nnz: int = 0, w: int = 0, **_: int) -> bool:
        return rows > 128 and (w or nnz / rows) > 1050

    assert sum(any(long(**dims) for dims in some) for some in sizes) > 15


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("vector_add", "N"),
        ("matrix_scalar_mul", "M"),
        *(
            (f"{product}_{format}", dim)
            for product in ("spmv", "spmm")
            for format in ("coo", "csr", "csc")
            for dim in ("rows", "cols")
        ),
        *((name, "cols") for name in ("spmv_ell", "spmm_ell")),
    ],
)
def test_what_holds_an_index_in_16_bits_is_met(name: str, dim: str, edge: int) -> None:
    op = operators.load(name)
    for seed in SEEDS:
        assert edge in {dict(case.dims)[dim] for case in tiny(op, seed)}


def test_most_sparse_matrices_there_have_an_entry_in_the_last_column() -> None:
    op = operators.load("spmv_ell")
    last = [
        max(generate(Task(op, Precision.FP32).at(case), seed, np)["col_ids"].flat) == dict(case.dims)["cols"] - 1
        for seed in range(12)
        for case in tiny(op, seed)
        if dict(case.dims)["cols"] == EDGES[0]
    ]
    assert sum(last) > 0.75 * len(last)


def test_the_least_size_is_always_there() -> None:
    for name in operators.names():
        op = operators.load(name)
        least = tuple((dim.name, dim.low) for dim in op.dims)
        if op.valid is None or op.valid(**dict(least)):
            assert all(least in {case.dims for case in tiny(op, seed)} for seed in SEEDS)


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("matrix_transpose", lambda M, N: M == N and M % 32),
        ("matrix_mul", lambda M, K, N: M == K == N > 1),
        ("softmax_attention", lambda q, kv, **_: q == kv > 1),
        ("conv_2d", lambda H, W, KH, KW: H != W and max(KH, KW) <= 3),
    ],
)
def test_square_matrices_and_small_windows_are_usual(name: str, usual: Callable[..., bool]) -> None:
    op = operators.load(name)
    hit = sum(any(usual(**dict(case.dims)) for case in tiny(op, seed)) for seed in range(40))
    assert hit >= 36


def test_some_sparse_matrices_have_few_long_rows_and_a_narrow_operand() -> None:
    op = operators.load("spmm_csr")
    sizes = [[dict(case.dims) for case in tiny(op, seed)] for seed in range(40)]
    assert sum(any(dims["K"] <= 2 and dims["nnz"] > 1000 * dims["rows"] for dims in some) for some in sizes) > 15


def test_few_sizes_have_nothing_to_compute() -> None:
    """Such as a stencil's without an inner point."""
    for name in ("stencil_2d", "stencil_3d", "max_pooling_2d"):
        op = operators.load(name)
        sizes = [dict(case.dims) for seed in range(20) for case in tiny(op, seed)]
        assert sum(op.flops(**dims) == 0 for dims in sizes) < 0.2 * len(sizes)
