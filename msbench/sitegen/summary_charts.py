"""Summary charts: speed-ups by task, counters before and after, and a run's progress; see charts.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msbench.sitegen import format as fmt
from msbench.sitegen.charts import on
from msbench.sitegen.plot import Chart, layout, log_axis, plain, to_json
from msbench.store.ratios import Ratio


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


def progress(id: str, steps: Sequence[Step]) -> Chart | None:
    """Speed-up over the naive kernel by step of a run, with the best so far as a line; failed steps stand on the floor.

    None comes back where no step was timed.
    """
    timed = [end for s in steps if s.speedup for end in (s.speedup.low, s.speedup.high)]
    if not timed:
        return None
    floor = min(timed) / 1.25
    best: list[float | None] = []
    for s in steps:  # a step that was no improvement side by side raises nothing, whatever its own figure
        so_far = best[-1] if best else None
        raised = s.speedup.value if s.speedup and s.outcome in ("baseline", "improved") else None
        best.append(max((one for one in (so_far, raised) if one is not None), default=None))
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
            marks["text"] = [f"{fmt.ranged(ratio)}{on(s.day)}" for s, ratio in shown]
            marks["error_y"] = {
                "array": [ratio.high - ratio.value for _, ratio in shown],
                "arrayminus": [ratio.value - ratio.low for _, ratio in shown],
            }
            traces.append(marks)
    lost = [s for s in steps if not s.speedup and s.outcome != "baseline"]
    if lost:
        marks = _step_marks("failed or no kernel", "failed", "x-thin-open", [(s.number, floor) for s in lost])
        traces.append(marks | {"text": [f"{s.outcome.replace('_', ' ')}{on(s.day)}" for s in lost]})
    x_axis = {
        "title": {"text": "step"},
        "tickmode": "linear",
        "dtick": max(1, len(steps) // 12),
        "range": [numbers[0] - 0.4, numbers[-1] + 0.4],
    }
    drawn = layout(x_axis, log_axis([floor, *timed], fmt.ratio, "times as fast as naive"))
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
