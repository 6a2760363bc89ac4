"""Where figures come from, as a caption says it."""

from __future__ import annotations

from collections.abc import Iterable

from msbench.sitegen import format as fmt
from msbench.sitegen.entries import Version
from msbench.sitegen.facts import Site
from msbench.store.tables import ProfileRow


def label(site: Site, versions: Iterable[Version | None]) -> str:
    """Device and days of some versions' times: ``Measured on NVIDIA H200 (driver 580.159) on 20 November 2026.``"""
    return measured(site, (c.measured_at for v in versions if v is not None for c in v.cases))


def measured(site: Site, found: Iterable[str | None]) -> str:
    """Device and days of what was measured at some instants."""
    instants = sorted(one for one in found if one)
    if not instants or site.device is None:
        return "Nothing here has been timed."
    first, last = fmt.day(instants[0]), fmt.day(instants[-1])
    driver = f" (driver {site.device.driver})" if site.device.driver else ""
    when = f"on {first}" if first == last else f"from {first} to {last}"
    return f"Measured on {site.device.name}{driver} {when}."


def profiled(site: Site, profiles: Iterable[ProfileRow]) -> str:
    """Device and days of some profiles."""
    return measured(site, (site.evaluations[one.evaluation_id].started_at for one in profiles)).replace(
        "Measured", "Profiled", 1
    )


def tool(profile: ProfileRow) -> str:
    """What gave a profile its figures: ``Nsight Compute 2025.3.1.0``, or that none counted them, and why.

    Older rows say where on a machine the tool lay; that is left out.
    """
    if profile.source == "ncu":
        return profile.tool.partition(" at /")[0]
    return f"Static facts and achieved figures{f' ({profile.tool})' if profile.tool else ''}"
