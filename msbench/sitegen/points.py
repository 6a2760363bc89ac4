"""Versions as the series of charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msbench.figures.figures import CaseFigures
from msbench.model import Origin
from msbench.sitegen import format as fmt
from msbench.sitegen.entries import Version
from msbench.sitegen.facts import Site
from msbench.sitegen.plots.charts import Point, Series, roofline, time_against_size
from msbench.sitegen.plots.plot import Chart
from msbench.spec import Split
from msbench.store.tables import CaseRow

Roles = Sequence[tuple[Version | None, str]]
"""Versions with the roles that they play in a chart; what isn't there is left out."""


def size_dimension(dims: Iterable[dict[str, Any]]) -> str:
    """The one dimension in which the timed cases differ; ``"bytes"`` where there are several."""
    cases = list(dims)
    varying = {name for dims in cases for name in dims if any(other.get(name) != dims[name] for other in cases)}
    usable = len(varying) == 1 and all(dims.get(name, 0) > 0 for dims in cases for name in varying)
    return varying.pop() if usable else "bytes"  # a logarithmic axis has no 0


RIVAL = "fastest library call"
"""The series of each case's fastest library: one library that is slow somewhere would flatter what it is compared with."""

Cases = dict[str, tuple[CaseFigures, ...]]
"""A version's figures by its id: those that a chart shows, of one session."""


def series(site: Site, version: Version, role: str, size: str, cases: Cases) -> Series:
    """One version's cases; for a library each case's fastest one, of those that competed in the same session."""
    if role != "library":
        return Series(version.name, role, tuple(_point(site, version, f, size) for f in cases[version.id]))
    fastest: dict[str, tuple[Version, CaseFigures]] = {}
    for one in site.versions_of(version.task.id):
        for figure in one.cases if one.row.origin == Origin.LIBRARY and one.ranked else ():
            known = fastest.get(figure.case.name)
            if known is None or (figure.median_ns or 0) < (known[1].median_ns or 0):
                fastest[figure.case.name] = one, figure
    names = {one.name for one, _ in fastest.values()}
    name = names.pop() if len(names) == 1 else RIVAL
    return Series(name, role, tuple(_point(site, one, figure, size) for one, figure in fastest.values()))


def _point(site: Site, version: Version, figure: CaseFigures, size: str) -> Point:
    assert figure.median_ns is not None
    return Point(
        case=figure.case.name,
        size=float(figure.case.nbytes if size == "bytes" else figure.case.dims[size]),
        nbytes=figure.case.nbytes,
        flops=figure.case.flops,
        bound_ns=figure.bound.time_ns if figure.bound else None,
        time_ns=figure.median_ns,
        interval_ns=site.intervals.get(figure.measurement_id or ""),
        by=version.name,
        day=fmt.day(figure.measured_at),
        like=like(figure.case),
    )


def like(case: CaseRow) -> str:
    """What cases have in common that a line may connect: inputs and scalars. Odd sizes stand for themselves."""
    return "" if case.split == Split.ODD else repr((case.distribution, sorted(case.scalars.items())))


def named(versions: Roles) -> list[tuple[Version, str]]:
    """The measured ones, each version once: under its first role."""
    seen: set[str] = set()
    found = []
    for version, role in versions:
        if version is not None and version.measured and version.id not in seen:
            seen.add(version.id)
            found.append((version, role))
    return found


def competing(versions: Roles) -> list[tuple[Version, str]]:
    """Those that were measured in the session in which the task's versions competed."""
    return [(version, role) for version, role in named(versions) if version.ranked]


def time_chart(site: Site, id: str, versions: Roles, cases: Cases | None = None) -> Chart | None:
    """Time against size of versions with their roles; None where nothing was timed.

    Args:
        site: whose times.
        id: the chart's, unique on its page.
        versions: of one session.
        cases: their figures there; those of ``Version.cases`` if not given.
    """
    shown = named(versions)
    cases = cases or {v.id: v.cases for v, _ in shown}
    size = size_dimension(figure.case.dims for of_one in cases.values() for figure in of_one)
    return time_against_size(id, [series(site, v, role, size, cases) for v, role in shown if v.id in cases], size)


def roofline_chart(site: Site, id: str, versions: Roles) -> Chart | None:
    """The roofline of versions of one session with their roles; None where nothing was timed or the device has no ceilings."""
    shown = named(versions)
    ceilings = site.ceilings
    if not shown or ceilings is None:
        return None
    compute = shown[0][0].task.compute
    cases = {v.id: v.cases for v, _ in shown}
    return roofline(
        id,
        [series(site, v, role, "bytes", cases) for v, role in shown],
        bandwidth=ceilings.copy_bytes_per_s,
        peak=ceilings.flops(compute),
        compute=compute,
        launch_ns=ceilings.launch_ns,
    )
