"""The sparse operators: references against SciPy, bounds against other orders of summation, and the matrices that are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench import bounds, operators
from msbench.harness.check.compare import expected
from msbench.harness.inputs import Draw, generate
from msbench.operators import patchwork, sparse
from msbench.spec import Case, Precision, Split, Task

FP32 = Precision.FP32
FORMATS = ("csr", "coo", "csc", "ell")
NAMES = [f"{product}_{form}" for product in ("spmv", "spmm") for form in FORMATS]
Arrays = dict[str, Any]


def case(name: str, distribution: str, rows: int, cols: int, entries: int, K: int = 5) -> Case:
    """A case of an operator with about this many stored entries."""
    stored = {"w": max(1, entries // rows)} if name.endswith("ell") else {"nnz": entries}
    return sparse.case(
        Split.HELDOUT, distribution, rows=rows, cols=cols, **stored, **({"K": K} if "mm" in name else {})
    )


def matrix(name: str, arrays: Arrays, rows: int, cols: int) -> Any:
    """SciPy's view of the sparse operand, in float64; it adds duplicates up."""
    values = arrays["values"].astype(np.float64)
    match name.partition("_")[2]:
        case "csr":
            return scipy.sparse.csr_matrix((values, arrays["col_indices"], arrays["row_offsets"]), (rows, cols))
        case "csc":
            return scipy.sparse.csc_matrix((values, arrays["row_indices"], arrays["col_offsets"]), (rows, cols))
        case "coo":
            return scipy.sparse.coo_matrix((values, (arrays["row_indices"], arrays["col_indices"])), (rows, cols))
        case _:
            row, place = np.nonzero(arrays["col_ids"] >= 0)
            entries = values[row, place], (row, arrays["col_ids"][row, place])
            return scipy.sparse.coo_matrix(entries, (rows, cols))


