"""Versions and runs, each with all that is known of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msbench.figures.figures import CaseFigures, VersionFigures
from msbench.figures.ratios import Ratio
from msbench.model import Fault, Origin, Status
from msbench.store.tables import (
    BuildRow,
    CaseRow,
    CheckRow,
    DeviceRow,
    EvaluationRow,
    ProfileRow,
    RecordRow,
    RunRow,
    StepRow,
    TaskRow,
    VersionRow,
)

SHORT = 12
"""Digits of an id in a page's file name."""

_FAULTS = {
    Fault.EMPTY: "empty file",
    Fault.COMPILE: "did not compile",
    Fault.SIGNATURE: "wrong signature",
    Fault.LINK: "did not link",
    Fault.FORBIDDEN: "forbidden call",
    Fault.UNSUPPORTED: "not run here",
    Fault.LAUNCH: "launch failed",
    Fault.MISMATCH: "wrong result",
    Fault.OUT_OF_BOUNDS: "out of bounds",
    Fault.INPUT_CHANGED: "changed its inputs",
    Fault.UNWRITTEN: "left output unwritten",
    Fault.NONDETERMINISTIC: "not repeatable",
    Fault.CRASH: "crashed",
    Fault.TIMEOUT: "out of time",
    Fault.OUT_OF_MEMORY: "out of memory",
    Fault.IMPOSSIBLE: "impossible time",
    Fault.DEVICE: "device failed",
}
_STAGES = {
    Status.BUILD_FAILED: "did not build",
    Status.CHECK_FAILED: "failed a check",
    Status.MEASURE_FAILED: "could not be timed",
    Status.PROFILE_FAILED: "not profiled",
    Status.UNSUPPORTED: "not run here",
}


REFERENCE = "straightforward"
"""The label of reference implementations: they take the place of a library where none has the operator."""

SHIPPED = "shipped as best"
"""What a version from ``best.cu`` is called that is not the best, or not any more."""

WRITERS = {
    Origin.NAIVE: "msbench, as the operator's naive kernel",
    Origin.LIBRARY: "msbench, as a launcher for the library’s call",
    Origin.AGENT: "a language model, in a run that is not in this database",
    Origin.EXPERT: "msbench, outside a run: there is no conversation to show",
    Origin.EXTERNAL: "a user, as a file given to msbench eval",
}
"""Who wrote a version that came out of no run."""

_NO_MODEL = ("", "answered by hand", "expert", "manual")
"""What stands for a model's name where prompts were answered through files and nobody gave one."""


def failed(evaluation: EvaluationRow) -> bool:
    """Whether a stage failed that says something about the kernel: one that an executor can't run has not failed."""
    return evaluation.status not in (Status.PASSED, Status.PROFILE_FAILED, Status.UNSUPPORTED)


def profiles_of(before: Version, after: Version) -> tuple[ProfileRow, ProfileRow] | None:
    """Profiles of two versions that can be compared: of one case by one tool; None where there are none."""
    for theirs in sorted(after.profiles, key=lambda p: p.source != "ncu"):
        for ours in before.profiles:
            if (ours.case_id, ours.source) == (theirs.case_id, theirs.source):
                return ours, theirs
    return None


def slug(name: str) -> str:
    """``name`` as a file name: whatever a database says, a page stays inside its folder."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)[:80]


def sized(case: CaseRow) -> str:
    """A case's dimensions and scalars: its name without the kind of inputs."""
    return case.name.removesuffix(f",{case.distribution}")


