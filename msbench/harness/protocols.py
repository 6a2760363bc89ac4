"""The interfaces between the pipeline, its executors and its callers.

An executor is a module in ``msbench/executors/`` with a one-line docstring and ``create(options: executors.Options) -> Executor``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from msbench.harness.arena import Arena, Layout
from msbench.model import BuildResult, Candidate, Ceilings, CheckResult, Device, Evaluation, Measurement, Profile
from msbench.spec import Case, Operator, Problem, Task


class Checks(StrEnum):
    """How much is checked.

    ``quick``: every case of the plan, with uniform inputs, on aligned arrays.
    ``full``: the same, and hidden sizes, other distributions, misaligned arrays, repeated runs and changed inputs where
    these are affordable. Only ``full`` finds most wrong kernels.
    """

    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class Plan:
    """What one evaluation does.

    ``cases`` are checked and measured. ``heldout`` further cases, drawn from ``seed``, are only checked (``full``).
    ``time_budget_s`` and ``half_width`` are the measurement's two ways to stop, for each case: the time that a group of
    candidates may take, and the relative half-width of the 95 % interval that is narrow enough for ratios near 1. Cases are measured
    in ``sittings`` sessions, each with new processes, long ones in fewer (``sessions.number_of``), and where
    ``settle_s`` is not 0 in as many more as it takes to know their ratios (``sessions.number_needed``), as long as measuring
    is expected to end within so many seconds; and of these sessions, the third and later ones only within twice that. ``whole_calls``: a time is
    that of a call from an idle device to an idle device, on the host's clock, whatever the call does in between. ``hot``: calls
    in a row, with nothing in between, are timed, too; no ratio depends on them.
    ``profile_cases``: which cases are profiled when ``profile`` is set; empty means the one that moves the most bytes.
    ``profile_fastest``: profile only the version that is fastest on that case.
    ``trusted``: naive kernels and libraries among the versions are those of ``kernels/``, so that of these what finds cheating is tried on the cheapest cases only,
    misaligned arrays on those and on hidden sizes, and of the outputs of a timed batch those of one input set are compared.
    ``recorded_with``: an executor that remembers recalls what was measured together with this stored evaluation, where there is a choice.
    """

    cases: tuple[Case, ...]
    checks: Checks = Checks.FULL
    heldout: int = 4
    measure: bool = True
    profile: bool = False
    profile_cases: tuple[Case, ...] = ()
    profile_fastest: bool = False
    trusted: bool = False
    seed: int = 0
    time_budget_s: float = 5.0
    half_width: float = 0.01
    sittings: int = 4
    settle_s: float = 0.0
    whole_calls: bool = False
    hot: bool = True
    recorded_with: str | None = None


class Progress(Protocol):
    """Receives an evaluation's progress; called from one thread."""

    def started(self, text: str) -> None:
        """A stage begins: ``"checking rms_norm/fp32"``."""

    def advanced(self, done: int, total: int, text: str) -> None:
        """``done`` of the stage's ``total`` parts are finished; ``text`` names what was just done."""


class Runner(Protocol):
    """One candidate, loaded in its own process."""

    candidate: Candidate

    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        """Call the launcher once on the arena's arrays, workspace included, and wait until its work is done.

        ``fresh``: overwrite the workspace first; otherwise it holds what the previous launch left.

        Raises:
            LaunchFailed: it returned an error (or the device reported one). WorkerError's ``kind`` may be any
                ``model.Fault``'s value, say ``"out_of_bounds"`` where a sanitizer found one.
            WorkerCrashed, WorkerTimeout: the process is gone; later calls raise WorkerCrashed.
            UnsupportedError: this executor can't run this kernel, which shows only now.
        """

    def close(self) -> None:
        """End the process; may be called again."""


@runtime_checkable
class Records(Protocol):
    """A runner that records what the launcher enqueues on its stream, and replays that.

    ``recorded``: of the latest call its case, what it was in words (``"2 kernels, 1 memset"``), and its operations.
    """

    recorded: dict[str, Any] | None


@runtime_checkable
class CountsMemory(Protocol):
    """A runner of a candidate whose ``Entry`` counts what the candidate allocates."""

    def live_bytes(self) -> int:
        """Bytes that it has allocated and not freed. Raises what ``Runner.launch`` raises."""


@runtime_checkable
class Rests(Protocol):
    """A runner that holds memory which it needs only while it is called."""

    def rest(self) -> None:
        """Give that back until the next call. Raises what ``Runner.launch`` raises."""


@runtime_checkable
class Prepares(Protocol):
    """A runner of a library that may prepare for what is about to be timed."""

    def untimed_ns(self) -> float:
        """How long preparing for the last call's arrays took; 0 without preparation.

        Raises what ``Runner.launch`` raises.
        """


