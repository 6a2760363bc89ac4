"""Patches: every kind is there, each where it should be, and none is to be told from a sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench.errors import SpecError
from msbench.harness.inputs import Draw
from msbench.operators import keys, patchwork
from tests import turns

seeds = st.integers(0, 10**9)
some = settings(deadline=None, max_examples=turns.examples(40))


CERTAIN = set(patchwork.EVERY) - {"uniform", "few", "spiked", "lone"}
"""Kinds that a patch is always seen to be of; a short one may have no spike, no infinity,
and no element at all that is not zero."""


def draw(seed: int, shape: tuple[int, ...], distribution: str = "patchwork", **how: object) -> np.ndarray:
    drawn = Draw(np, "test", str(seed)).floats("x", shape, distribution, **how)  # type: ignore[arg-type]
    assert drawn.dtype == np.float32 and drawn.shape == shape
    return np.asarray(drawn)


def kind_of(patch: np.ndarray) -> str:
    """What a patch of some hundred elements is, told by its elements alone."""
    size, finite = np.abs(patch[np.isfinite(patch)]), np.isfinite(patch)
    if np.isnan(patch).any():
        return "nan"
    if not finite.any():
        return "lowest"
    if np.count_nonzero(finite) > 0.98 * patch.size and not finite.all():
        return "lone"
    if not finite.all():
        return "infinities" if (patch == np.inf).any() else "gaps"
    if size.max() == 0:
        return "zeros"
    if np.count_nonzero(patch) < 30:
        return "few"
    if size.max() > 2.0**100:
        return "bottom"
    if patch.min() > 79 and patch.max() <= 88:
        return "brim"
    if size.max() > 300 and size.max() <= 328:
        return "deep"
    if size.max() > 2.0**17 - 2.0**10 and size.max() <= 2.0**17 + 2.0**10:
        return "abyss"
    largest = {
        2.0**40: "large",
        256.0: "spiked",
        100.0: "positive" if patch.max() > 0 else "negative",
        30.0: "tens" if patch.max() > 0 else "minus_tens",
        8.0: "units" if patch.max() > 0 else "minus_units",
        4.0: "ties",
        1.0: "uniform",
    }
    smaller = {2.0**-2: "quarters", 2.0**-6: "hundredths", 2.0**-10: "thousandths", 2.0**-19: "millionths"}
    smaller |= {2.0**-56: "tiny", 2.0**-127: "subnormal"}
    found = [kind for limit, kind in (largest | smaller).items() if limit / 2 < size.max() <= limit]
    assert len(found) == 1, size.max()
    return found[0]


def dots(x: np.ndarray) -> int:
    """How many elements are neither zero nor small integers."""
    return int(np.count_nonzero((x != np.rint(x)) | (np.abs(x) > 4)))


@some
@given(seeds, st.integers(0, 2**17))
def test_the_largest_keys_lie_a_power_of_two_apart(seed: int, count: int) -> None:
    drawn = np.asarray(keys.draw(Draw(np, "test", str(seed)), "x", count, "scattered"))
    places = np.flatnonzero(np.isfinite(drawn) & (drawn > 2.0**41))
    apart = 2 ** max(0, count.bit_length() - 9)
    assert count < 256 or 6 <= len(places) <= 512
    assert len(np.unique(places % apart)) <= 1


@some
@given(seeds, st.integers(1, 400), st.integers(200, 400))
def test_every_row_and_every_column_is_of_one_kind(seed: int, rows: int, width: int) -> None:
    across = [kind_of(row) for row in draw(seed, (rows, width), axis=1)]
    down = [kind_of(column) for column in draw(seed, (width, rows), axis=0).T]
    for kinds in (across, down):
        assert len(set(kinds)) >= min(rows, 14) / 3
    if rows == 400:
        assert set(across) & set(down) >= CERTAIN


@some
@given(seeds, st.sampled_from([(3, 64, 70), (40, 90), (1, 900)]), st.integers(1, 12), st.integers(30, 60))
def test_tiles_are_of_one_kind(seed: int, shape: tuple[int, ...], high: int, wide: int) -> None:
    x = draw(seed, shape, tile=(high, wide), kinds=("uniform", "lowest", "large")).reshape(-1, shape[-1])
    for top in range(0, x.shape[0], high):
        for left in range(0, x.shape[1], wide):
            tile = x[top : top + high, left : left + wide]
            assert (tile == -np.inf).all() or (np.abs(tile) <= 1).all() or (np.abs(tile) > 1).mean() > 0.9


@some
@given(seeds, st.sampled_from(patchwork.NAMES), st.integers(0, 5000))
def test_memory_is_cut_into_runs_of_any_length(seed: int, distribution: str, size: int) -> None:
    x = draw(seed, (size,), distribution)
    if distribution == "patchwork" or not size or dots(x) <= patchwork.DOTS:
        return
    usual = (np.abs(x) <= 1) & (np.abs(x) > 2.0**-24)
    assert usual.mean() > 0.3 or size < 32


@settings(max_examples=turns.examples(100))
@given(seed=st.integers(0, 2**32), count=st.integers(1, 3000))
def test_combs_of_keys_are_the_largest_each_in_one_thread_of_many_grids(seed: int, count: int) -> None:
    drawn = np.asarray(keys.draw(Draw(np, "test", str(seed)), "x", count, "combed"))
    order = np.argsort(-drawn)[: np.count_nonzero(drawn > 1)]
    if count < 56:
        return
    assert drawn[order[-1]] > 2 or count < 560  # later combs may take the places of earlier ones
    level = np.floor(np.log2(drawn[order]) / 2)
    last = order[level == level.min()]  # nothing was laid over it
    distances = np.diff(np.sort(last))
    assert (5 <= last.size <= 9 or 13 <= last.size <= 28) and len(set(distances)) == 1 and distances[0] <= count // 5
    threads = distances[0] % 32 == 0 or distances[0] % patchwork.MULTIPROCESSORS == 0
    assert threads or count // last.size < 32


def test_some_lines_begin_or_end_with_minus_infinity() -> None:
    lines = np.concatenate(
        [draw(seed, (50, 400), "patchwork", axis=1, kinds=("uniform", "masked")) for seed in range(4)]
    )
    gone = lines == -np.inf
    masked = gone[gone.any(axis=1) & ~gone.all(axis=1)]
    borders = np.count_nonzero(np.diff(masked.astype(int), axis=1), axis=1)
    assert (borders == 1).all() and 50 < len(masked) < 150
    assert 0 < masked[:, 0].sum() < len(masked) and np.ptp(masked.sum(axis=1)) > 300


def test_a_thread_that_keeps_four_keys_loses_some_of_a_comb() -> None:
    """33 blocks of 192 threads, which no power of two is a multiple of."""
    lost = 0
    for seed in range(20):
        drawn = np.asarray(keys.draw(Draw(np, "test", str(seed)), "x", 100_003, "combed"))
        threads = np.argsort(-drawn)[:50] % (33 * 192)
        lost += np.bincount(threads).max() > 4
    assert lost >= 4


@turns.costly
def test_among_scattered_patches_each_kind_is_there_once_and_hardly_ever_in_a_sample() -> None:
    missed = 0
    for seed in range(50):
        x = draw(seed, (3400, 260), "scattered", axis=1)
        kinds = [kind_of(row) for row in x]
        unlike = [kind for kind in kinds if kind != "uniform"]
        assert len(unlike) < len(patchwork.EVERY) and len(set(unlike)) >= len(unlike) - 1 and set(unlike) >= CERTAIN
        sample = x[np.random.default_rng(seed).integers(0, 3400, 64), 0]
        missed += bool(((np.abs(sample) <= 1) & (np.abs(sample) > 2.0**-24)).all())
    assert missed > 25


@some
@given(seeds, st.integers(0, 10**5))
def test_dotted_arrays_are_harmless_but_for_a_few_numbers(seed: int, size: int) -> None:
    x = draw(seed, (size,), "dotted", kinds=patchwork.SMALL)
    assert min(size, 1) <= dots(x) <= patchwork.DOTS
    assert dots(x) <= np.count_nonzero(x != np.rint(x)) <= patchwork.DOTS  # a dot may be below 4
    assert len(np.unique(x)) <= 9 + patchwork.DOTS


def test_small_integers_with_dots_are_often_symmetric_and_of_rank_one_but_for_the_dots() -> None:
    found = set()
    for seed in range(60):
        x = draw(seed, (24, 24), "dotted", kinds=("uniform", "ties"))
        places = np.argwhere(x != np.rint(x))
        whole = [np.delete(np.arange(24), np.concatenate((places[:, axis], 23 - places[:, axis]))) for axis in (0, 1)]
        rest = x[np.ix_(*whole)]
        if len(places) == 1 and np.linalg.matrix_rank(rest) == 1:
            assert (rest == rest[::-1]).all() and (rest == rest[:, ::-1]).all()
            found.add(True)
        else:
            found.add(False)
    assert found == {True, False}


def test_dots_may_be_nothing_but_nan_or_an_infinity_where_such_are_allowed() -> None:
    strange, others = set(), 0
    for seed in range(120):
        x = draw(seed, (500,), "dotted")
        finite = np.isfinite(x)
        others += finite.all()
        if not finite.all():
            assert np.count_nonzero(~finite) <= patchwork.DOTS and (x[finite] == np.rint(x[finite])).all()
            strange |= set(map(str, x[~finite]))
    assert strange == {"nan", "inf", "-inf"} and 70 < others < 110
    assert all(np.isfinite(draw(seed, (500,), "dotted", kinds=patchwork.SMALL)).all() for seed in range(20))


def test_dots_among_zeros_often_add_up_to_zero() -> None:
    drawn = [draw(seed, (4096,), "dotted", kinds=("uniform", "zeros")) for seed in range(60)]
    assert 25 < sum(float(np.sum(x.astype(np.float64))) == 0 for x in drawn) < 55


def test_zeros_with_dots_are_as_frequent_as_small_integers_and_either_only_where_it_is_allowed() -> None:
    zeros = sum(np.count_nonzero(draw(seed, (200, 64), "dotted", axis=1)) <= patchwork.DOTS for seed in range(60))
    assert 15 < zeros < 45
    assert dots(draw(1, (200, 64), "dotted", axis=1, kinds=("uniform", "tiny"))) > patchwork.DOTS


def test_nans_have_both_signs_but_among_keys() -> None:
    x = draw(3, (20, 5000), axis=1)
    assert 0.4 < np.signbit(x[np.isnan(x)]).mean() < 0.6
    for distribution in patchwork.NAMES:
        sorted_by = np.asarray(keys.draw(Draw(np, "test", "3"), "x", 100_000, distribution))
        assert not np.signbit(sorted_by[np.isnan(sorted_by)]).any()


@some
@given(seeds, st.integers(64, 2**17))
def test_keys_come_in_runs_as_long_as_chunks(seed: int, count: int) -> None:
    drawn = np.asarray(keys.draw(Draw(np, "test", str(seed)), "x", count, "runs"))
    ends = np.flatnonzero(np.diff(drawn) < 0) + 1
    assert (ends % ends[0] == 0).all() and len(np.unique(drawn)) == count
    blocks = [patchwork.MULTIPROCESSORS * 2**k for k in range(4)]
    odd = int(ends[0]) >> (int(ends[0]) & -int(ends[0])).bit_length() - 1
    packet = len(ends) == 1 and count - ends[0] <= 16
    assert (
        packet or ends[0] in [-(-count // n) for n in blocks] or (len(ends) == 1 and odd in (1, 15, 45, 315, 385, 221))
    )


@pytest.mark.parametrize(
    ("size", "least"), [(1536, 3), (1792, 4), (2048, 6), (2304, 6), (2560, 3), (2816, 2), (3328, 2), (3840, 6)]
)
@pytest.mark.parametrize("distribution", ["sorted", "runs", "descending"])
def test_keys_are_in_order_inside_of_chunks_of_many_a_size(size: int, least: int, distribution: str) -> None:
    hidden = 0
    for seed in range(30):
        drawn = np.asarray(keys.draw(Draw(np, "test", str(seed)), "x", 100_003, distribution))
        steps = np.diff(-drawn if distribution == "descending" else drawn)
        ends = np.flatnonzero(steps < 0) + 1
        assert len(ends) == 1 or distribution == "runs"
        hidden += bool((ends % size == 0).all())
    assert hidden >= least


def test_order_is_broken_behind_the_last_whole_packet() -> None:
    drawn = [np.asarray(keys.draw(Draw(np, "test", str(seed)), "x", 1003, "runs")) for seed in range(40)]
    ends = [int(np.flatnonzero(np.diff(x) < 0)[0]) + 1 for x in drawn]
    assert {1002, 1000, 992} < set(ends)


def test_zeros_have_both_signs_and_few_terms_are_few() -> None:
    zeros = draw(1, (64, 2000), axis=1, kinds=("uniform", "zeros"))
    zeros = zeros[(zeros == 0).all(axis=1)]
    assert len(zeros) > 9 and 0.4 < np.signbit(zeros).mean() < 0.6
    few = np.count_nonzero(draw(1, (400, 2000), axis=1, kinds=("uniform", "few")), axis=1)
    assert 2 < few[few < 100].mean() < 6


def test_a_lone_infinity_often_comes_last() -> None:
    for x in (
        draw(1, (400, 300), axis=1, kinds=("uniform", "lone")),
        draw(1, (300, 400), axis=0, kinds=("uniform", "lone")).T,
    ):
        infinite = ~np.isfinite(x)
        assert 60 < infinite[:, -1].sum() < 140 and infinite[:, :-1].any()
        assert infinite.sum() < 2 * infinite.any(axis=1).sum()


@pytest.mark.parametrize("kinds", [(), ("few",), ("uniform", "odd")])
def test_kinds_are_checked(kinds: tuple[str, ...]) -> None:
    with pytest.raises(SpecError, match="uniform first"):
        draw(1, (3,), kinds=kinds)
