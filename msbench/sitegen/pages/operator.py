"""An operator's page: what it computes, and for each precision how fast it got, by which code, in which runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msbench.sitegen import highlight, points, rivalry, sources, verdict
from msbench.sitegen.diff import diff
from msbench.sitegen.entries import slug
from msbench.sitegen.facts import Site
from msbench.sitegen.page import Page
from msbench.sitegen.pages.home import story
from msbench.spec import Split
from msbench.store.tables import CaseRow, TaskRow


def pages(site: Site) -> Iterator[Page]:
    """One page an operator."""
    for name, tasks in site.operators.items():
        parts = [part(site, task) for task in tasks]
        _once(parts)
        first = tasks[0]
        yield Page(
            f"op/{slug(name)}.html",
            "operator.html",
            first.title,
            f"{first.title}: {first.definition}",
            {"operator": first, "prototype": highlight.code(first.prototype), "precisions": parts},
            charts=any(p["time"] or p["roofline"] or p["rivalry"] for p in parts),
        )


def _once(parts: list[dict[str, Any]]) -> None:
    """Where precisions have the same two sources, these stand beside each other in the first one's part alone."""
    shown: dict[tuple[str, str], str] = {}
    for one in parts:
        if one["diff"]:
            sources_of = one["naive"].row.source, one["best"].row.source
            one["shown_in"] = shown.setdefault(sources_of, one["task"].precision)


def part(site: Site, task: TaskRow) -> dict[str, Any]:
    """One precision's part of the page."""
    naive, library, best = site.naive(task.id), site.library(task.id), site.best(task.id)
    # What was not measured in the session in which the versions competed is in no chart beside them.
    roles = points.competing(((naive, "naive"), (library, "library"), (best, "best")))
    return {
        "task": task,
        "verdict": verdict.task(site, task.id),
        "naive": naive,
        "library": library,
        "best": best,
        "rival": "reference" if library and library.is_reference else "library",
        "disagreeing": {v.id for v in site.versions_of(task.id) if any(one.disagrees for one in site.occasions(v))},
        # Of ours the best comes first, also where another's figure is a little higher.
        "versions": sorted(site.versions_of(task.id), key=lambda v: v.ours and v is not best),
        "cases": cases(site, task),
        "hidden": len({str(c.dims) for c in site.cases.values() if (c.task_id, c.split) == (task.id, Split.HELDOUT)}),
        "time": points.time_chart(site, f"time-{task.precision}", roles),
        "roofline": points.roofline_chart(site, f"roofline-{task.precision}", roles),
        "label": sources.label(site, [v for v, _ in roles]),
        "diff": diff(naive.row.source, best.row.source) if naive and best else None,
        "shown_in": task.precision,
        "rivalry": rivalry.of_task(site, task),
        "runs": [story(site, run) for run in reversed(site.runs_of(task.id))],
    }


def cases(site: Site, task: TaskRow) -> list[tuple[CaseRow, list[str]]]:
    """A task's sizes, each with the kinds of inputs that it is tried on; without the held-out ones, which each evaluation draws anew."""
    found: dict[tuple[Any, ...], tuple[CaseRow, list[str]]] = {}
    for case in site.cases.values():
        if case.task_id == task.id and case.split != Split.HELDOUT:
            key = case.split, case.nbytes, case.flops, *sorted(case.dims.items()), *sorted(case.scalars.items())
            found.setdefault(key, (case, []))[1].append(case.distribution)
    return list(found.values())
