"""The first page: what this is, how far it has come, every task, and the stories worth reading first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from msbench.figures.ratios import Ratio
from msbench.figures.standings import means, standings
from msbench.model import Outcome
from msbench.sitegen import format as fmt
from msbench.sitegen import sources, verdict
from msbench.sitegen.entries import Run, Version, failed
from msbench.sitegen.facts import Site
from msbench.sitegen.page import Page
from msbench.sitegen.plots import summary_charts
from msbench.sitegen.told import told
from msbench.sitegen.verdict import counted
from msbench.spec import Split
from msbench.statistics import joint_mean

NAVIGATION = (("Tasks", "index.html#tasks"), ("Runs", "index.html#runs"))
STORIES = 5
OURS = "With versions of our own"
"""The first group of the table of tasks: what a reader came for."""


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    best = _best(site)
    shown = [v for v in site.versions.values() if v.ranked]
    compared = [
        v for task in site.tasks for v in (site.best(task), site.library(task)) if v and v.ranked and v.over_naive
    ]
    chart = summary_charts.speedups(
        "speedups",
        [
            summary_charts.Speedups(
                f"{task.operator} {task.precision}",
                best.over_naive if best else None,
                library.over_naive if library and library.ranked else None,
                fmt.day(max((v.measured_at or "" for v in compared if v.task.id == task.id), default=None)),
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
        "headlines_label": sources.label(site, best),
        "chart_label": sources.measured(site, (v.measured_at for v in compared)),
        "scenarios": scenarios(site),
        "composition": composition(site),
        "sizes": sizes(site),
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


def headlines(site: Site) -> list[tuple[str, str, str]]:
    """The figures at the top, as (value, its interval, what it is); a figure that does not exist is left out."""
    best = _best(site)
    over_naive = [v.over_naive for v in best if v.over_naive]
    over_bar = [v.over_bar for v in best if v.over_bar]
    reached = [site.reached(v) for v in best]
    roofline = [one for one, _ in reached if one]
    launches = [fmt.inverse(one) for _, one in reached if one]
    # A mean that leaves tasks out names them: they may be the ones that would lower it.
    unrated = sorted(v.task.id for v in best if not v.over_bar)
    left_out = f", without {', '.join(unrated)}" if unrated else ""
    lost = sum(failed(e) for e in site.evaluations.values())
    word = "task" if len(site.tasks) == 1 else "tasks"
    found = [(fmt.count(len(site.tasks)), "", f"{word} from {counted(len(site.operators), 'operator')}")]
    for values, show, what, but in (
        (over_naive, fmt.ranged, "over the naive kernels", ""),
        (
            over_bar,
            fmt.ranged,
            "over the bar: the fastest rival’s call or the naive kernel, whichever is faster",
            left_out,
        ),
        (roofline, fmt.percent_ranged, "of the roofline where bytes or operations are the bound", ""),
        (launches, fmt.ranged, "the time of an empty call where a launch is the bound", ""),
    ):
        mean = _mean(values)
        if mean:
            value, _, ends = show(mean[0]).partition(" (")
            found.append((value, ends.removesuffix(")"), f"{what}, geometric mean of {counted(mean[1], 'task')}{but}"))
    kept = f"versions in {counted(len(site.evaluations), 'evaluation')}"
    if (devices := len({one.device_id for one in site.evaluations.values()})) > 1:
        kept += f" on {devices} devices"
    if lost:
        kept += f", of which {fmt.count(lost)} failed and {'is' if lost == 1 else 'are'} kept"
    return [*found, (fmt.count(len(site.versions)), "", kept)]


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
        rivals = [v for task in tasks for v in [site.library(task)] if v and v.measured and v.ranked]
        best = [v for task in tasks for v in [site.best(task)] if v]
        names = sorted({site.tasks[task].operator for task in tasks})
        found.append(
            {
                "name": name,
                "operators": names,
                "tasks": len(tasks),
                "share": 100 * len(names) / len(site.operators),
                "rival_over_naive": _mean([v.over_naive for v in rivals if v.over_naive]),
                "rival_of_roofline": _mean([one for v in rivals for one in [site.reached(v)[0]] if one]),
                "best_over_bar": _mean([v.over_bar for v in best if v.over_bar]),
            }
        )
    return found


SIZES = {
    Split.PAPER: "the paper’s",
    Split.LARGE: "large",
    Split.ODD: "odd: no tile divides them",
}
"""Of the splits that are timed, what people read."""


def sizes(site: Site) -> list[dict[str, Any]]:
    """What ``msbench standings`` says overall, by the sizes of cases and precision: a table for each GPU, this one's first."""
    others = (site.on(device) for device in site.devices)
    tables = [(one, _rated(one)) for one in dict.fromkeys((site, *others))]
    return [{"rows": rows, "label": sources.label(one, _best(one))} for one, rows in tables if rows]


