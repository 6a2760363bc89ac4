"""One audited file on its way: its build, its process, and what its checks said.

Unlike an evaluation, which ends with the first failed check, an audit goes on: that a file is wrong on one size says
nothing about the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import ml_dtypes

from msbench.audit import adapter
from msbench.audit.abi import Symbol
from msbench.audit.files import Found
from msbench.audit.verdict import Tally, Verdict
from msbench.errors import UnknownNameError, UnsupportedError, WorkerError
from msbench.harness.arena import Layout
from msbench.harness.build.compiler_output import named_after
from msbench.harness.check.case import VARIANTS, CaseCheck, fault_of
from msbench.harness.check.cost import work
from msbench.harness.check.schedule import EXTRA_LIMIT, EXTRA_SHARE, HELDOUT_ELEMENTS
from msbench.harness.inputs import generate
from msbench.harness.protocols import CountsMemory, Executor, Runner
from msbench.model import BuildResult, Candidate, Failure, Fault, Origin
from msbench.operators import heldout, select_cases
from msbench.spec import Case, Operator, Precision, Split, Task

_HARMLESS = (Fault.MISMATCH, Fault.UNWRITTEN, Fault.INPUT_CHANGED, Fault.NONDETERMINISTIC)
_UNJUDGED = (Fault.UNSUPPORTED, Fault.SIGNATURE, Fault.FORBIDDEN)  # of a build: they don't tell whether the file is C++
_PATIENCE = 3  # processes that a file may lose
_MORE_LAUNCHES = 3


class Kind(StrEnum):
    """What a check is evidence of."""

    PAPER = "paper"
    UNSEEN = "unseen"
    INPUTS = "inputs"
    MISALIGNED = "misaligned"


@dataclass(frozen=True)
class Item:
    """A case, the variants of ``check`` that it is checked in, and what that is evidence of."""

    kind: Kind
    case: Case
    variants: tuple[str, ...]


def planned(
    op: Operator, symbol: Symbol, selector: str, seed: int, limit: float | None
) -> tuple[list[Item], dict[Kind, int]]:
    """What is checked, and how many of the selected cases of each kind are above ``limit``.

    The paper's sizes come first, since a file that fails on others is soon left alone, and which others are tried is drawn. Of
    one kind the cheap cases come first.

    The cases of ``selector`` with uniform inputs, those that the operator does not have counted as left out; every other
    distribution on the cheapest of the paper's; arrays that are aligned to their element only on the cheapest of the paper's
    and the cheapest other one.
    """
    extra_limit = EXTRA_LIMIT if limit is None else limit * EXTRA_SHARE
    items, left_out = [], dict.fromkeys(Kind, 0)
    cases: dict[Case, None] = {}
    for part in _parts(selector):
        try:
            cases |= dict.fromkeys(_as_passed(case, symbol, op) for case in _cases(op, symbol, part, seed))
        except UnknownNameError:
            left_out[Kind.UNSEEN] += 1
    for case in sorted(cases, key=lambda c: (c.split is not Split.PAPER, work(op, c))):
        kind = Kind.PAPER if case.split is Split.PAPER else Kind.UNSEEN
        if limit is not None and work(op, case) > limit:
            left_out[kind] += 1
            continue
        cheap = work(op, case) <= extra_limit
        items.append(Item(kind, case, tuple(v for v in VARIANTS if v != "misaligned") if cheap else VARIANTS[:1]))
    cheapest = [next((i.case for i in items if i.kind is kind), None) for kind in (Kind.PAPER, Kind.UNSEEN)]
    items += [Item(Kind.MISALIGNED, case, ("misaligned",)) for case in cheapest if case]
    if cheapest[0]:
        others = [d for d in op.distributions if d != "uniform"]
        items += [Item(Kind.INPUTS, replace(cheapest[0], distribution=d), VARIANTS[:1]) for d in others]
    return items, left_out


def see_that_known(ops: Sequence[Operator], selector: str) -> None:
    """That every part of ``selector`` names cases of one of these operators at least.

    Raises:
        UnknownNameError: none of them has such a case.
    """
    for part in _parts(selector):
        unknown: list[UnknownNameError] = []
        for op in ops:
            try:
                select_cases(op, part)
                break
            except UnknownNameError as error:
                unknown.append(error)
        else:
            if unknown:
                raise unknown[0]


def _parts(selector: str) -> list[str]:
    return [part.strip() for part in selector.split("+")]


def _as_passed(case: Case, symbol: Symbol, op: Operator) -> Case:
    """The case with its scalars as a function gets them that takes one in bf16."""
    narrow = {p.name for p in symbol.function.parameters if not p.pointer and p.ctype == "T"}
    if symbol.precision is not Precision.BF16 or not narrow:
        return case
    values = op.scalar_values(case)
    rounded = {n: float(ml_dtypes.bfloat16(v)) if n in narrow else v for n, v in values.items()}
    return replace(case, scalars=tuple(rounded.items()))


def _cases(op: Operator, symbol: Symbol, part: str, seed: int) -> Sequence[Case]:
    if part == "heldout":
        return [_with_uniform_inputs(case, symbol) for case in heldout(op, seed, max_elements=HELDOUT_ELEMENTS)]
    return select_cases(op, part, seed)


def _with_uniform_inputs(case: Case, symbol: Symbol) -> Case:
    """A hidden case without the values of scalars that a function may leave out: one that does would be tried on none."""
    optional = {p.name for p in symbol.function.parameters if p.default is not None}
    scalars = tuple((name, value) for name, value in case.scalars if name not in optional)
    return replace(case, distribution="uniform", scalars=scalars)


@dataclass(eq=False)
class Subject:
    """One file. ``op`` is its symbol's."""

    found: Found
    op: Operator
    executor: Executor
    build: BuildResult | None = None
    runner: Runner | None = None
    wrong: dict[Kind, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in Kind})
    tried: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    left_out: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    problem: str = ""
    given_up: str = ""
    remarks: list[str] = field(default_factory=list)
    _lost: int = 0

    def __post_init__(self) -> None:
        assert self.found.symbol is not None
        self.symbol = self.found.symbol
        self.candidate = Candidate(
            self.op.name,
            self.symbol.precision,
            self.found.source,
            Origin.EXTERNAL,
            self.found.name,
            entry=adapter.entry(self.symbol, self.op, self.found.count, self.found.link),
        )
        self._taken = {p.name for p in self.symbol.function.taken(self.found.count)}
        if self.found.calls:
            self.remarks.append(f"calls {', '.join(self.found.calls)}")

    @property
    def task(self) -> Task:
        """What it computes."""
        return Task(self.op, self.symbol.precision)

    @property
    def alive(self) -> bool:
        """Whether there is any use in trying it further."""
        return self.build is not None and not (self.build.failure or self.problem or self.given_up)

    @property
    def right(self) -> bool:
        """Whether it was right on every size of the paper that it was tried on."""
        return self.alive and self.tried[Kind.PAPER] > 0 and not self.wrong[Kind.PAPER]

    def suits(self, case: Case) -> bool:
        """Whether the function can be asked for this case: a scalar that it does not take has the convention's value."""
        values = self.op.scalar_values(case)
        defaults = {p.name: p.default for p in self.symbol.function.parameters if p.name not in self._taken}
        return all(values[name] == default for name, default in defaults.items() if name in values)

    def built(self, build: BuildResult) -> None:
        """Take over what became of its build."""
        self.build = build
        if build.failure and build.failure.fault in _UNJUDGED:
            self.problem = self._named(build.failure.message)

    def try_on(self, check: CaseCheck, item: Item) -> None:
        """Check it on one case, and remember what is wrong."""
        try:
            results = check.run(self.open(), item.variants)
            failure = next((r.failure for r in results if r.failure), None)
        except UnsupportedError as error:
            self.problem = self._named(str(error))
            return
        except WorkerError as error:
            failure = Failure(fault_of(error), f"Case {item.case.id}: {error}")
        self.tried[item.kind] += 1
        if failure is None:
            return
        self.wrong[item.kind][item.case.id] = self._named(failure.message)
        if failure.fault not in _HARMLESS:
            self.close()  # the next case gets a process that nothing has happened to
            if item.kind is not Kind.MISALIGNED:
                self._count_loss(failure.fault)

    def _named(self, text: str) -> str:
        return named_after(text, self.symbol.name, self.found.name)

    def leave_out(self, item: Item) -> None:
        """Remember that it was not tried on a case."""
        self.left_out[item.kind] += 1

    def open(self) -> Runner:
        """Its process."""
        assert self.build is not None
        if self.runner is None:
            self.runner = self.executor.open(self.op, self.build, self.candidate)
        return self.runner

    def close(self) -> None:
        """End its process."""
        if self.runner is not None:
            self.runner.close()
            self.runner = None

    def _count_loss(self, fault: Fault) -> None:
        self._lost += fault is not Fault.OUT_OF_BOUNDS
        if fault is Fault.TIMEOUT:
            self.given_up = "was not tried further after it hung"
        elif self._lost == _PATIENCE:
            self.given_up = f"was not tried further after it had failed in {_PATIENCE} processes"

    def count_memory(self, case: Case, seed: int) -> None:
        """Remark on memory that every call leaves behind."""
        try:
            runner = self.open()
            if not isinstance(runner, CountsMemory):
                return
            asked = self.task.at(case)
            with self.executor.arena(Layout.of(asked)) as arena:
                arena.write_inputs(generate(asked, seed, self.executor.xp))
                held = []
                for _ in range(1 + _MORE_LAUNCHES):
                    runner.launch(arena, case)
                    held.append(runner.live_bytes())
        except (WorkerError, UnsupportedError, MemoryError):
            self.close()
            return
        grown = held[-1] - held[0]
        if grown > 0:
            self.remarks.append(f"leaks {round(grown / _MORE_LAUNCHES)} bytes a call at {case.id}")
        elif held[0] > 0:
            self.remarks.append("keeps memory between calls")

    def verdict(self) -> Verdict:
        """What is known of it, without times."""
        assert self.build is not None
        tallies = {kind: Tally(self.tried[kind], self.wrong[kind], self.left_out[kind]) for kind in Kind}
        remarks = [*self.remarks, *([self.given_up] if self.given_up else [])]
        if self.wrong[Kind.MISALIGNED].keys() - self.wrong[Kind.PAPER].keys() - self.wrong[Kind.UNSEEN].keys():
            remarks.append("needs arrays that are aligned to more than their element")
        failure = self.build.failure
        return Verdict(
            file=self.found.name,
            sha256=self.found.sha256,
            symbol=self.symbol.name,
            task=self.symbol.task,
            problem=self.problem,
            built=None if self.problem else failure is None,
            message=self._named(failure.message) if failure and not self.problem else "",
            paper=tallies[Kind.PAPER],
            unseen=tallies[Kind.UNSEEN],
            inputs=tallies[Kind.INPUTS],
            remarks=tuple(remarks),
        )
