"""What every test gets."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import settings

from msbench.harness.gpus import gpus

# A shared or slow machine is no failure: pytest-timeout ends what really hangs.
settings.register_profile("msbench", deadline=None)
settings.load_profile("msbench")


def _why_no_gpu() -> str | None:
    if not gpus():
        return "needs an NVIDIA GPU with a working driver"
    if importlib.util.find_spec("cupy") is None:
        return "needs CuPy: pip install 'mskernelbench[cuda]'"
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none; with pytest-xdist one process has the GPU, and one has the browser."""
    missing = _why_no_gpu()
    for item in items:
        for scarce in ("gpu", "browser"):
            if item.get_closest_marker(scarce):
                item.add_marker(pytest.mark.xdist_group(scarce))
        if missing and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=missing))
