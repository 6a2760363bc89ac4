"""How figures are made: the rules in brief, with this database's numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msbench.model import Origin
from msbench.sitegen import format as fmt
from msbench.sitegen import metrics
from msbench.sitegen.entries import failed
from msbench.sitegen.facts import Site
from msbench.sitegen.page import Page
from msbench.store.tables import EvaluationRow

NAVIGATION = (("Method", "method.html"),)

ORIGINS = {
    Origin.NAIVE: "The plain kernel that comes with each operator, the reference for every other version.",
    Origin.LIBRARY: "A vendor library call, such as cuBLASLt, cuDNN, CUB or cuSPARSE, behind the operator's launcher.",
    Origin.AGENT: "From a run of msbench optimize, whose page says who answered the prompts.",
    Origin.EXPERT: "Shipped with msbench as its task's best version at the time, written outside a run: there is no conversation to show.",
    Origin.EXTERNAL: "A user's file, given to msbench eval.",
}
"""Where versions come from."""

REFERENCES = "Stands in where no library has the operator: code that a good programmer writes without measuring."

VARIANTS = {
    "aligned": "The basic check: two launches on differently poisoned outputs, whose results are compared.",
    "misaligned": "Arrays aligned only to their element type: finds 16-byte accesses where they are not allowed.",
    "repeat": "Four launches, each over the outputs of the one before: finds races, and outputs that are accumulated into.",
    "aba": "Inputs A, then others (B) at the same addresses, then A again: finds cached results.",
    "touched": "A second launch with a few elements changed: finds results cached by a few elements.",
    "sanitized": "One call under a memory checker, each array at the end of its own allocation: finds reads and writes outside the arrays.",
    "recorded": "A call is captured from its stream, inspected, and its launches are repeated on other inputs without the "
    "launcher: finds work on another stream or by the host, and work done only sometimes.",
}
"""What each variant of a check does with the kernel, and what it finds."""


def _counters(site: Site) -> list[metrics.Counter]:
    """Those of all profiles that pages tell in words."""
    found = {name: 0.0 for v in site.versions.values() for profile in v.profiles for name in profile.metrics}
    return [one for one in metrics.counters(found) if one.meaning.says]


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    used = Counter(e.device_id for e in site.evaluations.values())
    evaluations = list(site.evaluations.values())
    context = {
        "devices": [(site.devices[d], site.store.usual_ceilings(d), used[d]) for d in site.devices],
        "executors": sorted(Counter(e.executor for e in evaluations).items()),
        "outcomes": outcomes(evaluations),
        "origins": origins(site),
        "harnesses": len({e.harness for e in evaluations if e.harness}),
        "toolchains": sorted(Counter(b.toolchain for b in site.builds.values() if b.toolchain).items()),
        "variants": [(name, n, VARIANTS.get(name, "")) for name, n in _in_order(site)],
        "distributions": sorted(Counter(site.cases[c.case_id].distribution for c in site.checks).items()),
        "counters": _counters(site),
        "first": min((e.started_at for e in evaluations), default=None),
        "last": max((e.started_at for e in evaluations), default=None),
    }
    yield Page(
        "method.html",
        "method.html",
        "How figures are made",
        "How msbench checks, measures and compares kernels.",
        context,
    )


def origins(site: Site) -> list[tuple[str, int, str]]:
    """Who wrote the versions: each origin, how many have it, and what it means."""
    used = Counter(v.kind for v in site.versions.values())
    found = [(str(origin), used[origin], says) for origin, says in ORIGINS.items()]
    return [*found[:2], ("reference implementation", used["reference implementation"], REFERENCES), *found[2:]]


def outcomes(evaluations: Sequence[EvaluationRow]) -> str:
    """What became of the evaluations; those that failed with the stages that they failed in."""
    used = Counter(e.status for e in evaluations)
    lost = Counter(e.status for e in evaluations if failed(e))
    told = [_counted(status, n) for status, n in sorted(used.items()) if not lost[status]]
    if lost:
        stages = ", ".join(_counted(status.removesuffix("_failed"), n) for status, n in sorted(lost.items()))
        told.append(f"{_counted('failed', lost.total())} ({stages})")
    return ", ".join(told) or fmt.NONE


def _counted(name: str, number: int) -> str:
    return f"{name.replace('_', ' ')} {fmt.count(number)}"


def _in_order(site: Site) -> list[tuple[str, int]]:
    """The variants that were checked and how often, those that are explained first."""
    used = Counter(c.variant for c in site.checks)
    return [(name, used[name]) for name in (*VARIANTS, *sorted(used.keys() - VARIANTS.keys())) if used[name]]
