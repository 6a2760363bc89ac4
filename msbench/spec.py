"""What to compute: operators as their ``spec.py`` declares them, their cases, and tasks. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

STANDARD_DISTRIBUTIONS = (
    "uniform",
    "integers",
    "spiked",
    "constant",
    "zeros",
    "tiny",
    "large",
    "sorted",
    "nonfinite",
    "patchwork",
    "dotted",
    "scattered",
)
"""What harness/inputs.py can draw for any operator; docs/contract.md says what they are."""


class Precision(StrEnum):
    """The element type of a task."""

    FP32 = "fp32"
    BF16 = "bf16"

    @property
    def ctype(self) -> str:
        """The C type behind ``scalar_t``."""
        return {"fp32": "float", "bf16": "__nv_bfloat16"}[self.value]

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return {"fp32": 4, "bf16": 2}[self.value]

    @property
    def unit_roundoff(self) -> float:
        """u = 2^-p for a p-bit significand, rounding to nearest (Higham 2002, section 2.1)."""
        return {"fp32": 2.0**-24, "bf16": 2.0**-8}[self.value]


class Split(StrEnum):
    """Where a case comes from."""

    PAPER = "paper"
    LARGE = "large"
    ODD = "odd"
    HELDOUT = "heldout"


@dataclass(frozen=True)
class Array:
    """One array of an operator.

    ``dtype`` is ``"T"`` (the task's element type), ``"f32"`` or ``"i32"``; ``shape`` holds Python integer expressions over
    the operator's dimensions, such as ``("rows + 1",)``.
    """

    name: str
    shape: tuple[str, ...]
    dtype: str = "T"
    output: bool = False


@dataclass(frozen=True)
class Scalar:
    """One scalar argument: ``ctype`` is ``"float"`` or ``"int64_t"``; ``value`` is what cases use unless they say otherwise.

    ``low`` and ``high``, both or neither, are the closed range that held-out cases draw another value from; without them they
    have ``value``, too, and a kernel that ignores the argument goes unnoticed. ``value`` may lie outside. ``step``: drawn values
    are its multiples, for example since a library rounds them to bf16 and they have to be exact.
    """

    name: str
    ctype: str
    value: float | int
    low: float | int | None = None
    high: float | int | None = None
    step: float | int | None = None


@dataclass(frozen=True)
class Dim:
    """One dimension and the closed range that every correct kernel supports; held-out sizes are drawn from it."""

    name: str
    low: int
    high: int
    meaning: str = ""


@dataclass(frozen=True)
class Case:
    """One concrete set of dimensions, with the distribution of its inputs."""

    dims: tuple[tuple[str, int], ...]
    split: Split
    distribution: str = "uniform"
    scalars: tuple[tuple[str, float | int], ...] = ()

    @property
    def id(self) -> str:
        """For example ``"M=64,K=4096,N=2048"``; other distributions and scalars are appended: ``"N=7,spiked"``."""
        # A plus sign would end the id where several are joined.
        parts = [f"{k}={v}".replace("e+", "e") for k, v in (*self.dims, *self.scalars)]
        if self.distribution != "uniform":
            parts.append(self.distribution)
        return ",".join(parts)

    def dim(self, name: str) -> int:
        """The value of one dimension."""
        return dict(self.dims)[name]


@dataclass(frozen=True)
class Operator:
    """What to compute. ``kernels/<name>/spec.py`` declares one as ``OPERATOR``.

    Callables get everything by keyword, by the names declared here:
    ``reference(xp, **arrays, **scalars, **dims)`` returns the outputs (one array, or a dict by name) in float64, computed from
    float64 copies of the precision-rounded inputs; ``xp`` is numpy or cupy.
    ``bound(xp, u, out, **arrays, **scalars, **dims)`` returns the largest acceptable absolute error an element, in the same form as
    the reference (``u``: the precision's unit roundoff; ``out``: the reference's dict); zero means exact. What both need the
    reference may work out once: it returns that in its dict, too, by a name that is no output's.
    ``inputs(rng, distribution, **scalars, **dims)`` returns a dict of arrays (see harness/inputs.py for ``rng``); None
    draws every input from the distribution.
    ``kinds``: of what the patches of ``patchwork``, ``dotted`` and ``scattered`` are made where there is no ``inputs`` (see
    operators/patchwork.py; None: every kind).
    ``outliers``: the distribution from which a few elements are put among others', to see who notices; one that has elements of
    another size. Where it is none of ``distributions``, they come from the same one.
    ``nbytes(itemsize, **dims)``: bytes that any kernel must move: each input read once, each output written once.
    ``gathered(itemsize, **dims)``: bytes that enter the multiprocessors beyond these, since irregular reads move whole sectors
    again and again (see operators/sparse.py); None: none.
    ``flops(**dims)``: floating-point operations of the definition; a function such as exp, a division and a comparison count as
    one each.
    ``bytes_note``, ``flops_note``: why a profiler counts others than these, where it does (see ``msbench db counts``).
    ``valid(**dims)``: whether a drawn held-out combination makes sense and is affordable (None: always).
    ``compute``: the arithmetic whose measured rate bounds the operator; ``"precision"`` where matrix units can do it, so that
    the task's own element type has the say (see ``compute_in``).
    """

    name: str
    title: str
    scenario: str
    definition: str
    dims: tuple[Dim, ...]
    arrays: tuple[Array, ...]
    cases: tuple[Case, ...]
    reference: Callable[..., Any]
    bound: Callable[..., Any]
    nbytes: Callable[..., int]
    flops: Callable[..., int]
    gathered: Callable[..., int] | None = None
    scalars: tuple[Scalar, ...] = ()
    inputs: Callable[..., dict[str, Any]] | None = None
    distributions: tuple[str, ...] = ("uniform", "spiked", "constant", "sorted", "patchwork", "dotted", "scattered")
    kinds: tuple[str, ...] | None = None
    outliers: str = "spiked"
    valid: Callable[..., bool] | None = None
    bound_note: str = ""
    library_note: str = ""
    bytes_note: str = ""
    flops_note: str = ""
    compute: str = "fp32"
    deterministic: bool = False
    paper_name: str = ""
    precisions: tuple[Precision, ...] = (Precision.FP32, Precision.BF16)
    folder: str = field(default="", compare=False)

    @property
    def inputs_(self) -> tuple[Array, ...]:
        """The input arrays, in the order of the C prototype."""
        return tuple(a for a in self.arrays if not a.output)

    @property
    def outputs(self) -> tuple[Array, ...]:
        """The output arrays, in the order of the C prototype (after the inputs)."""
        return tuple(a for a in self.arrays if a.output)

    def takes(self, dims: Mapping[str, int]) -> bool:
        """Whether sizes within the dimensions' ranges go together."""
        return self.valid is None or self.valid(**dims)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """It in each of its precisions."""
        return tuple(Task(self, precision) for precision in self.precisions)

    def compute_in(self, precision: Precision) -> str:
        """The arithmetic that bounds this operator in one precision: a name that ``Ceilings.flops`` takes."""
        return str(precision) if self.compute == "precision" else self.compute

    def scalar_values(self, case: Case) -> dict[str, float | int]:
        """Every scalar's value in a case."""
        given = dict(case.scalars)
        return {s.name: given.get(s.name, s.value) for s in self.scalars}


@dataclass(frozen=True)
class Task:
    """What an optimizer is asked to make fast: an operator in one precision."""

    operator: Operator
    precision: Precision

    @property
    def id(self) -> str:
        """For example ``"rms_norm/fp32"``."""
        return f"{self.operator.name}/{self.precision}"

    def at(self, case: Case) -> Problem:
        """The task at one case."""
        return Problem(self, case)


@dataclass(frozen=True)
class Problem:
    """A task at one case: what a kernel is called for, whatever its arrays hold."""

    task: Task
    case: Case

    @property
    def operator(self) -> Operator:
        """What is computed."""
        return self.task.operator

    @property
    def precision(self) -> Precision:
        """Its element type."""
        return self.task.precision

    @property
    def dims(self) -> dict[str, int]:
        """The value of each dimension."""
        return dict(self.case.dims)

    @property
    def nbytes(self) -> int:
        """The bytes that have to move."""
        return self.operator.nbytes(self.precision.itemsize, **self.dims)

    @property
    def flops(self) -> int:
        """The operations that have to be done."""
        return self.operator.flops(**self.dims)