@runtime_checkable
class Sanitizes(Protocol):
    """An executor that may watch a version's memory accesses in calls apart from its other checks: it does where ``sanitizes``."""

    sanitizes: bool

    def sanitize(self, task: Task, cases: Sequence[Case], build: BuildResult, seed: int) -> list[CheckResult]:
        """One call of each case on aligned arrays and one on misaligned ones, up to the first that reads or writes outside them.

        Raises:
            ExecutorError: there is no verdict; the message says why.
        """


class Executor(Protocol):
    """Builds, runs and measures candidates on one device. ``name`` is its module's.

    ``xp`` is the array module (numpy or cupy) of inputs, references and arenas. ``measures``: whether it has times of
    its own; if not, ``measure`` and ``profile`` are never called. ``check_limit``: cases that cost more than so many
    operations (``schedule.work``) are not checked here, because that would take minutes; None checks them all. ``host_work``: up to so
    many, inputs, references and comparisons are NumPy's in any case (see ``cost.HOST_WORK``).
    """

    name: str
    measures: bool
    xp: Any
    check_limit: float | None
    host_work: float

    def device(self) -> Device:
        """What runs the kernels (or ran them, see ``Remembers``)."""

    def ceilings(self) -> Ceilings | None:
        """The device's measured ceilings; None if it has no times."""

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        """Compile; called from several threads. A bad kernel is a ``BuildResult.failure``, never an exception.

        Raises:
            ToolchainError: there is no working compiler, whatever the kernel.
        """

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> Runner:
        """Load a build that succeeded in a fresh process. Raises what ``Runner.launch`` raises."""

    def arena(self, layout: Layout) -> Arena:
        """Memory that this executor's runners can reach; the caller closes it."""

    def measure(self, problem: Problem, runners: Sequence[Runner], plan: Plan) -> list[Measurement]:
        """Time the runners against each other, interleaved and shuffled: one measurement a runner, in their order.

        A runner that crashes, hangs or fails gets a ``Measurement.failure`` and does not stop the others.
        """

    def profile(
        self,
        task: Task,
        cases: Sequence[tuple[Case, Measurement | None]],
        build: BuildResult,
        candidate: Candidate,
    ) -> list[Profile]:
        """Counters of one candidate on each of some cases; what went wrong is a ``Profile.failure``.

        Args:
            cases: each with the candidate's measurement, if there is one.
        """

    def close(self) -> None:
        """Release the device and end every process of this executor; harmless when repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Foresees(Protocol):
    """An executor that prepares for a candidate while it is still being compiled."""

    def foreseeing(self, op: Operator, candidates: Sequence[Candidate]) -> AbstractContextManager[object]:
        """Inside, each is made ready for one ``open``; what is not used by the end is dropped."""


class Turn(Protocol):
    """Whose turn it is on a device on which several tasks are measured. ``waited_s``: how long it was waited for, in all."""

    @property
    def waited_s(self) -> float: ...

    def take(self, *, alone: bool) -> None:
        """Wait until nobody else is at work on the device (``alone``), or nobody alone; be at work until the next turn."""

    def leave(self) -> None:
        """Be at work on the device no longer."""


class _OnlyTurn:
    waited_s = 0.0

    def take(self, *, alone: bool) -> None:
        pass

    def leave(self) -> None:
        pass


ONLY_TURN: Turn = _OnlyTurn()
"""That of a task beside which no other is measured."""


@runtime_checkable
class TakesTurns(Protocol):
    """An executor that times with the device to itself, and does the rest of what ``measure`` does beside others.

    ``measure`` begins when it is not at work there, and ends beside others.
    """

    turn: Turn


@runtime_checkable
class Compiles(Protocol):
    """An executor that compiles what checks run on the device besides kernels, which takes longer than a check."""

    def compile_checks(self, op: Operator, processes: int = 1, seed: int | None = None) -> Future[None]:
        """Begin to have that ready for an operator, after those that were begun before; done once it is, or has failed.

        With a ``seed``, only what is computed on a device that others share, where the operator's cases are checked by a plan with that.
        """

    def checks_compiled(self) -> None:
        """No more will be compiled: what did that may end."""


@runtime_checkable
class Remembers(Protocol):
    """An executor that has no times of its own but knows those of earlier evaluations, on ``Executor.device``."""

    def recall(
        self, op: Operator, candidates: Sequence[Candidate], recorded_with: str | None
    ) -> Mapping[str, Evaluation]:
        """By a candidate's id, a passed evaluation of exactly that version; its ``recorded_from`` is its own id.

        A candidate that was never measured is absent. ``recorded_with``: see ``Plan``.
        """

    def checked_on(self) -> Device:
        """What runs the kernels now, for their check."""
