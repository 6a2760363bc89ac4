"""What a reader of a speed-up relies on: the interval covers the truth, and does not depend on which side is the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.statistics import (
    bootstrap_geometric_mean,
    bootstrap_ratio,
    converged,
    estimate,
    geometric_mean,
    log_ratios,
    median,
    proportion_interval,
    resampled_medians,
    tolerance,
)

times = st.floats(1.0, 1e9)
rounds = st.lists(st.lists(times, min_size=1, max_size=5), min_size=1, max_size=12)


def noisy(rng: np.random.Generator, true: float, drift: np.ndarray, samples: int = 20) -> list[list[float]]:
    """Rounds of a kernel that takes ``true`` ns, with noise that only ever adds, and a drift that both kernels share."""
    return [(true * d * (1 + rng.exponential(0.02, samples))).tolist() for d in drift]


def test_the_interval_covers_an_identical_kernel() -> None:
    """A/A: 95 % intervals hold 1 in about 95 of 100 comparisons (400 here, so ±3.3 at three standard errors)."""
    rng = np.random.default_rng(1)
    covered = 0
    for number in range(400):
        drift = 1 + 0.1 * rng.random(25)
        _, low, high = bootstrap_ratio(noisy(rng, 1e4, drift), noisy(rng, 1e4, drift), seed=number)
        covered += low <= 1 <= high
    assert 0.915 <= covered / 400 <= 0.985


def test_the_drift_that_both_share_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(2)
    drift = 1 + rng.random(25)  # clocks that vary by a factor of two
    estimate, low, high = bootstrap_ratio(noisy(rng, 2e4, drift), noisy(rng, 1e4, drift))
    assert estimate == pytest.approx(2, rel=0.01)
    assert 1.97 < low <= estimate <= high < 2.03


def test_a_true_difference_of_two_percent_is_seen() -> None:
    rng = np.random.default_rng(3)
    drift = np.ones(30)
    _, low, _ = bootstrap_ratio(noisy(rng, 1.02e4, drift), noisy(rng, 1e4, drift))
    assert low > 1


@given(a=rounds, b=rounds, seed=st.integers(0, 5))
def test_swapping_the_sides_gives_the_reciprocals(a: list[list[float]], b: list[list[float]], seed: int) -> None:
    estimate, low, high = bootstrap_ratio(a, b, seed)
    assert low <= estimate * (1 + 1e-9)
    assert estimate <= high * (1 + 1e-9)
    swapped = bootstrap_ratio(b, a, seed)
    assert swapped == pytest.approx((1 / estimate, 1 / high, 1 / low))


@given(a=times, b=times, n=st.integers(1, 20))
def test_constant_times_give_no_width(a: float, b: float, n: int) -> None:
    estimate, low, high = bootstrap_ratio([[a, a]] * n, [[b]] * n)
    assert estimate == low == high == pytest.approx(a / b)


@pytest.mark.parametrize("true_ns", [2500.0, 2507.0, 2511.0, 2527.0])
def test_the_ticks_of_the_clock_do_not_show(true_ns: float) -> None:
    """Events tick every 32 ns, 1.3 % of this time; what is measured begins anywhere between two ticks."""
    rng = np.random.default_rng(8)

    def ticks(time_ns: float) -> list[list[float]]:
        begins = rng.random((20, 100)) * 32
        return (32 * (np.floor((begins + time_ns) / 32) - np.floor(begins / 32))).tolist()

    assert bootstrap_ratio(ticks(true_ns), ticks(true_ns))[0] == pytest.approx(1, abs=0.002)
    assert bootstrap_ratio(ticks(true_ns * 1.01), ticks(true_ns))[0] == pytest.approx(1.01, abs=0.007)


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(4)
    a, b = noisy(rng, 1e4, np.ones(9)), noisy(rng, 1e4, np.ones(9))
    assert bootstrap_ratio(a, b, seed=7) == bootstrap_ratio(a, b, seed=7)


def test_one_outlier_round_does_not_move_the_estimate() -> None:
    a, b = [[100.0]] * 11, [[50.0]] * 10 + [[5e6]]
    assert bootstrap_ratio(a, b)[0] == pytest.approx(2.0)


def test_rounds_pair_by_index_and_empty_ones_are_left_out() -> None:
    a = [[100.0], [], [400.0], [1.0]]
    b = [[50.0], [3.0], [200.0]]
    assert bootstrap_ratio(a, b) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize(("a", "b"), [([], []), ([[1.0]], [[]]), ([[0.0]], [[1.0]]), ([[1.0]], [[-1.0]])])
def test_what_has_no_ratio_is_refused(a: list[list[float]], b: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"round|positive"):
        bootstrap_ratio(a, b)


@given(n=st.integers(1, 9), seed=st.integers(0, 3))
def test_resampling_is_the_bootstrap(n: int, seed: int) -> None:
    """The chance of each median is what drawing n of n with replacement gives."""
    values = np.arange(n, dtype=np.float64)[::-1].copy()
    found = resampled_medians(values, seed, 20_000)
    drawn = np.random.default_rng(99).integers(0, n, size=(20_000, n))
    for level in np.unique(found):
        assert np.mean(found <= level) == pytest.approx(np.mean(np.median(drawn, axis=1) <= level), abs=0.025)


def test_the_mean_speedup_of_several_cases_has_an_interval() -> None:
    rng = np.random.default_rng(6)
    cases = [log_ratios(noisy(rng, 1e4 * s, np.ones(20)), noisy(rng, 1e4, np.ones(20))) for s in (1.0, 2.0, 4.0)]
    mean, low, high = bootstrap_geometric_mean(cases)
    assert mean == pytest.approx(2, rel=0.01)
    assert low < mean < high < 1.02 * low
    assert bootstrap_geometric_mean([tuple(-one for one in case) for case in cases]) == pytest.approx(
        (1 / mean, 1 / high, 1 / low)
    )
    with pytest.raises(ValueError, match="no case"):
        bootstrap_geometric_mean([])


def test_several_sittings_have_the_luck_of_their_processes_in_the_interval() -> None:
    """Each sitting is off by its own 1 %: rounds can't show it, sittings do; the interval covers the truth in 95 of 100."""
    rng = np.random.default_rng(8)
    covered = narrow = 0
    for _ in range(200):
        a = [one for luck in rng.normal(1, 0.01, 4) for one in noisy(rng, 5e3 * luck, np.ones(10))]
        b = [one for luck in rng.normal(1, 0.01, 4) for one in noisy(rng, 5e3 * luck, np.ones(10))]
        _, low, high = bootstrap_ratio(a, b, sittings=4)
        covered += low <= 1 <= high
        _, low, high = bootstrap_ratio(a, b)
        narrow += low <= 1 <= high
    assert covered >= 180
    assert narrow < covered
    _, low, high = bootstrap_ratio(a, b, 7, 4)
    assert bootstrap_ratio(b, a, 7, 4)[1:] == pytest.approx((1 / high, 1 / low))


