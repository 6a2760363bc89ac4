"""What CuPy keeps is given back where it is much."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from msbench.harness import pool


@pytest.mark.parametrize(("free", "given_back"), [(0, 0), (pool.KEPT_BYTES, 0), (pool.KEPT_BYTES + 1, 1)])
def test_only_much_is_given_back(free: int, given_back: int) -> None:
    calls: list[int] = []
    kept = SimpleNamespace(free_bytes=lambda: free, free_all_blocks=lambda: calls.append(free))
    pool.shrink(SimpleNamespace(get_default_memory_pool=lambda: kept))
    assert len(calls) == given_back


def test_numpy_keeps_nothing() -> None:
    pool.shrink(np)
