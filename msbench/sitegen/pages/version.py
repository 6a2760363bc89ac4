"""A version's page: what it is worth and why, with everything that the answer rests on."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from msbench.figures.figures import CaseFigures
from msbench.model import Origin, Status
from msbench.sitegen import format as fmt
from msbench.sitegen import highlight, metrics, points, sources, verdict
from msbench.sitegen.diff import diff
from msbench.sitegen.entries import SHORT, Version, profiles_of
from msbench.sitegen.facts import Site
from msbench.sitegen.page import File, Page
from msbench.sitegen.plots import summary_charts
from msbench.sitegen.plots.plot import Chart
from msbench.sitegen.told import told as told_by
from msbench.sitegen.verdict import joined
from msbench.store.tables import ProfileRow

BARS = 6
"""Counters in the chart."""
EXPLAINED = 16
"""Counters that a table explains: the first, which tell the most. The others are listed below it."""
CHANGES = 14
"""Counters in the table of those that changed, the most telling first."""
SOURCE = 4_000
"""Characters of a source that a page shows; its file beside the page has all of it."""
REWRITTEN = 50
"""Changed lines from which a page only counts them: sources that have little in common are read one by one."""
EVALUATIONS = 1
"""Evaluations that a page lists, the newest; and the one whose results it shows. The database has all."""
LOG = 8_000
"""Characters of a compiler's log that a page shows."""


def pages(site: Site) -> Iterator[Page | File]:
    """One page a version, and the source of each that nothing replaced as a file."""
    files: set[str] = set()
    shown = _showing(site)
    for version in site.versions.values():
        if version.id in site.successors:
            context = superseded(site, version)
        else:
            own = (
                site if version.measured or version.failed or not version.timed_on else site.on(version.timed_on[0].id)
            )
            others = [site.on(device.id) for device in version.timed_on]
            context = facts(own, own.versions[version.id]) | {
                "shown_by": shown[_file(version)],
                "elsewhere": [
                    (one.device, there)
                    for one in others
                    if one is not own and (there := one.versions[version.id]).measured
                ],
            }
        yield Page(
            version.href,
            "version.html",
            f"{version.name}, {version.task.title} {version.task.precision}",
            context["verdict"],
            context,
        )
        if version.id not in site.successors and _file(version) not in files:
            files.add(_file(version))
            yield File(_file(version), version.row.source)


def _showing(site: Site) -> dict[str, Version]:
    """The version whose page shows a source; the pages of others with the same file, say in another precision, lead there."""
    found: dict[str, Version] = {}
    for version in (v for tasks in site.operators.values() for task in tasks for v in site.versions_of(task.id)):
        if version.id not in site.successors:
            found.setdefault(_file(version), version)
    return found


def _file(v: Version) -> str:
    """Where its source is; versions of one file, such as a naive kernel's two precisions, share it."""
    return f"source/{v.task.operator}-{sha256(v.row.source.encode()).hexdigest()[:SHORT]}.cu"


def superseded(site: Site, v: Version) -> dict[str, Any]:
    """What the template shows of a baseline whose file has changed since: what became of it."""
    successor = site.successors[v.id]
    return {
        "v": v,
        "verdict": verdict.version(site, v),
        "label": sources.label(site, [v]),
        "successor": successor,
        "occasions": site.occasions(v),
        "diff": diff(v.row.source, successor.row.source),
    }


