"""A made-up world for the engine: one operator in a folder, an ``evaluate`` without compilers, a scripted provider.

A kernel says itself how it does: ``#define SPEED 2.0`` is twice as fast as naive, ``#define BROKEN build`` does not compile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msbench.conversation import Limits, Message, Reply
from msbench.executors.recorded import RecordedExecutor
from msbench.harness.evaluate import Executor, Plan, Progress
from msbench.model import (
    Candidate,
    Ceilings,
    CheckResult,
    Device,
    Evaluation,
    Failure,
    Fault,
    Origin,
    Status,
    digest,
)
from msbench.optimize.journal import now
from msbench.providers import Provider
from msbench.spec import Case, Operator, Precision, Split, Task
from msbench.store.tables import CallRow
from tests import factories

NAIVE_EFFICIENCY = 0.1


SAMPLES = (1.5, 2.0, 0.8, 1.9, 1.2, 2.5)
"""The speeds of six attempts."""


def kernel(speed: float = 1.0, broken: str = "", note: str = "") -> str:
    """A source that is ``speed`` times as fast as naive, or fails at stage ``broken``."""
    marks = f"#define SPEED {speed}\n" + (f"#define BROKEN {broken}\n" if broken else "")
    return marks + factories.candidate(factories.operator(), note or "kernel").source


def task(folder: Path, library_speed: float = 4.0) -> Task:
    """The task of an operator that lies in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "naive.cu").write_text(kernel(1.0, note="naive"))
    (folder / "vendor.cu").write_text(kernel(library_speed, note="vendor"))
    return Task(replace(factories.operator(), folder=str(folder)), Precision.FP32)


def plan(of: Task) -> Plan:
    """All cases, checked, measured and profiled."""
    return Plan(of.operator.cases, profile=True)


@dataclass
class FakeExecutor:
    """Has an identity; ``evaluate`` below does the work."""

    name: str = "cuda"
    measures: bool = True
    check_limit: float | None = None
    host_work: float = 0.0
    xp: Any = None

    def device(self) -> Device:
        return factories.GPU if self.measures else factories.CPU

    def ceilings(self) -> Ceilings | None:
        return factories.CEILINGS if self.measures else None


@dataclass
class World:
    """Evaluates; ``tick`` is called at every instant that a kill may hit.

    Groups are listed by label: ``evaluated`` those that are measured on all cases, ``screened`` and ``profiled`` the others.
    ``proved``: the label and seed of what was only checked; ``refutes``: what fails a hidden case of a plan.
    """

    evaluated: list[list[str]] = field(default_factory=list)
    screened: list[list[str]] = field(default_factory=list)
    profiled: list[list[str]] = field(default_factory=list)
    proved: list[tuple[str, int]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    refutes: Callable[[Candidate, Plan], bool] = lambda candidate, plan: False
    tick: Callable[[str], None] = lambda what: None

    def evaluate(
        self,
        executor: Executor,
        task: Task,
        candidates: Sequence[Candidate],
        plan: Plan,
        *,
        command: str,
        progress: Progress | None = None,
    ) -> list[Evaluation]:
        """Stands in for ``harness.evaluate.evaluate``."""
        self.tick("evaluating")
        operator = task.operator
        assert not plan.hot  # no step is judged by it, and it takes a third of a measurement
        whole = plan.cases == operator.cases
        if not plan.measure:
            self.proved.append((candidates[0].label, plan.seed))
        else:
            groups = self.profiled if plan.profile else self.evaluated if whole else self.screened
            groups.append([c.label for c in candidates])
            if groups is self.evaluated:
                self.seeds.append(plan.seed)
        good = {c: NAIVE_EFFICIENCY * _speed(c) for c in candidates if not _broken(c)}
        seed = int(digest(*(c.id for c in candidates))[:6], 16)
        passed = factories.measured(operator, good, cases=plan.cases, seed=seed, at=seed)
        found = {e.candidate: e for e in passed}
        for broken in (c for c in candidates if _broken(c)):
            found[broken] = factories.failed(operator, broken, Status(f"{_broken(broken)}_failed"))
        for draft in (c for c in candidates if c.origin is Origin.AGENT and plan.heldout and self.refutes(c, plan)):
            found[draft] = hidden_failure(operator, draft)
        if not (executor.measures and plan.measure):
            nothing: dict[str, Any] = {"measurements": (), "profiles": (), "device": executor.device()}
            found = {c: replace(e, **nothing) for c, e in found.items()}
        if not plan.profile:
            found = {c: replace(e, profiles=()) for c, e in found.items()}
        self.tick("evaluated")
        same: dict[str, Any] = {"executor": executor.name, "command": command, "started_at": now(), "seed": plan.seed}
        return [replace(found[c], **same) for c in candidates]

    def recall(
        self,
        executor: RecordedExecutor,
        task: Task,
        candidates: Sequence[Candidate],
        plan: Plan,
        *,
        command: str,
        progress: Progress | None = None,
    ) -> list[Evaluation]:
        """The same, on the recorded executor: a failure is found anew, times are those of earlier."""
        if not plan.measure:
            return self.evaluate(executor, task, candidates, plan, command=command, progress=progress)
        operator = task.operator
        stored = executor.recall(operator, candidates, plan.recorded_with)
        found = [stored.get(c.id) or factories.failed(operator, c, Status(f"{_broken(c)}_failed")) for c in candidates]
        return [replace(e, executor=executor.name, command=command, started_at=now()) for e in found]


HIDDEN = Case((("N", 204327),), Split.HELDOUT, "spiked")
"""A case that no prompt may name."""


def hidden_failure(operator: Operator, draft: Candidate) -> Evaluation:
    """A draft that is wrong on ``HIDDEN``, in the words that a check has for it."""
    message = "Case N=204327,spiked (misaligned): y[204326] is 1234.5 where 8765.25 was expected; 204327 of 204327 elements are wrong."
    failure = Failure(Fault.MISMATCH, message, "kernel.cu:3: thread 204326 read 8765.25")
    check = CheckResult(HIDDEN, "misaligned", 77, False, 1e4, failure=failure)
    return replace(factories.failed(operator, draft), failure=failure, checks=(check,))


def _speed(candidate: Candidate) -> float:
    match = re.search(r"#define SPEED (\S+)", candidate.source)
    assert match is not None
    return float(match[1])


def _broken(candidate: Candidate) -> str:
    match = re.search(r"#define BROKEN (\w+)", candidate.source)
    return match[1] if match and candidate.origin is not Origin.LIBRARY else ""


class Scripted(Provider):
    """Answers each agent by its list, and knows after a resume how far it was."""

    name = "scripted"
    model = "script"

    def __init__(self, answers: dict[str, list[str]], tick: Callable[[str], None] = lambda what: None) -> None:
        self.answers = answers
        self.asked: list[tuple[str, list[Message], Limits]] = []
        self._done: dict[str, int] = {}
        self._tick = tick

    def begin(self, run_id: str, task_id: str, answered: Sequence[CallRow]) -> None:
        self._done = {}
        for call in answered:
            self._done[call.agent] = self._done.get(call.agent, 0) + 1

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        self._tick("asking")
        self.asked.append((agent, list(messages), limits))
        at = self._done.get(agent, 0)
        self._done[agent] = at + 1
        self._tick("answering")
        return Reply(self.answers[agent][at], self.model, 1000, 500, 0.01)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens + completion_tokens) * 1e-5


