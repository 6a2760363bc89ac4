"""Summary charts: speed-ups by task, counters before and after, and the progress of a run or of several; see charts.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msbench.figures.ratios import Ratio
from msbench.sitegen import format as fmt
from msbench.sitegen.plots.charts import on
from msbench.sitegen.plots.plot import Chart, layout, log_axis, plain, to_json


@dataclass(frozen=True)
class Speedups:
    """One task's bars: ratios over the naive kernel, measured on ``day``."""

    task: str
    best: Ratio | None
    rival: Ratio | None
    day: str = ""


def speedups(id: str, tasks: Sequence[Speedups]) -> Chart | None:
    """Bars from 1×, logarithmic: the fastest version and rival of each task over its naive kernel."""
    shown = [t for t in tasks if t.best or t.rival]
    if not shown:
        return None
    names = [plain(t.task) for t in shown][::-1]  # plotly fills from the bottom
    days = [t.day for t in shown][::-1]
    traces: list[dict[str, Any]] = []
    for role, name, ratios in (
        ("library", "fastest rival", [t.rival for t in shown]),
        ("best", "fastest of ours", [t.best for t in shown]),
    ):
        values = ratios[::-1]
        trace: dict[str, Any] = {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "meta": role,
            "y": names,
            "base": 1,
            "x": [None if v is None else v.value - 1 for v in values],
            "error_x": {
                "array": [None if v is None else v.high - v.value for v in values],
                "arrayminus": [None if v is None else v.value - v.low for v in values],
            },
            "text": [fmt.ratio(v.value) if v else "" for v in values],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertext": [f"{fmt.ranged(v)}{on(day)}" if v else "" for v, day in zip(values, days, strict=True)],
            "hovertemplate": "%{y}<br>%{hovertext}<extra>%{fullData.name}</extra>",
        }
        traces.append(trace)
    everything = [end for t in shown for v in (t.best, t.rival) if v for end in (v.low, v.high, 1.0)]
    x_axis = log_axis([min(everything), max(everything) * 1.6], fmt.ratio, "times as fast as the naive kernel")
    drawn = layout(x_axis, {"automargin": True, "ticksuffix": "  "}, legend_traceorder="reversed")
    drawn |= {"barmode": "group", "bargap": 0.3, "bargroupgap": 0.08}
    drawn["shapes"] = [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1}}]
    rows = tuple((t.task, fmt.ranged(t.best), fmt.ranged(t.rival), t.day or fmt.NONE) for t in shown)
    summary = f"Speed-up over the naive kernel for {len(shown)} tasks, logarithmic."
    head = ("task", "fastest of ours", "fastest rival", "measured")
    return Chart(id, "Speed-up by task", summary, to_json(traces, drawn), head, rows, f"{5 + 2.2 * len(shown):.1f}rem")


def before_after(
    id: str,
    names: Sequence[str],
    before: Sequence[float],
    after: Sequence[float],
    labels: tuple[str, str],
    days: tuple[str, str] = ("", ""),
) -> Chart | None:
    """Counters that are percentages, before and after a change, as pairs of bars; ``days``: when each side was profiled."""
    if not names:
        return None
    order = list(range(len(names)))[::-1]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(label),
            "meta": role,
            "y": [plain(names[i]) for i in order],
            "x": [values[i] for i in order],
            "text": [fmt.percent(values[i] / 100) for i in order],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertext": [f"{fmt.percent(values[i] / 100)}{on(day)}" for i in order],
            "hovertemplate": "%{y}<br>%{hovertext}<extra>%{fullData.name}</extra>",
        }
        for role, label, values, day in (("best", labels[1], after, days[1]), ("parent", labels[0], before, days[0]))
    ]
    top = max(100.0, *before, *after)
    x_axis = {"range": [0, top * 1.12], "ticksuffix": " %", "tickvals": [0, 25, 50, 75, 100], "fixedrange": True}
    drawn = layout(x_axis, {"automargin": True, "ticksuffix": "  "}, legend_traceorder="reversed")
    drawn |= {"barmode": "group", "bargap": 0.35, "bargroupgap": 0.08}
    rows = tuple((n, fmt.percent(b / 100), fmt.percent(a / 100)) for n, b, a in zip(names, before, after, strict=True))
    summary = f"{len(names)} counters before and after, in percent."
    height = f"{5 + 2.9 * len(names):.1f}rem"
    heads = [f"{label}, {day}" if day else label for label, day in zip(labels, days, strict=True)]
    return Chart(id, "Before and after", summary, to_json(traces, drawn), ("counter", *heads), rows, height)


@dataclass(frozen=True)
class Step:
    """A step of a run: its speed-up over the naive kernel, None where it has none, as measured on ``day``."""

    number: int
    outcome: str
    speedup: Ratio | None
    day: str = ""


def best_so_far(steps: Sequence[Step]) -> list[Ratio | None]:
    """The best after each step. One that was no improvement side by side raises nothing, whatever its own figure."""
    best: list[Ratio | None] = []
    for s in steps:
        so_far = best[-1] if best else None
        raised = s.speedup if s.outcome in ("baseline", "improved") else None
        best.append(max((one for one in (so_far, raised) if one), key=lambda one: one.value, default=None))
    return best


