"""Strategies: one file each, named on the command line by ``--strategy``; other packages' are found by their entry points.

A strategy decides *where to go on from* (:meth:`Strategy.ask`, a pure function of the stored history and the seed) and
turns that decision into a draft by talking to a language model (:meth:`Strategy.draft`). It evaluates
and stores nothing: the engine does. Everything that one needs is imported from here.
"""

from __future__ import annotations

from typing import cast

from msbench import plugins
from msbench.agents._attempt import Attempt
from msbench.agents._briefing import Briefing, CaseBrief, VersionBrief
from msbench.agents._extract import extract_kernel, json_objects
from msbench.agents._kernel import kernel_from
from msbench.agents._plan import Plan, parse_plan
from msbench.agents._prompts import conversation
from msbench.agents._protocol import DEBUG, Draft, History, Proposal, Strategy, Talk, Trial

__all__ = [
    "DEBUG",
    "Attempt",
    "Briefing",
    "CaseBrief",
    "Draft",
    "History",
    "Plan",
    "Proposal",
    "Strategy",
    "Talk",
    "Trial",
    "VersionBrief",
    "conversation",
    "extract_kernel",
    "json_objects",
    "kernel_from",
    "parse_plan",
    "pick",
]


def pick(name: str) -> Strategy:
    """The strategy ``name``.

    Raises:
        UnknownNameError: there is no such strategy.
    """
    return cast(Strategy, plugins.load(__name__, name, "strategy").create())
