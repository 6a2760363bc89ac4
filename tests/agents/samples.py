"""A briefing for tests; its figures are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msbench import operators
from msbench.agents import Attempt
from msbench.agents._briefing import Briefing, CaseBrief, ProfileBrief, VersionBrief
from msbench.model import Failure, Outcome, normalise
from msbench.spec import Precision
from tests import factories

OP = factories.operator()
NAIVE = factories.candidate(OP, "naive")
KERNEL = normalise(factories.candidate(OP, "step 1", body="Loads four at once.").source)


def briefing() -> Briefing:
    """At the start of a run on the test GPU."""
    cases = tuple(CaseBrief(c.id, OP.nbytes(4, **dict(c.dims)), 2, 5000.0, "memory") for c in OP.cases)
    times = {c.name: 10_000.0 for c in cases}
    parent = VersionBrief(
        NAIVE.id, "naive", NAIVE.source, times, {c.name: (1.0, 0.99, 1.01) for c in cases}, speedup=1.0,
        profiles=(ProfileBrief(cases[-1].name, "memory", ("dram throughput = 71 (threshold 60)",), ("dram throughput: 71 %",)),),
    )  # fmt: skip
    beaten = {c.name: (0.6, 0.59, 0.61) for c in cases}
    library = VersionBrief("lib", "vendor", "", {c.name: 6000.0 for c in cases}, beaten=beaten)
    start = Attempt(0, "baseline", Outcome.BASELINE, None, NAIVE.id, speedup=1.0)
    return Briefing(
        OP, Precision.FP32, operators.prototype(OP), operators.workspace_prototype(OP), "// helpers", cases,
        factories.GPU, factories.CEILINGS, parent, (library,), (start,), True,
    )  # fmt: skip


def failing(failure: Failure, attempts: Sequence[Attempt]) -> Briefing:
    """When a draft ``"bad"`` failed."""
    start = briefing()
    parent = VersionBrief("bad", "step 1", "// the bad source\n", failure=failure)
    return replace(start, parent=parent, attempts=tuple(attempts))
