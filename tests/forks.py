"""Processes of their own for functions of tests: forks of one that has imported what they need, which takes a fraction of the
time of an interpreter that starts.
"""

from __future__ import annotations

import multiprocessing

from msbench import emulator, operators, resources  # noqa: F401
from msbench.harness.check import compare, schedule  # noqa: F401

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])