def _rated(site: Site) -> list[dict[str, Any]]:
    """Nothing where none of ours was timed beside the bar."""
    found, _ = standings(site.figures.values())
    known = means(found)
    precisions = sorted({precision for precision, _ in known}, reverse=True)
    return [
        {"sizes": what, "precision": precision, "mean": known[precision, split]}
        for split, what in SIZES.items()
        for precision in precisions
        if (precision, split) in known
    ]


def _best(site: Site) -> list[Version]:
    return [v for task in site.tasks for v in [site.best(task)] if v]


def _mean(values: Sequence[Ratio]) -> tuple[Ratio, int] | None:
    """A geometric mean and of how many; None of none."""
    if not values:
        return None
    return Ratio(*joint_mean([(one.value, one.low, one.high) for one in values]), None), len(values)


def row(site: Site, task_id: str) -> dict[str, Any]:
    """One line of the table."""
    library, best, fastest = site.library(task_id), site.best(task_id), site.fastest(task_id)
    return {
        "task": site.tasks[task_id],
        "library": library,
        "best": best,
        "fastest": fastest,
        "measured_at": fastest.measured_at if fastest else None,
        "versions": len(site.versions_of(task_id)),
        "failed": sum(v.failed for v in site.versions_of(task_id)),
    }


def stories(site: Site) -> list[Run]:
    """The runs worth reading first, one an operator: recorded conversations before replays of them, those whose steps say what they
    expect before others, progress with failures before progress alone, many steps before few, and of those the largest gain.
    """
    found: dict[str, Run] = {}

    def worth(run: Run) -> tuple[bool, bool, int, int, float, str]:
        improved = sum(s.outcome == Outcome.IMPROVED for s in run.steps)
        other = sum(s.outcome not in (Outcome.IMPROVED, Outcome.BASELINE) for s in run.steps)
        gain = max((s.speedup or 0.0 for s in run.steps), default=0.0)
        guessed = not any(s.hypothesis for s in run.steps)
        return run.replayed, guessed, -(improved > 0) - (improved > 0 and other > 0), -len(run.steps), -gain, run.row.id

    for run in sorted(site.runs.values(), key=worth):
        if run.steps:
            found.setdefault(run.task.operator, run)
    return list(found.values())[:STORIES]


def story(site: Site, run: Run) -> dict[str, Any]:
    """A run as a card and as a line of the table, with the times of its own device."""
    shown, site = site, site.on(run.row.device_id)
    run = site.runs[run.row.id]
    best = site.versions.get(run.row.best_version_id or "")
    judged = [told(site, run, s) for s in run.steps]
    top = max([one.over_naive.value for one in judged if one.over_naive], default=None)
    ladder = [
        {
            "outcome": one.row.outcome,
            "speedup": one.over_naive,
            "height": round(100 * one.over_naive.value / top, 1) if one.over_naive and top else 0.0,
            "title": f"Step {one.row.number}: {one.row.outcome.replace('_', ' ')}"
            + (f", {fmt.ranged(one.over_naive)} the naive kernel" if one.over_naive else ""),
        }
        for one in judged
    ]
    return {
        "run": run,
        "author": site.author(run),
        "elsewhere": site.device.name if site.device and site is not shown else "",
        "best": best,
        "gain": verdict.gained(site, run),
        "verdict": verdict.run(site, run),
        "ladder": ladder,
        "label": sources.measured(site, (one.measured_at for one in judged)),
    }
