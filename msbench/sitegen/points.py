"""Versions as the series of charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msbench.sitegen.charts import Point, Series, roofline, time_against_size
from msbench.sitegen.entries import Version
from msbench.sitegen.facts import Site
from msbench.sitegen.plot import Chart

Roles = Sequence[tuple[Version | None, str]]
"""Versions with the roles that they play in a chart; what isn't there is left out."""


def size_dimension(versions: Iterable[Version]) -> str:
    """The one dimension in which the timed cases differ; ``"bytes"`` where there are several."""
    cases = [figure.case.dims for version in versions for figure in version.cases]
    varying = {name for dims in cases for name in dims if any(other.get(name) != dims[name] for other in cases)}
    usable = len(varying) == 1 and all(dims.get(name, 0) > 0 for dims in cases for name in varying)
    return varying.pop() if usable else "bytes"  # a logarithmic axis has no 0


def series(site: Site, version: Version, role: str, size: str) -> Series:
    """One version's cases."""
    return Series(
        version.name,
        role,
        tuple(
            Point(
                case=f.case.name,
                size=float(f.case.nbytes if size == "bytes" else f.case.dims[size]),
                nbytes=f.case.nbytes,
                flops=f.case.flops,
                bound_ns=f.bound.time_ns if f.bound else None,
                time_ns=f.median_ns,
                interval_ns=site.intervals.get(f.measurement_id or ""),
            )
            for f in version.cases
            if f.median_ns is not None
        ),
    )


def named(versions: Roles) -> list[tuple[Version, str]]:
    """The measured ones, each version once: under its first role."""
    seen: set[str] = set()
    found = []
    for version, role in versions:
        if version is not None and version.measured and version.id not in seen:
            seen.add(version.id)
            found.append((version, role))
    return found


def time_chart(site: Site, id: str, versions: Roles) -> Chart | None:
    """Time against size of versions with their roles; None where nothing was timed."""
    shown = named(versions)
    size = size_dimension(v for v, _ in shown)
    return time_against_size(id, [series(site, v, role, size) for v, role in shown], size)


def roofline_chart(site: Site, id: str, versions: Roles) -> Chart | None:
    """The roofline of versions with their roles; None where nothing was timed or the device has no ceilings."""
    shown = named(versions)
    ceilings = site.ceilings
    if not shown or ceilings is None:
        return None
    compute = shown[0][0].task.compute
    return roofline(
        id,
        [series(site, v, role, "bytes") for v, role in shown],
        bandwidth=ceilings.copy_bytes_per_s,
        peak=ceilings.flops(compute),
        compute=compute,
        launch_ns=ceilings.graph_node_ns,
    )
