"""Tests that an operator's check rejects wrong kernels: each mutant on each of its cases.

The check of a case is the one that every version has to pass (``CaseCheck``, in the variant that the mutant names). ``evaluate``
stops a version at its first failed case; here every case counts, so a mutant's process is used for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace

from msbench.errors import DeviceFull, UnsupportedError, WorkerError
from msbench.harness.check.case import CaseCheck, fault_of
from msbench.harness.check.cost import work
from msbench.harness.protocols import Executor, Foresees, Progress, Runner
from msbench.model import BuildResult, Candidate, Failure, Fault, Origin
from msbench.operators import Mutant
from msbench.spec import Case, Operator, Precision, Task

Room = Callable[[Operator, Case], AbstractContextManager[object]]

ENOUGH = 4
"""Cases on one of which a mutant must be found out that is right where samples show it something unusual, as in about every second one."""

_BY_VALUE = (Fault.MISMATCH, Fault.UNWRITTEN)
_BY_CHECK = (*_BY_VALUE, Fault.OUT_OF_BOUNDS, Fault.INPUT_CHANGED)
_BY_END = (Fault.LAUNCH, Fault.CRASH)  # what a processor makes of an address that is not aligned


@dataclass
class Verdict:
    """The result of one mutant in one precision.

    ``rejected`` holds the cases on which the check found fault, with the largest error over the bound (None where there is
    none, as for an output that was not written or has to be exact). ``survived``: cases on which it passed. ``failures``:
    why a case says nothing about the check, for example since the kernel crashed there; by the case's id, or by "build".
    ``crashes``: how often it was tried again there for that, once a case: the fault may have been another process's.
    """

    mutant: Mutant
    precision: Precision
    rejected: dict[Case, float | None] = field(default_factory=dict)
    survived: list[Case] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    crashes: int = 0

    @property
    def tried(self) -> int:
        """On how many cases."""
        return len(self.rejected) + len(self.survived) + len(self.failures)

    @property
    def decided(self) -> bool:
        """Whether it was tried enough to be ``good`` or not."""
        return bool(self.tried if self.mutant.everywhere else self.rejected or self.failures or self.tried >= ENOUGH)

    @property
    def good(self) -> bool:
        """Rejected wherever it was tried, or somewhere if no more is asked of it."""
        if self.mutant.everywhere:
            return self.tried == len(self.rejected)
        return not self.failures and (bool(self.rejected) or not self.decided)

    @property
    def narrowest(self) -> float | None:
        """The smallest error over bound by which it was rejected; None where no rejection has one."""
        return min((ratio for ratio in self.rejected.values() if ratio is not None), default=None)


def affordable(executor: Executor, op: Operator, cases: Sequence[Case]) -> tuple[Case, ...]:
    """The cases that ``executor`` can check, cheap ones first."""
    limit = executor.check_limit
    return tuple(sorted((c for c in cases if limit is None or work(op, c) <= limit), key=lambda c: work(op, c)))


@dataclass(frozen=True)
class Survey:
    """The mutants of an operator, each with the cases that it is checked on."""

    task: Task
    wanted: Mapping[Mutant, Sequence[Case]]


def begin(executor: Executor, survey: Survey, pool: ThreadPoolExecutor) -> list[Subject]:
    """Its mutants, which are being built."""
    op, precision = survey.task.operator, survey.task.precision
    chosen = [m for m in survey.wanted if m.precisions is None or precision in m.precisions]
    found = []
    for mutant in chosen:
        # They are edits of ours, to be trusted like what they were made of: on a GPU such take one process, not two.
        candidate = replace(mutant.candidate(survey.task), origin=Origin.NAIVE)
        verdict = Verdict(mutant, precision)
        found.append(Subject(executor, op, candidate, verdict, pool.submit(executor.build, op, candidate)))
    return found


def check(
    executor: Executor,
    survey: Survey,
    subjects: Sequence[Subject],
    seed: int,
    *,
    room: Room = lambda op, case: nullcontext(),
    progress: Progress | None = None,
) -> list[Verdict]:
    """Check each on its cases; one verdict for each, in their order. ``room`` is entered for each case.

    Raises:
        DeviceFull: it is too small for a case.
        DeviceError: it is missing or lost.
    """
    task, wanted = survey.task, survey.wanted
    op = task.operator
    with ExitStack() as resources:
        for subject in subjects:
            resources.callback(subject.close)
        if isinstance(executor, Foresees):
            resources.enter_context(executor.foreseeing(op, [subject.candidate for subject in subjects]))
        cases = affordable(
            executor, op, list(dict.fromkeys(case for s in subjects for case in wanted[s.verdict.mutant]))
        )
        if progress:
            progress.started(f"checking {task.id}'s mutants")
        for done, case in enumerate(cases, 1):
            try:
                with room(op, case), CaseCheck(executor, task.at(case), seed) as checking:
                    for subject in subjects:
                        if case in wanted[subject.verdict.mutant]:
                            subject.try_on(checking)
            except MemoryError as error:
                raise DeviceFull(
                    f"{executor.device().name} has not enough memory to check {task.id} at {case.id}. "
                    "Choose smaller cases with --cases."
                ) from error
            if progress:
                progress.advanced(done, len(cases), case.id)
        for subject in subjects:  # also of those that are tried on no case here
            if failure := subject.building.result().failure:
                subject.verdict.failures["build"] = failure
        return [subject.verdict for subject in subjects]


@dataclass
class Subject:
    """One mutant, its build and its process."""

    executor: Executor
    op: Operator
    candidate: Candidate
    verdict: Verdict
    building: Future[BuildResult]
    runner: Runner | None = None

    def try_on(self, check: CaseCheck) -> None:
        built = self.building.result()
        if built.failure:
            return
        result, ratio = self._result(check, built)
        if result is not None and result.fault is Fault.CRASH and self.verdict.mutant.variant != "misaligned":
            self.verdict.crashes += 1
            result, ratio = self._result(check, built)
        if result is None:
            self.verdict.survived.append(check.case)
        elif result.fault in _BY_CHECK or (result.fault in _BY_END and self.verdict.mutant.variant == "misaligned"):
            self.verdict.rejected[check.case] = ratio
        else:
            self.verdict.failures[check.case.id] = result

    def _result(self, check: CaseCheck, built: BuildResult) -> tuple[Failure | None, float | None]:
        """What is wrong with it, and its largest error over the bound."""
        try:
            if self.runner is None:
                self.runner = self.executor.open(self.op, built, self.candidate)
            (result,) = check.run(self.runner, (self.verdict.mutant.variant,))
            failure, ratio = result.failure, result.worst
        except UnsupportedError as error:
            failure, ratio = Failure(Fault.UNSUPPORTED, str(error)), None
        except WorkerError as error:
            failure, ratio = Failure(fault_of(error), str(error), error.log), None
        if failure is not None and failure.fault not in (_BY_CHECK if self.executor.measures else _BY_VALUE):
            self.close()  # the next case gets a process that nothing has happened to; a GPU's kernel writes to no process's memory
        return failure, ratio

    def close(self) -> None:
        if self.runner is not None:
            self.runner.close()
            self.runner = None