def luck(rng: np.random.Generator, kind: str, share: float) -> float:
    """What a process is off by: normal, or with the tails of Student's t with three degrees of freedom."""
    drawn = rng.standard_normal() if kind == "normal" else rng.standard_t(3) / math.sqrt(3)
    return 1 + share * float(drawn)


@pytest.mark.parametrize(("share", "kind"), [(0.0, "normal"), (0.001, "normal"), (0.005, "normal"), (0.005, "heavy")])
def test_four_sittings_cover_an_identical_kernel_whatever_the_luck_of_processes(share: float, kind: str) -> None:
    """A/A with four sittings of five rounds: intervals hold 1 in at least 95 of 100, from no luck at all to 0.5 %."""
    rng = np.random.default_rng(11)
    covered = 0
    for number in range(400):
        lucks = [(luck(rng, kind, share), luck(rng, kind, share)) for _ in range(4)]
        a, b = ([rng.normal(5e3 * one[side], 15, 1).tolist() for one in lucks for _ in range(5)] for side in (0, 1))
        _, low, high = bootstrap_ratio(a, b, number, 4)
        covered += low <= 1 <= high
    assert covered >= 0.95 * 400


def test_four_sittings_find_three_percent() -> None:
    rng = np.random.default_rng(12)
    found = 0
    for number in range(200):
        slow, fast = (
            [rng.normal(5e3 * factor * one, 15, 1).tolist() for one in 1 + rng.normal(0, 0.005, 4) for _ in range(5)]
            for factor in (1.03, 1.0)
        )
        found += bootstrap_ratio(slow, fast, number, 4)[1] > 1
    assert found >= 0.97 * 200


def test_sittings_that_agree_by_chance_are_no_better_known_than_their_rounds() -> None:
    a = [[value] for _ in range(4) for value in (990.0, 1000.0, 1010.0, 995.0, 1005.0)]
    b = [[1000.0]] * 20
    estimate, low, high = bootstrap_ratio(a, b, sittings=4)
    assert estimate == pytest.approx(1)
    assert high - low > 0.005


def test_sittings_pair_within_themselves() -> None:
    a = [[2.0], [], [2.0], [6.0]]
    b = [[1.0], [1.0], [2.0], [6.0]]
    first, second = log_ratios(a, b, 2)
    assert np.exp(first) == pytest.approx([2.0])
    assert np.exp(second) == pytest.approx([1.0, 1.0])
    assert math.exp(estimate((first, second))) == pytest.approx(math.sqrt(2))


def test_converged_means_within_the_half_width() -> None:
    rng = np.random.default_rng(5)
    steady = [(1e4 * (1 + rng.normal(0, 0.001, 5))).tolist() for _ in range(10)]
    shaky = [(1e4 * (1 + rng.normal(0, 0.2, 5))).tolist() for _ in range(10)]
    assert converged(steady, steady)
    assert not converged(steady, shaky)
    assert converged(steady, shaky, half_width=0.5)
    assert not converged(steady[:4], steady[:4])


@pytest.mark.parametrize(("times", "enough"), [(1.02, False), (2.0, True), (0.5, True), (30.0, True)])
def test_a_ratio_far_from_1_may_be_known_less_well(times: float, enough: bool) -> None:
    rng = np.random.default_rng(5)
    steady, noisy = ([(t * (1 + rng.normal(0, 0.03, 5))).tolist() for _ in range(12)] for t in (1e4, 1e4 * times))
    assert converged(noisy, steady) is enough
    assert tolerance(times, 0.01) == pytest.approx(tolerance(1 / times, 0.01))


def test_median() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median((1.0, 2.0)) == 1.5
    with pytest.raises(ValueError, match="no samples"):
        median([])


@given(values=st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_geometric_mean(values: list[float]) -> None:
    mean = geometric_mean(values)
    assert mean == pytest.approx(math.prod(values) ** (1 / len(values)))
    assert geometric_mean([1 / v for v in values]) == pytest.approx(1 / mean)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [-1.0]])
def test_geometric_mean_of_nothing(values: list[float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        geometric_mean(values)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(39, 40, 0.8684, 0.9994), (40, 40, 0.9119, 1.0), (0, 10, 0.0, 0.3085), (5, 10, 0.1871, 0.8129)],
)
def test_a_proportion_is_as_sure_as_it_has_trials(successes: int, trials: int, low: float, high: float) -> None:
    assert proportion_interval(successes, trials) == pytest.approx((low, high), abs=1e-4)