def facts(site: Site, v: Version) -> dict[str, Any]:
    """What the template shows."""
    parent = site.predecessor(v)
    against = site.parent(v)
    pair = profiles_of(parent, v) if parent else None
    changes = metrics.changes(pair[0].metrics, pair[1].metrics) if pair else []
    profile = pair[1] if pair else v.profile
    brief = _brief(site, v)
    if brief:
        pair, changes, profile = None, [], None
    # The naive kernel's curve, the library's and the roofline are on the operator's page.
    family = site.family(v)
    roles = {v.id: "best", parent.id if parent else "": "parent"}
    relatives = [(site.versions[id], roles.get(id, "child")) for id in sorted(family, key=lambda id: id != v.id)]
    counters = _unchanged(changes, profile)
    explained = [] if changes else counters[:EXPLAINED]
    change = diff(against.row.source, v.row.source) if against and against.id != v.id and not brief else None
    shown = _beginning(v.row.source)
    told, checks = site.steps_of(v.id), _checks(site, v)
    judged = told_by(site, *told[0]) if told else None
    compared = site.compared(v, parent) if parent else None
    # Figures of two sessions never stand in one table: what a step came to has one of its own.
    beside_parent = compared is not None and compared.measured_at == v.session
    return {
        "v": v,
        "verdict": verdict.version(site, v),
        "label": sources.label(site, [v]),
        "parent": parent,
        "lineage": [*reversed(site.ancestors(v)), v],
        "relatives": joined([other.name for other, _ in relatives[1:]]),
        "relatives_label": sources.measured(site, (c.measured_at for cases in family.values() for c in cases)),
        "rival": "reference" if (library := site.library(v.task.id)) and library.is_reference else "library",
        "written_by": site.written_by(v),
        "occasions": site.occasions(v),
        "judged": judged,
        "beside_parent": beside_parent,
        "profile_label": sources.profiled(site, pair or ([profile] if profile else [])),
        "children": [site.versions[c] for c in v.children],
        "brief": brief,
        "time": None if brief else points.time_chart(site, "time-chart", relatives, family),
        "changes": changes,
        "bars": _bars(site, changes, parent, v, pair),
        "profile": profile,
        "counters": [one for one in counters if one not in explained],
        "explained": explained,
        "evidence": metrics.evidence(profile) if profile else [],
        "tool": sources.tool(profile) if profile else "",
        "cases": _cases(site, v, parent),
        "twins": [_case(site, twin) for case in v.cases for twin in case.twins],
        "owed": verdict.owed(v),
        "compared": compared,
        "checks": checks,
        "newest": [e for e in v.evaluations if e in v.evaluations[:EVALUATIONS] or e is v.evaluation],
        "commands": {e.id: fmt.on_its_own(e.command, v.task.operator, site.operators) for e in v.evaluations},
        "variants": max(map(tuple, (c["variants"] for c in checks)), key=len, default=()),
        "kernels": _kernels(v) if not brief else {"rows": []},
        "log": _tail(v),
        "code": highlight.code(shown),
        "cut": v.row.source.count("\n") - shown.count("\n"),
        "file": f"../{_file(v)}",
        "diff": change,
        "rewritten": REWRITTEN,
        "successor": None,
        "most": CHANGES,
        "against": against,
        "told": told,
        "conversation": site.conversations.get((told[0][0].row.id, told[0][1].number)) if told else None,
        "repeat": f"msbench eval site/{_file(v)} --op {v.task.operator} --precision {v.task.precision}",
    }


def _brief(site: Site, v: Version) -> bool:
    """Whether it is a draft that no run kept and that nothing was built on: its figures and its verdict are all there is to it."""
    kept = {run.row.best_version_id for run in site.runs.values()}
    return (
        v.row.origin == Origin.AGENT and v.row.label != "best" and not v.children and not v.failed and v.id not in kept
    )


def _bars(
    site: Site,
    changes: list[metrics.Change],
    parent: Version | None,
    v: Version,
    pair: tuple[ProfileRow, ProfileRow] | None,
) -> Chart | None:
    shown = [c for c in changes if c.meaning.percent and c.weight > 0][:BARS]
    before, after = [c.before or 0.0 for c in shown], [c.after or 0.0 for c in shown]
    labels = (parent.name if parent else "before", v.name)
    days = tuple(fmt.day(site.evaluations[one.evaluation_id].started_at) for one in pair or ())
    names = [c.meaning.name for c in shown]
    return summary_charts.before_after(
        "before-after", names, before, after, labels, days if len(days) == 2 else ("", "")
    )


