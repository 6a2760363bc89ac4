"""Gathers what the agents are told from the run's journal, the operator and the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msbench import operators, resources, roofline
from msbench.agents import History
from msbench.agents._briefing import Briefing, CaseBrief, VersionBrief
from msbench.harness.profile import describe_metric, select_for_prompt
from msbench.model import Candidate, Ceilings, Device, Evaluation, Failure, Origin
from msbench.optimize.comparison import score, speedups, times_ns
from msbench.optimize.journal import Journal
from msbench.spec import Case, Task


class Briefings:
    """Makes the briefing of each step of one run."""

    def __init__(
        self,
        task: Task,
        cases: Sequence[Case],
        device: Device,
        ceilings: Ceilings | None,
        measures: bool,
        journal: Journal,
    ) -> None:
        self._task = task
        self._cases = cases
        self._device = device
        self._ceilings = ceilings
        self._measures = measures
        self._journal = journal

    def make(self, history: History, parent: str) -> Briefing:
        """The briefing for going on from version ``parent``."""
        operator = self._task.operator
        start, references = self._compared(history, parent)
        return Briefing(
            operator=operator,
            precision=self._task.precision,
            prototype=operators.prototype(operator),
            workspace_prototype=operators.workspace_prototype(operator),
            helpers=_helpers(),
            cases=tuple(self._case(case) for case in self._cases),
            device=self._device,
            ceilings=self._ceilings,
            parent=start,
            references=references,
            attempts=history.attempts,
            measures=self._measures,
        )

    def _case(self, case: Case) -> CaseBrief:
        operator, dims = self._task.operator, dict(case.dims)
        nbytes, flops = operator.nbytes(self._task.precision.itemsize, **dims), operator.flops(**dims)
        if self._ceilings is None:
            return CaseBrief(case.id, nbytes, flops)
        bound = roofline.bound_ns(nbytes, flops, operator.compute_in(self._task.precision), self._ceilings)
        return CaseBrief(case.id, nbytes, flops, bound.time_ns, bound.term)

    def _compared(self, history: History, version: str) -> tuple[VersionBrief, tuple[VersionBrief, ...]]:
        """The version with its figures, and those that were measured together with it."""
        candidate = self._journal.source(version)
        attempt = history.of_version(version)
        bare = _bare(candidate)
        if attempt and attempt.number:
            bare = replace(bare, title=f"step {attempt.number}")
        step = next((s for s in self._journal.steps if s.version_id == version and s.evaluation_id), None)
        if step is None or step.evaluation_id is None:
            return bare, ()
        own = self._journal.evaluation(step.evaluation_id)
        yardsticks = [e for e in self._journal.companions(own) if e.candidate.origin in (Origin.NAIVE, Origin.LIBRARY)]
        companions = newest(yardsticks)
        naive = next((e for e in companions if e.candidate.origin is Origin.NAIVE), None)
        others = [e for e in companions if e.candidate.id != version and times_ns(e, self._cases)]
        return self._figures(bare, own, naive), tuple(self._figures(_bare(e.candidate), e, naive) for e in others)

    def _figures(self, brief: VersionBrief, own: Evaluation, naive: Evaluation | None) -> VersionBrief:
        by_case = speedups(naive, own, self._cases) if naive else {}
        profile = own.profiles[0] if own.profiles else None
        return replace(
            brief,
            times_ns=times_ns(own, self._cases),
            speedups=by_case,
            speedup=score(by_case, self._cases),
            failure=_with_checks(own),
            resources=_resources(own),
            bottleneck=profile.bottleneck if profile and not profile.failure else "",
            evidence=tuple(f"{describe_metric(n)} is {v:.4g}, threshold {t:.4g}" for n, v, t in profile.evidence)
            if profile
            else (),
            metrics=select_for_prompt(profile) if profile and not profile.failure else (),
        )


def newest(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """One evaluation a version, the last given, naive first."""
    by_version = {e.candidate.id: e for e in evaluations}

    def naive_first(evaluation: Evaluation) -> tuple[bool, str, str]:
        candidate = evaluation.candidate
        return candidate.origin is not Origin.NAIVE, candidate.label, candidate.id

    return sorted(by_version.values(), key=naive_first)


def _bare(candidate: Candidate) -> VersionBrief:
    return VersionBrief(candidate.id, candidate.label or candidate.origin.value, candidate.source)


def _helpers() -> str:
    path = resources.include_dir() / "msbench.cuh"
    return path.read_text("utf-8") if path.is_file() else ""


def _with_checks(evaluation: Evaluation) -> Failure | None:
    """The failure; for a failed check with what passed and what did not, as a debugger needs to see the pattern."""
    failure = evaluation.failure
    failed = [c for c in evaluation.checks if not c.passed and c.failure]
    if failure is None or failure.log or not failed:
        return failure
    lines = [f"failed, {c.variant}: {c.failure.message}" for c in failed[:12] if c.failure]
    # in an order that the stored results have no part in: a replay's briefing is to be the recorded one
    ordered = sorted({c.case for c in evaluation.checks if c.passed}, key=lambda case: (case.dims, case.id))
    passed = dict.fromkeys(case.id for case in ordered)
    lines.append(f"passed before it: {'; '.join(passed) or 'nothing'}")
    return replace(failure, log="\n".join(lines))


def _resources(evaluation: Evaluation) -> tuple[str, ...]:
    """What the compiler said of each kernel."""
    units = {"registers": "registers", "shared_bytes": "bytes of static shared memory"}
    lines = []
    for kernel in evaluation.build.kernels if evaluation.build else ():
        facts = [f"{kernel[key]} {unit}" for key, unit in units.items() if kernel.get(key) is not None]
        spilled = (kernel.get("spill_store_bytes") or 0) + (kernel.get("spill_load_bytes") or 0)
        facts.append(f"{spilled} bytes spilled" if spilled else "no spills")
        lines.append(f"{kernel.get('name', 'kernel')}: {', '.join(facts)}")
    return tuple(lines)
