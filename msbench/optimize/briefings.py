"""Gathers the agents' briefings from the run's journal, the operator and the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msbench import operators, resources, roofline
from msbench.agents import Attempt, History
from msbench.agents._briefing import Briefing, CaseBrief, Interval, ProfileBrief, VersionBrief
from msbench.gpu.profile.bottleneck import describe_all, describe_metric, select_for_prompt
from msbench.model import Candidate, Ceilings, Device, Evaluation, Origin, Outcome, Profile, ProfileView
from msbench.optimize.comparison import paired, score, speedups, times_ns
from msbench.optimize.hidden import told
from msbench.optimize.journal import Journal
from msbench.optimize.settings import Settings
from msbench.spec import Case, Task

LONGEST_HISTORY = 16_000
"""Characters that a prompt spends on what was tried."""


class Briefings:
    """Makes the briefing of each step of one run."""

    def __init__(
        self,
        task: Task,
        settings: Settings,
        device: Device,
        ceilings: Ceilings | None,
        measures: bool,
        journal: Journal,
    ) -> None:
        self._task = task
        self._cases = settings.plan.cases
        self._view = settings.profile_view
        self._knowledge = settings.knowledge
        self._device = device
        self._ceilings = ceilings
        self._measures = measures
        self._journal = journal

    def make(self, history: History, parent: str, others: Sequence[str] = ()) -> Briefing:
        """The briefing for going on from version ``parent``, and from ``others``."""
        operator = self._task.operator
        start, references = self._compared(history, self._journal.source(parent))
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
            attempts=remembered(history.attempts),
            measures=self._measures,
            others=tuple(self.version(history, self._journal.source(one)) for one in others),
            knowledge=self._knowledge,
        )

    def version(self, history: History, candidate: Candidate) -> VersionBrief:
        """A version with its figures, as far as this run has them."""
        return self._compared(history, candidate)[0]

    def _case(self, case: Case) -> CaseBrief:
        operator, dims = self._task.operator, dict(case.dims)
        itemsize = self._task.precision.itemsize
        nbytes, flops = operator.nbytes(itemsize, **dims), operator.flops(**dims)
        gathered = operator.gathered(itemsize, **dims) if operator.gathered else 0
        if self._ceilings is None:
            return CaseBrief(case.id, nbytes, flops)
        bound = roofline.bound_ns(nbytes, flops, operator.compute_in(self._task.precision), self._ceilings, gathered)
        return CaseBrief(case.id, nbytes, flops, bound.time_ns, bound.term)

    def _compared(self, history: History, candidate: Candidate) -> tuple[VersionBrief, tuple[VersionBrief, ...]]:
        """The version with its figures, and those that were measured together with it."""
        version = candidate.id
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
        start = self._figures(bare, own, naive)
        refutation = self._journal.refutation(version)
        if refutation:
            failed = self._journal.evaluation(refutation)
            start = replace(start, failure=told(failed, self._task.operator, self._cases))
        return start, tuple(
            replace(self._figures(_bare(e.candidate), e, naive), beaten=self._ratios(e, own)) for e in others
        )

    def _ratios(self, reference: Evaluation, evaluation: Evaluation) -> dict[str, Interval]:
        found = speedups(paired(reference, evaluation, self._cases))
        return {name: (ratio.value, ratio.low, ratio.high) for name, ratio in found.items()}

    def _figures(self, brief: VersionBrief, own: Evaluation, naive: Evaluation | None) -> VersionBrief:
        by_case = paired(naive, own, self._cases) if naive else {}
        return replace(
            brief,
            times_ns=times_ns(own, self._cases),
            speedups=self._ratios(naive, own) if naive else {},
            speedup=score(by_case, self._cases),
            failure=told(own, self._task.operator, self._cases),
            resources=_resources(own),
            profiles=tuple(self._profile(one) for one in self._journal.profiles(own.candidate.id) if not one.failure)
            if self._view is not ProfileView.NONE
            else (),
        )

    def _profile(self, profile: Profile) -> ProfileBrief:
        evidence = tuple(f"{describe_metric(n)} is {v:.4g}, threshold {t:.4g}" for n, v, t in profile.evidence)
        select = describe_all if self._view is ProfileView.FULL else select_for_prompt
        return ProfileBrief(profile.case.id, profile.bottleneck, evidence, select(profile))


def remembered(attempts: Sequence[Attempt], longest: int = LONGEST_HISTORY) -> tuple[Attempt, ...]:
    """What a prompt tells of the steps, in at most about so many characters: the newest in full, older ones in a line each,
    the oldest not at all. The baseline and the best of all are always there."""
    kept: list[Attempt] = []
    improved = [a for a in attempts[1:] if a.outcome is Outcome.IMPROVED]
    left = longest
    for attempt in reversed(attempts[1:]):
        told = _shortened(attempt, *((1200, 600) if left > longest // 2 else (120, 0)))
        left -= len(told.plan) + len(told.hypothesis) + len(told.lesson) + 60
        if left > 0 or attempt in improved[-1:]:
            kept.append(told)
    return (*attempts[:1], *reversed(kept))


def _shortened(attempt: Attempt, prose: int, hypothesis: int) -> Attempt:
    def cut(text: str, to: int) -> str:
        return text if len(text) <= to else f"{text[:to].rstrip()} ..." if to else ""

    return replace(
        attempt, plan=cut(attempt.plan, prose), hypothesis=cut(attempt.hypothesis, hypothesis), lesson=cut(attempt.lesson, prose)
    )  # fmt: skip


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