def progress(id: str, steps: Sequence[Step]) -> Chart | None:
    """Speed-up over the naive kernel by step of a run, with the best so far as a line; failed steps stand on the floor.

    None comes back where no step was timed.
    """
    timed = [end for s in steps if s.speedup for end in (s.speedup.low, s.speedup.high)]
    if not timed:
        return None
    floor = min(timed) / 1.25
    best = [so_far.value if so_far else None for so_far in best_so_far(steps)]
    numbers = [s.number for s in steps]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "meta": "best",
            "x": numbers,
            "y": best,
            "line": {"width": 1.6, "shape": "hv"},
            "hoverinfo": "skip",
        }
    ]
    kinds = (
        ("baseline", "naive", "circle", ("baseline",)),
        ("improved", "best", "circle", ("improved",)),
        ("not faster", "slower", "circle-open", ("equal", "slower")),
    )
    for name, role, symbol, outcomes in kinds:
        shown = [(s, s.speedup) for s in steps if s.outcome in outcomes and s.speedup]
        if shown:
            marks = _step_marks(name, role, symbol, [(s.number, ratio.value) for s, ratio in shown])
            traces.append(marks | _figures(shown))
    lost = [s for s in steps if not s.speedup and s.outcome != "baseline"]
    if lost:
        marks = _step_marks("failed or no kernel", "failed", "x-thin-open", [(s.number, floor) for s in lost])
        traces.append(marks | {"text": [f"{s.outcome.replace('_', ' ')}{on(s.day)}" for s in lost]})
    drawn = layout(_step_axis(numbers, "step"), log_axis([floor, *timed], fmt.ratio, "times as fast as naive"))
    rows = tuple(
        (str(s.number), s.outcome.replace("_", " "), fmt.ranged(s.speedup), fmt.ratio(so_far), s.day or fmt.NONE)
        for s, so_far in zip(steps, best, strict=True)
    )
    return Chart(
        id,
        "Progress",
        f"Speed-up by step, {len(steps)} steps.",
        to_json(traces, drawn),
        ("step", "outcome", "over naive", "best so far", "measured"),
        rows,
        "20rem",
    )


@dataclass(frozen=True)
class Course:
    """A run's line: ``name`` is its legend, ``role`` its colour and ``symbol`` that of its marks."""

    name: str
    role: str
    symbol: str
    steps: tuple[Step, ...]


def courses(id: str, title: str, shown: Sequence[Course], rival: tuple[str, float] | None) -> Chart | None:
    """Several runs of one task: the best so far as a line each, and each step's own speed-up as a mark.

    A step without times has no mark, nor has the baseline, which is the naive kernel over itself. ``rival`` is drawn as a
    level line: its name, and its speed-up over the naive kernel. None comes back where no step was timed.
    """
    best = [[so_far.value if so_far else None for so_far in best_so_far(course.steps)] for course in shown]
    marked = [[(s, s.speedup) for s in course.steps if s.speedup and s.outcome != "baseline"] for course in shown]
    heights = [height for line in best for height in line if height]
    heights += [end for marks in marked for _, ratio in marks for end in (ratio.low, ratio.high)]
    if not heights:
        return None
    numbers = sorted({s.number for course in shown for s in course.steps})
    traces: list[dict[str, Any]] = []
    for course, line, marks in zip(shown, best, marked, strict=True):
        traces += _course(course, line, marks)
    if rival:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain(rival[0]),
                "meta": "library",
                "x": [numbers[0], numbers[-1]],
                "y": [rival[1], rival[1]],
                "line": {"width": 1.6, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
        heights.append(rival[1])
    x_axis = _step_axis(numbers, "step (0: naive)")
    drawn = layout(x_axis, log_axis(heights, fmt.ratio, "times as fast as naive"))
    by_number = [{s.number: s for s in course.steps} for course in shown]
    rows = tuple((str(number), *(_came_to(steps.get(number)) for steps in by_number)) for number in numbers)
    summary = f"Speed-up over the naive kernel by step: {', '.join(course.name for course in shown)}."
    return Chart(id, title, summary, to_json(traces, drawn), ("step", *(c.name for c in shown)), rows, "22rem")


def _course(
    course: Course, line: Sequence[float | None], marks: Sequence[tuple[Step, Ratio]]
) -> Iterator[dict[str, Any]]:
    """A run's line, and its marks; the legend shows these, where there are any."""
    yield {
        "type": "scatter",
        "mode": "lines",
        "name": plain(course.name),
        "meta": course.role,
        "x": [s.number for s in course.steps],
        "y": line,
        "line": {"width": 1.6, "shape": "hv"},
        "hoverinfo": "skip",
        "showlegend": not marks,
        "legendgroup": course.name,
    }
    if marks:
        points = [(s.number, ratio.value) for s, ratio in marks]
        drawn = _step_marks(plain(course.name), course.role, course.symbol, points)
        yield drawn | _figures(marks) | {"legendgroup": course.name}


def _came_to(step: Step | None) -> str:
    """A step in a table: its speed-up, or what it was instead."""
    if step is None:
        return fmt.NONE
    return f"{fmt.ranged(step.speedup)}, {step.day}" if step.speedup else step.outcome.replace("_", " ")


def _step_axis(numbers: Sequence[int], title: str) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "tickmode": "linear",
        "dtick": max(1, len(numbers) // 12),
        "range": [numbers[0] - 0.4, numbers[-1] + 0.4],
    }


def _figures(shown: Sequence[tuple[Step, Ratio]]) -> dict[str, Any]:
    """What marks say where they are pointed at, and their intervals as bars."""
    return {
        "text": [f"{fmt.ranged(ratio)}{on(s.day)}" for s, ratio in shown],
        "error_y": {
            "array": [ratio.high - ratio.value for _, ratio in shown],
            "arrayminus": [ratio.value - ratio.low for _, ratio in shown],
        },
    }


def _step_marks(name: str, role: str, symbol: str, marks: Sequence[tuple[int, float]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "meta": role,
        "x": [n for n, _ in marks],
        "y": [s for _, s in marks],
        "marker": {"size": 10, "symbol": symbol},
        "hovertemplate": "step %{x}: %{text}<extra>%{fullData.name}</extra>",
    }
