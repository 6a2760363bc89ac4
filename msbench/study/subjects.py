"""Chooses a study's tasks and cases by a fixed rule, which prevents cherry-picking."""

from __future__ import annotations

from dataclasses import dataclass

from msbench import operators
from msbench.errors import MsbenchError
from msbench.harness.check.cost import work
from msbench.model import Candidate, Origin
from msbench.spec import Case, Task

WORK_LIMIT = 5e9
"""Cases of more operations (``schedule.work``) are left out: naive kernels take tens of milliseconds for them."""

_STEPS = 5


@dataclass(frozen=True)
class Subject:
    """A case of a task, and the task's naive kernel."""

    task: Task
    case: Case
    naive: Candidate

    @property
    def name(self) -> str:
        """For example ``"relu/fp32 N=1024"``."""
        return f"{self.task.id} {self.case.id}"


def choose(count: int) -> list[Subject]:
    """``count`` tasks at even distances in the list of all by scenario and name, one case of each.

    Of the first task the smallest case is taken, of the next ones those a quarter, half and three quarters up the list of its
    cases by cost, and the largest; then again the smallest.

    Raises:
        MsbenchError: there are not so many tasks.
    """
    known = sorted(map(operators.load, operators.names()), key=lambda op: (op.scenario, op.name))
    listed = [
        (task, naive)
        for op in known
        for task in op.tasks
        for naive in operators.versions(task)
        if naive.origin is Origin.NAIVE
    ]
    if not 0 < count <= len(listed):
        raise MsbenchError(f"--tasks {count}: choose from 1 to {len(listed)}.")
    chosen = [listed[number * len(listed) // count] for number in range(count)]
    return [Subject(task, _case(task, number % _STEPS), naive) for number, (task, naive) in enumerate(chosen)]


def _case(task: Task, step: int) -> Case:
    op = task.operator
    cases = sorted(
        (case for case in op.cases if case.distribution == "uniform"), key=lambda case: (work(op, case), case.id)
    )
    cheap = [case for case in cases if work(op, case) <= WORK_LIMIT] or cases[:1]
    return cheap[step * (len(cheap) - 1) // (_STEPS - 1)]