@dataclass(frozen=True)
class Version:
    """One version with all that is known of it. ``name`` tells it from the other versions of its task.

    ``evaluation`` is the newest one that judged it, and its results are shown; if that was answered from a recording,
    it is the recorded one. ``timed_on``: the devices that timed it, the last first, whoever's times the site shows.
    """

    name: str
    task: TaskRow
    figures: VersionFigures
    evaluation: EvaluationRow | None
    children: tuple[str, ...]
    evaluations: tuple[EvaluationRow, ...]
    device: DeviceRow | None
    timed_on: tuple[DeviceRow, ...]
    build: BuildRow | None
    checks: tuple[CheckRow, ...]
    profiles: tuple[ProfileRow, ...]
    record: RecordRow | None

    @property
    def row(self) -> VersionRow:
        """The version's row."""
        return self.figures.version

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of the versions that it was made from."""
        return self.figures.parents

    @property
    def cases(self) -> tuple[CaseFigures, ...]:
        """The cases that it has a time for; none if it failed."""
        return () if self.failed else tuple(c for c in self.figures.cases if c.median_ns is not None)

    @property
    def over_naive(self) -> Ratio | None:
        """Its score: how many times as fast as the naive kernel, over all cases."""
        return self.figures.score

    @property
    def over_library(self) -> Ratio | None:
        """How many times as fast as each case's fastest library call, over all cases."""
        return self.figures.library_score

    @property
    def over_bar(self) -> Ratio | None:
        """How many times as fast as the faster of that call and the naive kernel, case by case, over all cases."""
        return self.figures.bar_score

    @property
    def ranked(self) -> bool:
        """Whether it was measured in the session in which the task's versions competed; others are shown, not ranked."""
        return self.figures.ranked

    @property
    def session(self) -> str | None:
        """The session that its figures are of, by the instant of its newest time."""
        return self.figures.session

    @property
    def measured_at(self) -> str | None:
        """When its times were taken."""
        return self.figures.measured_at

    @property
    def id(self) -> str:
        """32 hex digits."""
        return self.row.id

    @property
    def href(self) -> str:
        """Its page, from the site's root."""
        return f"version/{self.row.id[:SHORT]}.html"

    @property
    def ours(self) -> bool:
        """Whether it competes: neither the naive kernel nor a vendor's library."""
        return self.row.origin not in (Origin.NAIVE, Origin.LIBRARY)

    @property
    def kind(self) -> str:
        """Its origin, as pages name it: a reference implementation is no library."""
        return "reference implementation" if self.is_reference else self.row.origin

    @property
    def is_reference(self) -> bool:
        """Whether it takes a library's place."""
        return self.row.origin == Origin.LIBRARY and self.row.label == REFERENCE

    @property
    def role(self) -> str:
        """Its colour: ``naive``, ``library`` or ``best``."""
        return self.row.origin if not self.ours else "best"

    @property
    def measured(self) -> bool:
        """Whether it has times (and so passed its checks on a GPU)."""
        return bool(self.cases)

    @property
    def failed(self) -> bool:
        """Whether a stage failed that says something about the kernel."""
        return self.evaluation is not None and failed(self.evaluation)

    @property
    def state(self) -> str:
        """Two or three words: ``measured``, ``checked, not timed``, ``did not compile`` …"""
        if self.evaluation is None:
            return "not evaluated"
        status = Status(self.evaluation.status)
        if status in (Status.PASSED, Status.PROFILE_FAILED):
            if self.measured:
                return "measured"
            if self.timed_on:
                return f"timed on {self.timed_on[0].name}"
            # A publication drops the times of what was replaced, see archive/superseded.py.
            return "times not kept" if self.evaluation.executor == "cuda" else "checked, not timed"
        if self.evaluation.fault and status is not Status.UNSUPPORTED:
            return _FAULTS[Fault(self.evaluation.fault)]
        return _STAGES[status]

    @property
    def tone(self) -> str:
        """The colour of ``state``: ``bad`` or none."""
        return "bad" if self.failed else ""

    @property
    def profile(self) -> ProfileRow | None:
        """Shown without a comparison: the newest, by Nsight Compute if there is one, of the largest case."""
        return next((p for p in self.profiles if p.source == "ncu"), self.profiles[0] if self.profiles else None)


@dataclass(frozen=True)
class Run:
    """One run with its steps in order."""

    row: RunRow
    task: TaskRow
    steps: tuple[StepRow, ...]

    @property
    def href(self) -> str:
        """Its page, from the site's root."""
        return f"run/{slug(self.row.id)}.html"

    @property
    def author(self) -> str:
        """Who answered its prompts. Through files anybody may have; a run's note says if it was a language model."""
        if self.row.provider != "manual":
            return self.row.model or f"a language model, through the {self.row.provider} provider; model not recorded"
        if self.row.model not in _NO_MODEL:
            return f"{self.row.model}, through prompt files"
        modelled = "language-model" in self.row.note or "language model" in self.row.note
        return f"{'a language model' if modelled else 'a person or a language model'}, through prompt files; model not recorded"

    @property
    def replayed(self) -> bool:
        """Whether it repeats a recorded conversation."""
        return self.row.replay_of is not None or self.row.provider == "replay"

    @property
    def baseline(self) -> StepRow | None:
        """The step that measured where the run started from."""
        return next((s for s in self.steps if s.outcome == "baseline"), None)