@pytest.mark.parametrize(
    "distribution", [d for d in sparse.ALL_DISTRIBUTIONS if d != "nonfinite" and d not in patchwork.NAMES]
)
@pytest.mark.parametrize("name", NAMES)
def test_references_agree_with_scipy(name: str, distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = operators.load(name)
    if distribution not in op.distributions:
        pytest.skip(f"{name} is not tried on it")
    for slab in (2**25, 64):  # all columns of X at once, and a few at a time
        monkeypatch.setattr(sparse, "_SLAB", slab)
        for rows, cols, entries in ((1, 1, 1), (9, 4, 20), (40, 30, 250), (30, 70, 9)):
            here = case(name, distribution, rows, cols, entries)
            arrays = generate(Task(op, FP32).at(here), 1, np)
            [reference], [bound] = (list(part.values()) for part in expected(Task(op, FP32).at(here), arrays, np))
            right = matrix(name, arrays, rows, cols) @ arrays["X" if "mm" in name else "x"].astype(np.float64)
            np.testing.assert_allclose(reference, right, rtol=1e-13, atol=1e-14 * max(1e-300, np.abs(right).max()))
            assert bound.shape == reference.shape and (bound >= 0).all() and np.isfinite(bound).all()


def fp32_sums(order: str, entries: sparse.Entries, dense: Any, rows: int) -> Any:
    """A·x as a kernel in fp32 may compute it: each row's products added in an order."""
    terms = (entries.values * dense[entries.cols]).astype(np.float32)
    result = np.zeros(rows, np.float32)
    for row in range(rows):
        mine = terms[entries.rows == row]
        if order == "pairwise":
            while mine.size > 1:
                mine = np.append(mine, np.zeros(mine.size % 2, np.float32)).reshape(-1, 2).sum(axis=1, dtype=np.float32)
        elif order == "blocked":
            mine = np.add.accumulate([np.add.accumulate(part)[-1] for part in np.array_split(mine, 7) if part.size])[
                -1:
            ]
        elif mine.size:
            mine = np.add.accumulate(mine if order == "sequential" else mine[::-1], dtype=np.float32)[-1:]
        result[row] = mine[0] if mine.size else 0
    return result


@pytest.mark.parametrize("order", ["sequential", "reversed", "pairwise", "blocked"])
@pytest.mark.parametrize("distribution", sparse.ALL_DISTRIBUTIONS)
@pytest.mark.parametrize(("rows", "nnz"), [(200, 300), (60, 3000), (1, sparse.LONGEST_MEAN)])
def test_right_sums_in_any_order_are_within_the_bound(order: str, distribution: str, rows: int, nnz: int) -> None:
    if distribution == "nonfinite":
        pytest.skip("it says nothing about rounding")
    op = operators.load("spmv_coo")
    for seed in range(3):
        here = case("spmv_coo", distribution, rows, 3 * sparse.LONGEST_MEAN, nnz)
        arrays = generate(Task(op, FP32).at(here), seed, np)
        references, limits = expected(Task(op, FP32).at(here), arrays, np)
        exact = arrays["values"].astype(np.float64), arrays["row_indices"], arrays["col_indices"]
        with np.errstate(invalid="ignore"):  # patches have infinities
            got = fp32_sums(order, sparse.from_coo(*exact), arrays["x"].astype(np.float64), rows)
        finite = np.isfinite(references["y"])
        assert (np.abs(got[finite] - references["y"][finite]) <= 0.7 * limits["y"][finite]).all()


@pytest.mark.parametrize("seed", range(3))
def test_sums_by_atomic_additions_may_flush_what_is_subnormal(seed: int) -> None:
    """Products around 2⁻¹¹², of which partial sums get close to zero now and then."""
    op = operators.load("spmv_coo")
    here = case("spmv_coo", "tiny", 4, 3000, 12000)
    arrays = generate(Task(op, FP32).at(here), seed, np)
    arrays["x"] *= np.float32(2.0**-13)
    references, limits = expected(Task(op, FP32).at(here), arrays, np)
    sums = np.zeros(4, np.float32)
    for row, col, value in zip(arrays["row_indices"], arrays["col_indices"], arrays["values"], strict=True):
        sum_ = np.float32(sums[row] + value * arrays["x"][col])
        sums[row] = sum_ if abs(sum_) >= 2.0**-126 else 0
    error = np.abs(sums - references["y"])
    assert (error <= limits["y"]).all()
    assert error.max() > 2 * bounds.FLOOR


@pytest.mark.parametrize("name", NAMES)
def test_finite_references_have_finite_bounds_beside_nan_and_infinity(name: str) -> None:
    op = operators.load(name)
    for seed in range(5):
        here = case(name, "nonfinite", 20, 9, 60)
        [reference], [bound] = (
            list(part.values())
            for part in expected(Task(op, FP32).at(here), generate(Task(op, FP32).at(here), seed, np), np)
        )
        assert not np.isfinite(reference).all() and np.isfinite(reference).any()
        assert np.isfinite(bound[np.isfinite(reference)]).all()


# ------------------------------------------------------------------ the matrices that are drawn


def draw(form: str, distribution: str, rows: int, cols: int, entries: int, seed: int = 0) -> Arrays:
    function = getattr(sparse, f"draw_{form}")
    drawn: Arrays = function(Draw(np, form, str(seed)), distribution, rows, cols, entries)
    return drawn


def listed(form: str, arrays: Arrays) -> sparse.Entries:
    made = getattr(sparse, f"from_{form}")
    return made(**arrays) if form == "coo" else made(np, **arrays)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(FORMATS),
    st.sampled_from(sparse.ALL_DISTRIBUTIONS),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 400),
    st.integers(0, 1000),
)
def test_drawn_matrices_are_well_formed(
    form: str, distribution: str, rows: int, cols: int, entries: int, seed: int
) -> None:
    stored = max(1, entries // rows) if form == "ell" else entries
    arrays = draw(form, distribution, rows, cols, stored, seed)
    entry = listed(form, arrays)
    assert entry.rows.min() >= 0 and entry.rows.max() < rows
    assert entry.cols.min() >= 0 and entry.cols.max() < cols
    if form == "ell":
        ids = arrays["col_ids"]
        assert arrays["values"].shape == ids.shape == (rows, stored)
        assert (ids >= -1).all() and (np.diff((ids < 0).astype(int), axis=1) >= 0).all()  # padding comes last
    else:
        assert entry.values.size == nnz_of(arrays) == entries


def nnz_of(arrays: Arrays) -> int:
    """What the offsets or indices say."""
    ends = [a[-1] for n, a in arrays.items() if n.endswith("_offsets")]
    assert all(a[0] == 0 for n, a in arrays.items() if n.endswith("_offsets"))
    return int(ends[0]) if ends else int(arrays["row_indices"].size)


@pytest.mark.parametrize("form", ["csr", "coo", "csc"])
def test_skewed_matrices_have_a_full_row_empty_rows_and_a_long_tail(form: str) -> None:
    entry = listed(form, draw(form, "skewed", 1000, 200, 10_000))
    lengths = np.bincount(entry.rows, minlength=1000)
    assert set(entry.cols[entry.rows == 0]) == set(range(200))
    assert (lengths[3::7] == 0).all()
    assert lengths[0] > 10 * lengths[500:].max()
    assert np.bincount(listed(form, draw(form, "uniform", 1000, 200, 10_000)).rows).max() < 30


def test_skewed_csc_matrices_have_columns_of_unequal_length() -> None:
    assert np.diff(draw("csc", "skewed", 1000, 200, 10_000)["col_offsets"]).max() > 1000
    without_full_row = np.diff(draw("csc", "skewed", 200, 1000, 1500)["col_offsets"])
    assert (without_full_row == 0).any()


def test_skewed_ell_matrices_have_a_full_row_and_rows_of_padding() -> None:
    ids = draw("ell", "skewed", 700, 300, 40)["col_ids"]
    lengths = (ids >= 0).sum(axis=1)
    assert len(set(ids[0])) == 40 and lengths[0] == 40
    assert (lengths[3::7] == 0).all()
    assert np.median(lengths) < 10 and np.sort(lengths)[-60:].min() > 20


def test_one_row_in_eight_of_other_ell_matrices_has_padding() -> None:
    for distribution in ("uniform", "integers", "duplicates"):
        lengths = (draw("ell", distribution, 4000, 300, 10)["col_ids"] >= 0).sum(axis=1)
        short = lengths < 10
        assert (short == (np.arange(4000) % 8 == 5)).all() and lengths[short].min() == 0
    assert (draw("ell", "uniform", 6, 3, 1)["col_ids"][:, 0] < 0).tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("form", FORMATS)
def test_duplicates_come_in_fours(form: str) -> None:
    entry = listed(form, draw(form, "duplicates", 50, 100, 40 if form == "ell" else 2000))
    different = len(set(zip(entry.rows.tolist(), entry.cols.tolist(), strict=True)))
    assert different < 0.35 * entry.values.size


def test_coo_is_not_sorted_or_nearly() -> None:
    for distribution in sparse.ALL_DISTRIBUTIONS:
        rows = draw("coo", distribution, 100, 50, 2000)["row_indices"]
        assert (np.diff(rows) < 0).sum() > 0 if distribution == "sorted" else (np.diff(rows) < 0).sum() > 500


def in_runs(rows: Any) -> bool:
    """Others are sorted but for two entries."""
    return np.count_nonzero(rows != np.sort(rows)) > 2


def test_some_sorted_coo_matrices_are_in_runs_of_which_each_is_sorted() -> None:
    lengths = set()
    for seed in range(12):
        rows = draw("coo", "sorted", 5000, 50, 4000, seed)["row_indices"]
        if in_runs(rows):
            ends = np.flatnonzero(np.diff(rows) < 0) + 1
            lengths.add(int(ends[0]))
            assert (ends % ends[0] == 0).mean() > 0.9
    assert len(lengths) > 2


@pytest.mark.parametrize("form", FORMATS)
def test_entries_of_sorted_matrices_are_consecutive_but_for_three(form: str) -> None:
    for seed in range(5):
        entry = listed(form, draw(form, "sorted", 100, 5000, 40 if form == "ell" else 4000, seed))
        line, place, width = (entry.cols, entry.rows, 100) if form == "csc" else (entry.rows, entry.cols, 5000)
        if form != "coo" or not in_runs(line):
            break
    inside = np.diff(line) == 0
    steps = np.diff(place)[inside] % width
    assert 1 <= np.count_nonzero(steps != 1) <= 6 + 4 * (form == "coo")  # two of whose rows are swapped


@pytest.mark.parametrize("name", NAMES)
def test_public_cases_have_one_percent_and_large_ones_fill_a_gpu(name: str) -> None:
    op = operators.load(name)
    for public in op.cases:
        dims = dict(public.dims)
        stored = dims["rows"] * dims["w"] if "w" in dims else dims["nnz"]
        size = dims["rows"] * dims["cols"]
        if public.split is Split.LARGE:
            assert stored == (2**22 if "mm" in name else 2**25) and dims["rows"] == dims["cols"]
        else:
            assert 0.0095 * size <= stored <= 0.0101 * size
        assert op.valid is not None and op.valid(**dims)
    assert {c.distribution for c in op.cases if c.split is Split.ODD} >= {"uniform", "skewed"}


@pytest.mark.parametrize("sectors", [160, 1024])
def test_no_cache_moves_fewer_sectors_than_are_counted_for_random_columns(
    sectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that knows the future (Belady 1966) is the best there is for entries in their order."""
    kept, entries = 128, 2**14
    monkeypatch.setattr(sparse, "ON_CHIP", kept * sparse.SECTOR)
    monkeypatch.setattr(sparse, "MULTIPROCESSORS", 1)
    wanted = np.random.default_rng(1).integers(0, sectors, entries).tolist()
    held: dict[int, int] = {}  # sector: where it is wanted next
    moved = 0
    for one, following in zip(wanted, _next_use(wanted), strict=True):
        if one not in held:
            moved += 1
            if len(held) == kept:
                del held[max(held, key=held.__getitem__)]
        held[one] = following
    counted = sparse.gathered(4, sectors * sparse.SECTOR // 4, entries) / sparse.SECTOR
    assert 0.3 * moved < counted <= moved


def test_gathers_count_where_the_vector_does_not_fit() -> None:
    large, small = {"rows": 2**19, "cols": 2**19, "nnz": 2**25}, {"rows": 2**15, "cols": 2048, "nnz": 671088}
    for name in ("spmv_csr", "spmv_coo"):
        gathered = operators.load(name).gathered
        assert gathered is not None
        assert gathered(4, **small) == 0
        assert 16 * 2**25 < gathered(4, **large) < 32 * 2**25  # no more than a sector each


def _next_use(sectors: list[int]) -> list[int]:
    """By place: where the same sector is wanted next."""
    following, seen = [0] * len(sectors), dict[int, int]()
    for place in range(len(sectors) - 1, -1, -1):
        following[place] = seen.get(sectors[place], len(sectors))
        seen[sectors[place]] = place
    return following


@pytest.mark.parametrize("name", ["spmm_csc", "spmm_coo"])
def test_an_infinite_value_meets_a_zero_which_may_not_be_skipped(name: str) -> None:
    """In some rows but not in all: a kernel that leaves products with zero out has no NaN there."""
    op = operators.load(name)
    case = Case((("rows", 300), ("cols", 200), ("nnz", 900), ("K", 64)), Split.ODD, "patchwork")
    for seed in range(4):
        inputs = generate(Task(op, Precision.FP32).at(case), seed, np)
        rows = inputs["row_indices"][np.isinf(inputs["values"])]
        assert 0 < len(set(rows.tolist())) < 20
        columns = np.flatnonzero((inputs["X"] == 0).mean(axis=0) > 0.9)
        (exact,) = expected(Task(op, Precision.FP32).at(case), inputs, np)[0].values()
        assert np.isnan(exact[rows][:, columns]).any()
