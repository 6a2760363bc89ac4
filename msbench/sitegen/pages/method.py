"""How figures are made: the rules in short, and the facts of this database that they rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msbench.sitegen.facts import Site
from msbench.sitegen.page import Page

NAVIGATION = (("Method", "method.html"),)


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    used = Counter(e.device_id for e in site.evaluations.values())
    evaluations = list(site.evaluations.values())
    context = {
        "devices": [(site.devices[d], site.store.ceilings(d), used[d]) for d in site.devices],
        "executors": sorted(Counter(e.executor for e in evaluations).items()),
        "statuses": sorted(Counter(e.status for e in evaluations).items()),
        "harnesses": sorted(Counter(e.harness for e in evaluations if e.harness).items()),
        "toolchains": sorted(Counter(b.toolchain for b in site.builds.values() if b.toolchain).items()),
        "variants": sorted(Counter(c.variant for c in site.checks).items()),
        "distributions": sorted(Counter(site.cases[c.case_id].distribution for c in site.checks).items()),
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
