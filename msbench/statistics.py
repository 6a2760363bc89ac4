"""Figures computed from samples: medians, geometric means, and ratios of times with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
"""Bootstrap resamples."""

_BLOCK = 1 << 20  # drawn values held at once
_FEW = 10  # samples, of which a trimmed mean would not hold off an outlier

Rounds = Sequence[Sequence[float]]
"""One sequence of samples (ns) a round, as in ``Measurement.samples_ns``."""

Logs = tuple[npt.NDArray[np.float64], ...]
"""ln(reference / time) of each pair of rounds, one array a session."""


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones. Raises ValueError if there is none."""
    if len(samples) == 0:
        raise ValueError("no samples")
    return _median(np.asarray(samples, dtype=np.float64))


def _median(values: npt.NDArray[np.float64]) -> float:
    """What np.median gives, in a fifth of its time for a few hundred values, of which a site needs a hundred thousand."""
    ordered = np.sort(values)
    if math.isnan(ordered[-1]):
        return math.nan
    half = len(ordered) // 2
    return float(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def geometric_mean(values: Sequence[float]) -> float:
    """(∏ v)^(1/n), the mean for ratios: it does not depend on which side is the reference (Fleming and Wallace 1986).

    Raises ValueError if there is no value or one is not positive.
    """
    if not values or min(values) <= 0:
        raise ValueError("a geometric mean needs positive values")
    return math.exp(math.fsum(math.log(v) for v in values) / len(values))


def bootstrap_ratio(rounds_a: Rounds, rounds_b: Rounds, seed: int = 0, sittings: int = 1) -> tuple[float, float, float]:
    """How many times as long A takes as B (the speed-up of B over A): estimate and 95 % interval.

    Round i of A and round i of B ran back to back, so what disturbs a round (clocks, temperature) disturbs both, and
    the pair's ratio varies little. Each pair gives d = ln(centre A / centre B), see ``round_centres``; the estimate is
    exp(``estimate``), and the interval has the 2.5 and 97.5 percentiles of ``resampled``. In logarithms, swapping A and
    B gives the reciprocals.

    Args:
        rounds_a: samples of A, one sequence a round; rounds pair by index, further rounds of the longer one are ignored.
        seed: of the resampling.
        sittings: in how many equal parts the rounds were measured, each with processes of its own.

    Raises:
        ValueError: there is no pair of rounds with samples, or a time is not positive.
    """
    logs = log_ratios(rounds_a, rounds_b, sittings)
    low, high = interval(logs, seed)
    return math.exp(estimate(logs)), math.exp(low), math.exp(high)


def log_ratios(rounds_a: Rounds, rounds_b: Rounds, sittings: int = 1) -> Logs:
    """ln(centre of A's round / centre of B's round) for every pair of rounds that both have samples.

    Raises:
        ValueError: there is no such pair, or a time is not positive.
    """
    return paired_logs(round_centres(rounds_a), round_centres(rounds_b), sittings)


def estimate(logs: Logs) -> float:
    """The mean of the sessions' medians."""
    return math.fsum(_median(one) for one in logs) / len(logs)


def interval(logs: Logs, seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of ``estimate``; of zero width where all values are the same."""
    low, high = np.quantile(resampled(logs, seed), [0.025, 0.975])
    return float(low), float(high)


def sittings_needed(logs: Logs, half_width: float) -> int:
    """In how many sessions, these included, the estimate will be known to ±``half_width`` (95 %), as far as these can tell.

    The size of Stein's second sample (1945, "A two-sample test for a linear hypothesis whose power is independent of the
    variance"): (t s / half_width)², s being the standard deviation between these sessions' medians. Needs two of them.
    """
    from scipy.special import stdtrit

    t = float(stdtrit(len(logs) - 1, 0.975))
    return math.ceil((t / half_width) ** 2 * float(np.var([_median(one) for one in logs], ddof=1)))


def resampled(logs: Logs, seed: int, resamples: int = RESAMPLES) -> npt.NDArray[np.float64]:
    """Resamples of ``estimate``.

    One session: the median when whole pairs of rounds are resampled (Efron and Tibshirani 1993, "An Introduction to the
    Bootstrap", chapter 13: the percentile interval, which a monotone transformation such as exp carries along). Several:
    each session is one observation, with its processes' own luck in it, and their mean is uncertain as Student's t says
    (Student 1908). A few sessions may agree by chance better than the rounds within them allow; then those count.
    """
    if len(logs) == 1:
        return resampled_medians(logs[0], seed, resamples)
    medians = np.array([_median(one) for one in logs])
    within = [float(np.var(resampled_medians(one, seed, resamples))) for one in logs]
    error = math.sqrt(max(medians.var(ddof=1), math.fsum(within) / len(within)) / len(logs))
    values: npt.NDArray[np.float64] = medians.mean() + error * _students(len(logs) - 1, seed, resamples)
    return values


@lru_cache(maxsize=256)
def _students(freedom: int, seed: int, resamples: int) -> npt.NDArray[np.float64]:
    """Draws from Student's t, and their mirror images."""
    drawn = np.random.default_rng(seed).standard_t(freedom, resamples // 2)
    return np.concatenate([drawn, -drawn])


def round_centres(rounds: Rounds) -> npt.NDArray[np.float64]:
    """Each round's centre: the mean of its middle three fifths, or the median of fewer than ten samples; NaN without any.

    A GPU's events tick in steps that are more than a percent of the shortest kernels. The median of many samples then
    is a whole number of ticks, and two of them differ by nothing or by a tick; a mean tells parts of a tick apart.
    """
    return np.array([_centre(one) if len(one) else math.nan for one in rounds], dtype=np.float64)


def _centre(samples: Sequence[float]) -> float:
    if len(samples) < _FEW:
        return median(samples)
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    cut = len(ordered) // 5
    return float(ordered[cut : len(ordered) - cut].mean())


def round_medians(rounds: Rounds) -> npt.NDArray[np.float64]:
    """Each round's median; NaN for a round without samples."""
    lengths = {len(one) for one in rounds}
    if len(lengths) == 1 and 0 not in lengths:
        medians: npt.NDArray[np.float64] = np.median(np.asarray(rounds, dtype=np.float64), axis=1)
        return medians
    return np.array([median(one) if len(one) else math.nan for one in rounds], dtype=np.float64)


def paired_logs(centres_a: npt.NDArray[np.float64], centres_b: npt.NDArray[np.float64], sittings: int = 1) -> Logs:
    """``log_ratios`` from ``round_centres``, to compare one measurement with many."""
    n = min(len(centres_a), len(centres_b))
    logs = []
    for part in np.array_split(np.stack([centres_a[:n], centres_b[:n]]), sittings, axis=1):
        times = part[:, ~np.isnan(part).any(axis=0)]
        if not (times > 0).all():
            raise ValueError("times must be positive")
        if times.size:
            logs.append(np.log(times[0]) - np.log(times[1]))
    if not logs:
        raise ValueError("no pair of rounds has samples")
    return tuple(logs)


def bootstrap_geometric_mean(log_ratios: Sequence[Logs], seed: int = 0) -> tuple[float, float, float]:
    """The geometric mean of several ratios, and its 95 % interval: what a task's cases come to together.

    Args:
        log_ratios: each case's ``log_ratios``; the cases are resampled independently of each other.
        seed: of the resampling.

    Raises:
        ValueError: there is no case.
    """
    if not log_ratios:
        raise ValueError("no case")
    mean = math.fsum(estimate(one) for one in log_ratios) / len(log_ratios)
    means = np.mean([resampled(one, seed + case) for case, one in enumerate(log_ratios)], axis=0)
    low, high = np.quantile(means, [0.025, 0.975])
    return math.exp(mean), math.exp(float(low)), math.exp(float(high))


def joint_mean(ratios: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """The geometric mean of ratios of which only estimate, low and high are known, and its 95 % interval.

    Each side's distances, in logarithms, add up as those of independent errors do: by their squares.

    Raises:
        ValueError: there is no ratio, or one is not positive.
    """
    mean = geometric_mean([value for value, _, _ in ratios])
    low = math.hypot(*(math.log(value / low) for value, low, _ in ratios)) / len(ratios)
    high = math.hypot(*(math.log(high / value) for value, _, high in ratios)) / len(ratios)
    return mean, mean * math.exp(-low), mean * math.exp(high)


def resampled_medians(
    values: npt.NDArray[np.float64], seed: int, resamples: int = RESAMPLES
) -> npt.NDArray[np.float64]:
    """The median of each of many resamples of ``values`` (with replacement).

    Which of the sorted values end up in the middle depends on their number alone, so the drawing is done once for it.
    """
    lower, upper = _middle_ranks(len(values), seed, resamples)
    ordered = np.sort(values)
    medians: npt.NDArray[np.float64] = (ordered[lower] + ordered[upper]) / 2
    return medians


@lru_cache(maxsize=2048)
def _middle_ranks(n: int, seed: int, resamples: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The ranks of the two middle values (the same one, where ``n`` is odd) in each resample of ``n`` sorted values.

    Half of the resamples are drawn; the others are their mirror images, as likely as they are. That makes swapping the
    two sides of a ratio give the reciprocals exactly.
    """
    rng = np.random.default_rng(seed)
    middle = [(n - 1) // 2, n // 2]
    half = resamples // 2
    ranks = np.empty((half, 2), dtype=np.int32)
    step = max(1, _BLOCK // n)
    for start in range(0, half, step):
        drawn = rng.integers(0, n, size=(min(step, half - start), n), dtype=np.int32)
        ranks[start : start + len(drawn)] = np.partition(drawn, middle, axis=1)[:, middle]
    lower, upper = ranks[:, 0], ranks[:, 1]
    return np.concatenate([lower, n - 1 - upper]), np.concatenate([upper, n - 1 - lower])


def tolerance(ratio: float, half_width: float) -> float:
    """The required precision of a ratio: ±``half_width``, or a twentieth of its distance from 1.

    A version half as fast need not be known to 1 %.
    """
    return max(half_width, abs(math.log(ratio)) / 20)


def converged(rounds_a: Rounds, rounds_b: Rounds, half_width: float = 0.01, seed: int = 0, sittings: int = 1) -> bool:
    """Whether the ratio's 95 % interval is within its ``tolerance`` of its estimate; never before five pairs of rounds."""
    if min(len(rounds_a), len(rounds_b)) < 5:
        return False
    ratio, low, high = bootstrap_ratio(rounds_a, rounds_b, seed, sittings)
    within = tolerance(ratio, half_width)
    return low >= ratio * (1 - within) and high <= ratio * (1 + within)


RESOLUTION = 0.01
"""Measurements stop at a 95 % interval of 1 %: a smaller gain is none."""


def needed(predicted: float) -> float:
    """The least gain with which a prediction holds: half of the predicted one, on a logarithmic scale.

    A prediction of no gain, or of a loss, holds if it is reached within the measurement's resolution.
    """
    return math.sqrt(predicted) if predicted > 1 else predicted * (1 - RESOLUTION)


def prediction_held(predicted: float | None, low: float | None, high: float | None) -> bool | None:
    """Whether the gain that came, known by its interval, is at least the one ``needed``.

    None where that is undecided, as the interval has gains on both sides, and without a prediction or a measurement.
    """
    if predicted is None or low is None or high is None or low < needed(predicted) <= high:
        return None
    return low >= needed(predicted)


def proportion_interval(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a probability after ``successes`` of ``trials``: Clopper and Pearson, Biometrika 26 (1934).

    Raises:
        ValueError: there were no trials, or more successes than trials.
    """
    from scipy.stats import beta  # takes a third of a second to load, which few callers need

    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} of {trials} is no proportion.")
    failures = trials - successes
    low = float(beta.ppf(0.025, successes, failures + 1)) if successes else 0.0
    high = float(beta.ppf(0.975, successes + 1, failures)) if failures else 1.0
    return low, high
