"""The first page: what this is, how far it has come, every task, and the stories worth reading first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from msbench.model import Origin, Outcome
from msbench.sitegen import charts, sources, verdict
from msbench.sitegen import format as fmt
from msbench.sitegen.entries import Run, failed
from msbench.sitegen.facts import Site
from msbench.sitegen.page import Page
from msbench.sitegen.verdict import counted
from msbench.statistics import geometric_mean

NAVIGATION = (("Tasks", "index.html#tasks"), ("Runs", "index.html#runs"))
STORIES = 2
OURS = "With versions of our own"
"""The first group of the table of tasks: what a reader came for."""


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    shown = [v for v in site.versions.values() if v.measured]
    chart = charts.speedups(
        "speedups",
        [
            charts.Speedups(
                f"{task.operator} {task.precision}",
                best.over_naive.value if best and best.over_naive else None,
                best.over_naive.low if best and best.over_naive else None,
                best.over_naive.high if best and best.over_naive else None,
                library.over_naive.value if library and library.over_naive else None,
            )
            for tasks in site.operators.values()
            for task in tasks
            for best, library in [(site.best(task.id), site.library(task.id))]
        ],
    )
    context = {
        "headlines": headlines(site),
        "chart": chart,
        "label": sources.label(site, shown),
        "scenarios": scenarios(site),
        "composition": composition(site),
        "stories": [story(site, run) for run in stories(site)],
        "runs": [story(site, run) for run in reversed(site.runs.values())],
    }
    yield Page(
        "index.html",
        "home.html",
        "CUDA kernels, made fast and proved right",
        "What got faster, by how much, and why: CUDA kernels optimized by language-model agents, timed on GPUs.",
        context,
        charts=chart is not None,
    )


def headlines(site: Site) -> list[tuple[str, str]]:
    """The figures at the top, as (value, what it is); a figure that does not exist is left out."""
    best = [v for task in site.tasks for v in [site.best(task)] if v]
    over_naive = [v.over_naive.value for v in best if v.over_naive]
    over_bar = [v.over_bar.value for v in best if v.over_bar]
    roofline = [v.of_roofline for v in best if v.of_roofline]
    # A mean that leaves tasks out names them: they may be the ones that would lower it.
    unrated = sorted(v.task.id for v in best if not v.over_bar)
    left_out = f", without {', '.join(unrated)}" if unrated else ""
    lost = sum(failed(e) for e in site.evaluations.values())
    word = "task" if len(site.tasks) == 1 else "tasks"
    found = [(fmt.count(len(site.tasks)), f"{word} from {counted(len(site.operators), 'operator')}")]
    for values, show, what, but in (
        (over_naive, fmt.ratio, "over the naive kernels", ""),
        (over_bar, fmt.ratio, "over the faster of the library’s call and the naive kernel", left_out),
        (roofline, fmt.percent, "of the roofline", ""),
    ):
        if values:
            mean = f"{what}, geometric mean of {counted(len(values), 'task')}{but}"
            found.append((show(geometric_mean(values)), mean))
    kept = f"versions in {counted(len(site.evaluations), 'evaluation')}"
    if lost:
        kept += f", of which {fmt.count(lost)} failed and {'is' if lost == 1 else 'are'} kept"
    return [*found, (fmt.count(len(site.versions)), kept)]


def scenarios(site: Site) -> list[tuple[str, list[dict[str, Any]]]]:
    """The table of tasks: those that have versions of ours, then the others by scenario."""
    rows = [row(site, task.id) for tasks in site.operators.values() for task in tasks]
    ours = [r for r in rows if r["best"]]
    others = [r for r in rows if not r["best"]]
    grouped = [(name, list(group)) for name, group in groupby(others, key=lambda r: r["task"].scenario)]
    return [(OURS, ours), *grouped] if ours else grouped


def composition(site: Site) -> list[dict[str, Any]]:
    """The scenarios: their operators, their share of all operators in percent, and geometric means over their tasks."""
    found = []
    for name, operators in groupby(site.operators.values(), key=lambda tasks: tasks[0].scenario):
        tasks = [task.id for of_one in operators for task in of_one]
        library = [v for task in tasks for v in [site.library(task)] if v and v.measured]
        best = [v for task in tasks for v in [site.best(task)] if v]
        names = sorted({site.tasks[task].operator for task in tasks})
        found.append(
            {
                "name": name,
                "operators": names,
                "tasks": len(tasks),
                "share": 100 * len(names) / len(site.operators),
                "library_over_naive": _mean([v.over_naive.value for v in library if v.over_naive]),
                "library_of_roofline": _mean([v.of_roofline for v in library if v.of_roofline]),
                "best_over_bar": _mean([v.over_bar.value for v in best if v.over_bar]),
            }
        )
    return found


def _mean(values: Sequence[float]) -> tuple[float, int] | None:
    """A geometric mean and of how many; None of none."""
    return (geometric_mean(values), len(values)) if values else None


def row(site: Site, task_id: str) -> dict[str, Any]:
    """One line of the table."""
    library, best = site.library(task_id), site.best(task_id)
    return {
        "task": site.tasks[task_id],
        "library": library,
        "best": best,
        "fastest": site.fastest(task_id),
        "versions": len(site.versions_of(task_id)),
        "failed": sum(v.failed for v in site.versions_of(task_id)),
    }


def stories(site: Site) -> list[Run]:
    """The runs worth reading first: with progress, one a task, recorded conversations before replays of them."""
    found: dict[str, Run] = {}

    def worth(run: Run) -> tuple[bool, bool, int, str]:
        improved = sum(s.outcome == Outcome.IMPROVED for s in run.steps)
        return run.replayed, not improved, -len(run.steps), run.row.id

    for run in sorted(site.runs.values(), key=worth):
        if run.steps:
            found.setdefault(run.task.id, run)
    return list(found.values())[:STORIES]


def story(site: Site, run: Run) -> dict[str, Any]:
    """A run as a card and as a line of the table."""
    best = site.versions.get(run.row.best_version_id or "")
    top = max([s.speedup for s in run.steps if s.speedup], default=None)
    ladder = [
        {
            "outcome": s.outcome,
            "speedup": s.speedup,
            "height": round(100 * s.speedup / top, 1) if s.speedup and top else 0.0,
            "title": f"Step {s.number}: {s.outcome.replace('_', ' ')}"
            + (f", {fmt.ratio(s.speedup)} the naive kernel" if s.speedup else ""),
        }
        for s in run.steps
    ]
    return {
        "run": run,
        "best": best,
        "gain": verdict.gained(site, run),
        "verdict": verdict.run(site, run),
        "ladder": ladder,
        "label": sources.label(site, [best]) if best and best.row.origin != Origin.NAIVE else "",
    }