class Sampled(Scripted):
    """Answers the attempts of ``best_of_n``, each by its number, however they are timed; ``speeds`` has theirs."""

    def __init__(self, speeds: Sequence[float], tick: Callable[[str], None] = lambda what: None) -> None:
        super().__init__({}, tick)
        self._speeds = speeds

    def begin(self, run_id: str, task_id: str, answered: Sequence[CallRow]) -> None:
        pass

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        self._tick("asking")
        self.asked.append((agent, list(messages), limits))
        number = re.search(r"This is attempt (\d+) of several", messages[-1].content)
        assert number is not None
        self._tick("answering")
        return Reply(fenced(kernel(self._speeds[int(number[1]) - 1])), self.model, 1000, 500, 0.01)


def planned(predicted: float, plan: str = "Load more at once.") -> str:
    """A planner's answer."""
    return json.dumps({"plan": plan, "hypothesis": "It is memory-bound.", "predicted_speedup": predicted})


def fenced(source: str) -> str:
    """A coder's answer."""
    return f"Done.\n\n```cuda\n{source}```\n"


def coded(*sources: str) -> list[str]:
    """A coder's answers."""
    return [fenced(source) for source in sources]


def story() -> dict[str, list[str]]:
    """Six rounds in which everything happens: see ``OUTCOMES``."""
    return {
        "planner": [planned(p) for p in (2.0, 1.5, 1.1, 1.1, 1.1, 3.0)],
        "coder": [
            fenced(kernel(2.0)),
            fenced(kernel(3.0, broken="build")),
            fenced("// Much better now.\n" + kernel(3.0)),
            "I would load more at once.",
            "As I said, load more at once.",
            fenced(kernel(2.0, note="again")),
            fenced(kernel(1.5)),
        ],
        "debugger": [fenced(kernel(3.0))],
    }


OUTCOMES = (
    ("baseline", "baseline", 1.0),
    ("optimize", "improved", 2.0),
    ("optimize", "failed", None),
    ("debug", "improved", 3.0),
    ("optimize", "unchanged", None),
    ("optimize", "no_kernel", None),
    ("explore", "duplicate", None),
    ("explore", "slower", 1.5),
)
"""(action, outcome, speed-up) of the story's steps."""

ROUNDS = 6


def rounded(rows: Iterable[Any]) -> list[tuple[str, str, float | None]]:
    """Steps as in ``OUTCOMES``."""
    return [(r.action, r.outcome, None if r.speedup is None else round(r.speedup, 1)) for r in rows]
