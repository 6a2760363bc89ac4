"""conv_1d's fp32 kernel for many outputs: on the emulator, with the tensor cores' instructions in software (soft_hopper/)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msbench import resources
from tests.kernels.building import called
from tests.kernels.hopper import soft_headers

KERNEL = resources.include_dir().parent / "conv_1d" / "best" / "fp32.cu"
SOURCE = """
EXPORTED run(float* x, float* w, float* y, int64_t N, int64_t K, int64_t x_offset, int64_t y_offset, int64_t steps, int64_t stages) {
    x += x_offset, y += y_offset;
    if (steps == 1) return launch<1>(x, w, y, int(N), int(K), nullptr);
    if (stages == 0) return launch<4>(x, w, y, int(N), int(K), nullptr);
    const Tile<4> shape{int(K)};  // by one block, whose warps take several tiles each
    const int bytes = 2 * shape.filter + kWarps * warp_bytes(shape, int(stages)), shift = int(reinterpret_cast<uintptr_t>(x) / sizeof(float) & 3);
    const int tiles = int(ceil_div(N - K + 1 + shift, shape.kTile));
    return Launch(1, kThreads, nullptr).shared(bytes)(conv_tiles<4, true>, x, w, y, int(N), int(K), shift, tiles, int(stages));
}
"""


@pytest.fixture(scope="module")
def include(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return soft_headers(tmp_path_factory.mktemp("include"))


def check(include: Path, x: Any, w: Any, x_offset: int = 0, y_offset: int = 0, steps: int = 4, stages: int = 0) -> None:
    """Against float64: within 16 roundings of the sum of sizes, and not finite where that is not; nothing else is written."""
    x, w = x.astype(np.float32), w.astype(np.float32)
    outputs = len(x) - len(w) + 1
    y = np.full(outputs + 8, 77, np.float32)
    shifted = np.concatenate([np.full(x_offset, np.nan, np.float32), x])
    source = KERNEL.read_text("utf-8") + SOURCE
    how = (len(x), len(w), x_offset, y_offset, steps, stages)
    *_, y = called("float", source, "run", shifted, w, y, *how, include=include)
    assert np.all(y[:y_offset] == 77)
    assert np.all(y[y_offset + outputs :] == 77)
    with np.errstate(all="ignore"):
        rows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), len(w))
        expected, sizes = rows @ w.astype(np.float64), np.abs(rows) @ np.abs(w.astype(np.float64))
        finite = np.isfinite(expected)
        y = y[y_offset : y_offset + outputs]
        np.testing.assert_array_equal(y[~finite], expected[~finite].astype(np.float32))
        assert np.all((np.abs(y - expected) <= 16 * 2.0**-24 * sizes + 2.0**-140)[finite])


def uniform(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, count)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(
    ("N", "K", "x_offset", "y_offset"), [(2300, 128, 0, 0), (1501, 77, 1, 0), (1101, 1, 3, 2), (1300, 300, 2, 2)]
)
def test_usual_numbers(include: Path, N: int, K: int, x_offset: int, y_offset: int, steps: int) -> None:
    check(include, uniform(N, N), uniform(K, K), x_offset, y_offset, steps)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("x_offset", [0, 1])
def test_several_tiles_a_warp(include: Path, x_offset: int, stages: int) -> None:
    x = uniform(9, 10 * 1024) * np.repeat([1, 1e-3, 1e4, 1, 1e-9], 2048)
    check(include, x, uniform(7, 33), x_offset, 0, 4, stages)


def test_what_is_computed_again(include: Path) -> None:
    x = uniform(1, 2400)
    x[700] *= 1e12  # the others of its tile are too small for two parts of fp16
    x[1500], x[1900] = np.inf, np.nan
    x[2000:2300] *= np.random.default_rng(2).choice([0, 1e-20], 300)
    check(include, x, uniform(3, 20))
