"""The engine behind ``msbench optimize``."""

from msbench.optimize.best import write_best
from msbench.optimize.budget import Budget, Spend
from msbench.optimize.engine import ROUNDS, Event, Summary, optimize
from msbench.optimize.settings import Settings

__all__ = ["ROUNDS", "Budget", "Event", "Settings", "Spend", "Summary", "optimize", "write_best"]
