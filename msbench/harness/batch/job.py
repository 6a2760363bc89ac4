"""What is evaluated beside other things: one task's versions, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from msbench.errors import DeviceFull, SpecError
from msbench.harness.check.cost import SHARED_HOST_WORK, work
from msbench.harness.check.schedule import schedule
from msbench.harness.protocols import Plan
from msbench.harness.spans import Spans
from msbench.model import Candidate
from msbench.spec import Task

_LAUNCHES_A_SECOND = 50.0
_WORK_A_SECOND = 1e12
_ON_DEVICE_S = 0.2  # of a case whose outputs are compared there, beside other processes
_SET_UP_S, _CUDNN_SET_UP_S = 0.2, 2.5  # of a vendor library, for each size: cuDNN compiles what it tries

_Made = TypeVar("_Made")

JobError = SpecError | DeviceFull
"""What is wrong with one job and not with the others."""


@dataclass(frozen=True)
class Job:
    """One task's versions and what is done with them; ``spans`` is told where the time goes, ``took_s`` is how long it all took last time."""

    task: Task
    candidates: tuple[Candidate, ...]
    plan: Plan
    spans: Spans | None = field(default=None, compare=False)
    took_s: float | None = field(default=None, compare=False)

    @cached_property
    def check_s(self) -> float:
        """How long its check takes, roughly: longest where all took longest, as far as that is known."""
        if self.took_s is not None:
            return self.took_s
        op = self.task.operator
        planned = schedule(op, self.plan, None)
        set_up = sum(_CUDNN_SET_UP_S if "cudnn" in c.link else _SET_UP_S for c in self.candidates if c.link)
        launches = sum(len(item.variants) for item in planned) * len(self.candidates)
        sizes = len({item.case.dims for item in planned})
        works = [work(op, item.case) for item in planned]
        on_device = sum(one > SHARED_HOST_WORK for one in works)
        return launches / _LAUNCHES_A_SECOND + sum(works) / _WORK_A_SECOND + on_device * _ON_DEVICE_S + sizes * set_up


def caught(work: Callable[[], _Made]) -> _Made | JobError:
    """What it gives, or what is wrong with this job alone."""
    try:
        return work()
    except (SpecError, DeviceFull) as error:
        return error
