"""What every test gets."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys

import pytest
from hypothesis import settings

from msbench.gpu.devices import gpus
from tests import turns

# A shared or slow machine is no failure: pytest-timeout ends what really hangs.
settings.register_profile("msbench", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=int(os.environ.get("MSBENCH_EXAMPLES", "2000")))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "msbench"))

# Here, before pytest's workers start: they inherit it, and all have the same part, whatever is committed meanwhile.
os.environ.setdefault(turns.VARIABLE, turns.of_the_commit())

# Images of containers often set this, and then each of the hundreds of Python processes that tests start compiles all that it imports,
# and pytest every test. Here, before pytest's workers start: what is compiled is kept, as where it is not set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What a shell starts in the background ignores Ctrl-C, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _why_no_gpu() -> str | None:
    if not gpus():
        return "needs an NVIDIA GPU with a working driver"
    if importlib.util.find_spec("cupy") is None:
        return "needs CuPy: pip install 'mskernelbench[cuda]'"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none. Tests that run at the same time wait for the GPU's lock."""
    missing = _why_no_gpu()
    for item in items:
        if missing and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=missing))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to have the same tests again."""
    terminalreporter.write_line(f"Costly tests take turns: {turns.VARIABLE}={os.environ[turns.VARIABLE]}")