def _unchanged(changes: list[metrics.Change], profile: ProfileRow | None) -> list[metrics.Counter]:
    """A profile's counters that can be told in words, those that are shown as changes left out."""
    shown = {change.metric for change in changes[:CHANGES] if change.weight > 0}
    told = [one for one in metrics.counters(profile.metrics) if one.meaning.says] if profile else []
    return [one for one in told if one.metric not in shown]


def _cases(site: Site, v: Version, parent: Version | None) -> list[dict[str, Any]]:
    over_parent = {case.name: ratio for case, ratio in site.compared(v, parent).cases} if parent else {}
    return [_case(site, f) | {"over_parent": over_parent.get(f.case.name)} for f in v.cases]


def _case(site: Site, figure: CaseFigures) -> dict[str, Any]:
    return {"figure": figure, "interval": site.intervals.get(figure.measurement_id or "")}


def _checks(site: Site, v: Version) -> list[dict[str, Any]]:
    """The checks of each size: how many, how many passed, the worst error over its bound, and messages.

    Those of a split on which it was right are one entry, without a ``case``: nobody asks on which of them it was.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    wrong = {check.case_id for check in v.checks if check.message}
    for check in v.checks:
        case = site.cases[check.case_id]
        together = case.id not in wrong
        size = () if together else (*sorted(case.dims.items()), *sorted(case.scalars.items()))
        entry = found.setdefault(
            (case.split, *size),
            {
                "case": None if together else case,
                "split": case.split,
                "cases": set(),
                "passed": 0,
                "all": 0,
                "worst": None,
                "variants": [],
                "messages": [],
            },
        )
        entry["cases"].add(case.id)
        entry["all"] += 1
        entry["passed"] += check.passed
        if check.variant not in entry["variants"]:
            entry["variants"].append(check.variant)
        if check.worst is not None:
            entry["worst"] = check.worst if entry["worst"] is None else max(entry["worst"], check.worst)
        if check.message:
            entry["messages"].append(check.message)
    return list(found.values())


def _kernels(v: Version) -> dict[str, Any]:
    """What the compiler said of each kernel, as a table: the heads of its columns, and rows of names and values.

    What is 0 for all of them, such as spilled bytes, is named beside it. Instances of a template with the same facts are one row.
    """
    kernels = v.build.kernels if v.build else []
    named = list(dict.fromkeys(fact for kernel in kernels for fact in kernel if fact != "name"))
    facts = [fact for fact in named if any(kernel.get(fact) != 0 for kernel in kernels)]
    alike: dict[tuple[str, ...], list[str]] = {}
    for kernel in kernels:
        name = str(kernel.get("name", "kernel"))
        alike.setdefault((fmt.kernel(name), *(_fact(fact, kernel.get(fact)) for fact in facts)), []).append(name)
    rows = [{"short": short, "names": names, "values": values} for (short, *values), names in alike.items()]
    heads, none = (
        [fact.removesuffix("_bytes").replace("_", " ") for fact in of] for of in (facts, set(named) - set(facts))
    )
    return {"heads": heads, "rows": rows, "none": sorted(none)}


def _fact(name: str, value: Any) -> str:
    if not isinstance(value, int):
        return fmt.NONE if value is None else str(value)
    return fmt.size(value) if name.endswith("_bytes") else fmt.count(value)


def _beginning(source: str) -> str:
    """As many lines of a source as a page shows."""
    return source if len(source) <= SOURCE else source[: source.rindex("\n", 0, SOURCE) + 1]


def _tail(v: Version) -> str:
    """The end of the log of what failed."""
    if not v.failed and (v.evaluation is None or v.evaluation.status != Status.UNSUPPORTED):
        return ""
    log = (v.evaluation.log if v.evaluation else "") or (v.build.log if v.build and v.build.fault else "")
    return log if len(log) <= LOG else "…\n" + log[-LOG:]
