"""The engine behind ``msbench optimize``."""

from msbench.optimize.best import write_best
from msbench.optimize.budget import Budget, Spend
from msbench.optimize.engine import ROUNDS, optimize
from msbench.optimize.events import Event, Summary
from msbench.optimize.settings import Settings
from msbench.optimize.together import Ended, Together

__all__ = [
    "ROUNDS",
    "Budget",
    "Ended",
    "Event",
    "Settings",
    "Spend",
    "Summary",
    "Together",
    "optimize",
    "write_best",
]
