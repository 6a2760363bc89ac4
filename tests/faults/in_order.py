"""Runs a module with replays that give each agent's answers in their order: ``python -m tests.faults.in_order MODULE …``.

A replay answers none but the recorded prompts. On a GPU prompts hold times, which no two runs have in common.
"""

from __future__ import annotations

import runpy
import sys

from msbench.providers.replay import ReplayProvider
from msbench.store.runs import Call


def _next(self: ReplayProvider, agent: str, prompt_id: str) -> Call | None:
    return next((call for call in self._unused if call.row.agent == agent), None)


if __name__ == "__main__":
    ReplayProvider._find = _next  # type: ignore[method-assign]
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=False)
