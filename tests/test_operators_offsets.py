"""Inputs of which a mean is taken away: the guesses that they make bad are bad, and right ways stay within the bound."""

from __future__ import annotations

import numpy as np
import pytest

from msbench import bounds
from msbench.harness.inputs import Draw
from msbench.operators import offsets

V = 2.0**-24


def draw(seed: int, shape: tuple[int, ...], distribution: str) -> np.ndarray:
    return np.asarray(offsets.draw(Draw(np, "test", str(seed)), "x", shape, distribution))


def variance_error(x: np.ndarray, guess: float) -> float:
    """Of one pass over x - guess, in fp32 but for the sums, which are pairwise, over what is allowed."""
    distances = (x - np.float32(guess)).astype(np.float32)
    found = (distances * distances).mean(dtype=np.float32) - distances.mean(dtype=np.float32) ** 2
    exact = x.astype(np.float64)
    variance, mean = exact.var(), exact.mean()
    allowed = (bounds.growth(np, len(x)) + 8) * V * np.sqrt(variance * (variance + mean * mean))
    return float(abs(found - variance) / allowed)


@pytest.mark.parametrize("count", [1, 32, 256])
def test_the_mean_of_the_first_ones_is_a_bad_guess(count: int) -> None:
    errors = []
    for seed in range(5):
        x = draw(seed, (4_000_000,), "led")
        errors.append(variance_error(x, x[:count].mean()))
        assert variance_error(x, x.mean()) < 0.1
    assert max(errors) > 2


def test_the_mean_of_a_sample_is_a_bad_guess() -> None:
    """Of the first; of the first, the middle and the last; or of every 32nd part of a line."""
    parts: list[int] = []
    for seed in range(12):
        x = draw(seed, (1_000_003,), "probed")
        assert variance_error(x, x.mean()) < 0.1
        for sample in (x[:1], x[[0, len(x) // 2, -1]], x[[0, -1]]):
            assert variance_error(x, np.median(sample)) > 1
        parts.append(len(x[np.abs(x) > 1]))
        assert parts[-1] == 3 or variance_error(x, x[:: len(x) // 32].mean()) > 1
    assert len(set(parts)) == 3


def test_offsets_are_along_the_first_axis_and_fit_short_ones() -> None:
    leads = set()
    for seed in range(9):
        x = draw(seed, (4000, 3), "led")
        lead = int(x[:, 0].argmax())
        x = x[::-1] if lead == 3999 else x[lead:]
        assert (x[:100] > 100).all() and (np.abs(x[1024:2000]) <= 1).all()
        assert (np.diff(x[[0, 10, 100, 1000]], axis=0) < 0).all()
        leads.add(lead)
    assert leads == {0, 2000, 3999}
    assert (draw(1, (1,), "led") > 1000).all()
    assert (np.abs(draw(1, (50, 2), "offset") - 1024) <= 1).all()
