"""A version's page: what it is worth and why, with everything that the answer rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msbench.model import Status
from msbench.sitegen import charts, highlight, metrics, points, sources, verdict
from msbench.sitegen import format as fmt
from msbench.sitegen.diff import diff
from msbench.sitegen.entries import SHORT, Version, profiles_of
from msbench.sitegen.facts import Site
from msbench.sitegen.page import File, Page
from msbench.sitegen.plot import Chart
from msbench.sitegen.transcript import exchanges
from msbench.store.tables import ProfileRow

BARS = 6
"""Counters in the chart."""
LOG = 8_000
"""Characters of a compiler's log that a page shows."""


def pages(site: Site) -> Iterator[Page | File]:
    """One page a version, and its source as a file."""
    for version in site.versions.values():
        context = facts(site, version)
        yield Page(
            version.href,
            "version.html",
            f"{version.name}, {version.task.title} {version.task.precision}",
            context["verdict"],
            context,
            charts=bool(context["roofline"] or context["time"] or context["bars"]),
        )
        yield File(f"version/{version.id[:SHORT]}.cu", version.row.source)


def facts(site: Site, v: Version) -> dict[str, Any]:
    """What the template shows."""
    parent = site.predecessor(v)
    naive, library = site.naive(v.task.id), site.library(v.task.id)
    child = _best_child(site, v)
    against = site.parent(v) or naive
    pair = profiles_of(parent, v) if parent else None
    changes = metrics.changes(pair[0].metrics, pair[1].metrics) if pair else []
    profile = pair[1] if pair else v.profile
    family = [(v, "best"), (parent, "parent"), (child, "child")] if v.measured else []
    rivals = [*family, (naive, "naive"), (library, "library")] if v.measured else []
    told = site.steps_of(v.id)
    return {
        "v": v,
        "verdict": verdict.version(site, v),
        "label": sources.label(site, [v]),
        "parent": parent,
        "lineage": [*reversed(site.ancestors(v)), v],
        "children": [site.versions[c] for c in v.children],
        "roofline": points.roofline_chart(site, "roofline-chart", family),
        "time": points.time_chart(site, "time-chart", rivals),
        "changes": changes,
        "bars": _bars(changes, parent, v),
        "profile": profile,
        "counters": metrics.counters(profile.metrics) if profile and not pair else [],
        "evidence": _evidence(profile),
        "tool": sources.tool(profile) if profile else "",
        "cases": _cases(site, v, parent),
        "compared": site.compared(v, parent) if parent else None,
        "checks": _checks(site, v),
        "kernels": _kernels(v),
        "log": _tail(v),
        "code": highlight.code(v.row.source),
        "file": f"{v.id[:SHORT]}.cu",
        "diff": diff(against.row.source, v.row.source) if against and against.id != v.id else None,
        "against": against,
        "told": told,
        "calls": exchanges(site.calls(told[0][0].row.id, told[0][1].number), set()) if told else (),
        "repeat": f"msbench eval site/version/{v.id[:SHORT]}.cu --op {v.task.operator} --precision {v.task.precision}",
    }


def _best_child(site: Site, v: Version) -> Version | None:
    found = [site.versions[c] for c in v.children if site.versions[c].measured]
    return max(found, key=lambda c: (c.over_naive.value if c.over_naive else 0.0, c.id), default=None)


def _bars(changes: list[metrics.Change], parent: Version | None, v: Version) -> Chart | None:
    shown = [c for c in changes if c.meaning.percent and c.weight > 0][:BARS]
    before, after = [c.before or 0.0 for c in shown], [c.after or 0.0 for c in shown]
    labels = (parent.name if parent else "before", v.name)
    return charts.before_after("before-after", [c.meaning.name for c in shown], before, after, labels)


def _evidence(profile: ProfileRow | None) -> list[str]:
    """Why the classifier said so: ``Memory bandwidth in use is 87 % (threshold 60 %)``."""
    if profile is None:
        return []
    found = [(metrics.meaning(str(name)), float(value), float(limit)) for name, value, limit in profile.evidence]
    return [f"{what.name} is {what.show(value)} (threshold {what.show(limit)})" for what, value, limit in found]


def _cases(site: Site, v: Version, parent: Version | None) -> list[dict[str, Any]]:
    over_parent = site.compared(v, parent).cases if parent else {}
    return [
        {
            "figure": f,
            "interval": site.intervals.get(f.measurement_id or ""),
            "over_parent": over_parent.get(f.case.name),
        }
        for f in v.cases
    ]


def _checks(site: Site, v: Version) -> list[dict[str, Any]]:
    """The checks of each case: how many, how many passed, the worst error over its bound, the first message."""
    found: dict[str, dict[str, Any]] = {}
    for check in v.checks:
        entry = found.setdefault(
            check.case_id,
            {"case": site.cases[check.case_id], "passed": 0, "all": 0, "worst": None, "variants": [], "messages": []},
        )
        entry["all"] += 1
        entry["passed"] += check.passed
        entry["variants"].append(check.variant)
        if check.worst is not None:
            entry["worst"] = check.worst if entry["worst"] is None else max(entry["worst"], check.worst)
        if check.message:
            entry["messages"].append(check.message)
    return list(found.values())


def _kernels(v: Version) -> dict[str, Any]:
    """What the compiler said of each kernel, as a table: the heads of its columns, and rows of names and values."""
    kernels = v.build.kernels if v.build else []
    facts = list(dict.fromkeys(fact for kernel in kernels for fact in kernel if fact != "name"))
    rows = [
        {"name": str(kernel.get("name", "kernel")), "values": [_fact(fact, kernel.get(fact)) for fact in facts]}
        for kernel in kernels
    ]
    return {"heads": [fact.removesuffix("_bytes").replace("_", " ") for fact in facts], "rows": rows}


def _fact(name: str, value: Any) -> str:
    if not isinstance(value, int):
        return fmt.NONE if value is None else str(value)
    return fmt.size(value) if name.endswith("_bytes") else fmt.count(value)


def _tail(v: Version) -> str:
    """The end of the log of what failed."""
    if not v.failed and (v.evaluation is None or v.evaluation.status != Status.UNSUPPORTED):
        return ""
    log = (v.evaluation.log if v.evaluation else "") or (v.build.log if v.build and v.build.fault else "")
    return log if len(log) <= LOG else "…\n" + log[-LOG:]
