"""What an audit says of one file, as it is reported and kept: a hash, figures and a verdict, never the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True)
class Tally:
    """On how many cases of one kind a file was tried, and what was wrong where.

    ``wrong``: one sentence by the case's id. ``left_out``: cases that were not tried.
    """

    tried: int = 0
    wrong: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0

    @property
    def right(self) -> bool:
        """Whether it was tried, and right wherever it was."""
        return self.tried > 0 and not self.wrong

    def __str__(self) -> str:
        if not self.tried:
            return "not tried"
        return f"{self.tried - len(self.wrong)} of {self.tried}"


@dataclass(frozen=True)
class Speed:
    """The time of ``rival`` over the file's own, above 1 where the file is faster: geometric mean and 95 % interval."""

    rival: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class CaseTimes:
    """Times of one case by version, the file's own under ``"file"``: the centre of each round, in ns.

    Rounds pair by index; None stands for a round in which a version took no part.
    """

    case: str
    cold_ns: Mapping[str, tuple[float | None, ...]]
    hot_ns: Mapping[str, float | None]
    noisy: bool


@dataclass(frozen=True)
class Verdict:
    """What an audit found out about one file.

    Attributes:
        file: its path below the audited folder.
        sha256: of its bytes.
        symbol: the function that makes it a kernel of the convention; None where there is none.
        task: the operator and precision, such as ``"relu/fp32"``.
        problem: why it was not judged, in one sentence; "" where it was.
        built: whether it builds alone; ``message`` says why not.
        paper: sizes of the paper, ordinary inputs.
        unseen: other sizes, ordinary inputs.
        inputs: inputs of other distributions, on a small size of the paper.
        remarks: what a launcher must not do and this convention allows, and what else a reader should know.
        ours: against the project's own version.
        library: against the fastest of the library baselines on each case.
        untimed: why it has no times; "" where it has.
    """

    file: str
    sha256: str
    symbol: str | None = None
    task: str | None = None
    problem: str = ""
    built: bool | None = None
    message: str = ""
    paper: Tally = Tally()
    unseen: Tally = Tally()
    inputs: Tally = Tally()
    remarks: tuple[str, ...] = ()
    ours: Speed | None = None
    library: Speed | None = None
    times: tuple[CaseTimes, ...] = ()
    untimed: str = ""

    @property
    def held(self) -> bool:
        """Whether it builds alone and is right on the paper's sizes and on others."""
        return bool(self.built) and self.paper.right and self.unseen.right

    @property
    def _sizes(self) -> tuple[tuple[str, Tally], ...]:
        return ("paper", self.paper), ("unseen", self.unseen)

    @property
    def outcome(self) -> str:
        """The verdict in one line."""
        if self.problem:
            return self.problem
        if not self.built:
            return f"does not build alone: {self.message}"
        right = ", ".join(f"on {tally} {kind} sizes" for kind, tally in self._sizes if tally.tried)
        parts = [f"right {right}"] if right else []
        parts += [f"not tried on {kind} sizes" for kind, tally in self._sizes if not tally.tried]
        for speed in (self.ours, self.library):
            if speed is not None:
                parts.append(f"{speed.ratio:.2f}× as fast as {speed.rival}")
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """For programs, and for the database."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """What ``as_json`` gave; what else there is in it is left out."""
        known = {f.name: stored[f.name] for f in fields(cls) if f.name in stored}
        for name in ("paper", "unseen", "inputs"):
            known[name] = Tally(**known[name])
        for name in ("ours", "library"):
            known[name] = Speed(**known[name]) if known[name] else None
        known["times"] = tuple(
            CaseTimes(**times | {"cold_ns": {n: tuple(c) for n, c in times["cold_ns"].items()}})
            for times in known["times"]
        )
        known["remarks"] = tuple(known["remarks"])
        return cls(**known)
