"""Figures for plotly: built here as data, drawn in the browser by the one vendored script.

A trace's ``meta`` is its role (``naive``, ``library``, ``best``, ``parent``, ``child``, ``roof`` …); the page's script
gives each role its colour from the style sheet. Every chart comes with the rows of a table that says the same without
JavaScript.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msbench.sitegen import format as fmt
from msbench.sitegen.plot import Chart, layout, log_axis, log_grid, plain, to_json


@dataclass(frozen=True)
class Point:
    """One case of one version: time in ns with the ends of its 95 % interval, and the case's compulsory work."""

    case: str
    size: float
    nbytes: int
    flops: int
    bound_ns: float | None
    time_ns: float
    interval_ns: tuple[float, float] | None = None

    @property
    def low_ns(self) -> float:
        """The interval's lower end; the time itself where there is no interval."""
        return self.interval_ns[0] if self.interval_ns else self.time_ns

    @property
    def high_ns(self) -> float:
        """The interval's upper end; the time itself where there is no interval."""
        return self.interval_ns[1] if self.interval_ns else self.time_ns


@dataclass(frozen=True)
class Series:
    """One version's points."""

    name: str
    role: str
    points: tuple[Point, ...]


def time_against_size(id: str, series: Sequence[Series], size_name: str) -> Chart | None:
    """Median time against size, both logarithmic, with interval bars; None where nothing was measured.

    ``size_name`` is the dimension that varies, or ``"bytes"`` where several do: compulsory bytes then stand for size.
    """
    shown = [s for s in series if s.points]
    if not shown:
        return None
    in_bytes = size_name == "bytes"
    label = fmt.size if in_bytes else fmt.count
    sizes = [p.size for s in shown for p in s.points]
    times = [t for s in shown for p in s.points for t in (p.low_ns, p.high_ns)]
    traces: list[dict[str, Any]] = []
    for s in shown:
        points = sorted(s.points, key=lambda p: (p.size, p.time_ns, p.case))
        line = _line_through(points)
        traces += [
            {
                "type": "scatter",
                "mode": "lines",
                "x": [x for x, _ in line],
                "y": [y for _, y in line],
                "meta": s.role,
                "line": {"width": 1.6, "dash": "dot" if s.role == "naive" else "solid"},
                "hoverinfo": "skip",
                "showlegend": False,
                "legendgroup": s.role,
            },
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(s.name),
                "meta": s.role,
                "legendgroup": s.role,
                "x": [p.size for p in points],
                "y": [p.time_ns for p in points],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [p.high_ns - p.time_ns for p in points],
                    "arrayminus": [p.time_ns - p.low_ns for p in points],
                },
                "marker": {"size": 7.5, "symbol": _SYMBOLS.get(s.role, "circle")},
                "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
                "text": [f"{plain(p.case)}<br>{fmt.time(p.time_ns)}" for p in points],
            },
        ]
    bounds = sorted({(p.size, p.bound_ns) for s in shown for p in s.points if p.bound_ns})
    if bounds:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "roofline bound",
                "meta": "roof",
                "x": [b[0] for b in bounds],
                "y": [b[1] for b in bounds],
                "line": {"width": 1.2, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
        times += [b[1] for b in bounds]
    title = "compulsory bytes" if in_bytes else size_name
    drawn = layout(log_axis(sizes, label, title, base=2), log_axis(times, fmt.time, "median time, cold cache"))
    table: dict[tuple[float, str], dict[str, str]] = defaultdict(dict)
    for s in shown:
        for p in s.points:
            table[p.size, p.case][s.name] = fmt.time(p.time_ns)
    names = tuple(s.name for s in shown)
    rows = tuple((case, *(cells.get(n, fmt.NONE) for n in names)) for (_, case), cells in sorted(table.items()))
    summary = f"Time against {title} for {', '.join(names)}, {len(table)} cases, both axes logarithmic."
    return Chart(id, "Time against size", summary, to_json(traces, drawn), ("case", *names), rows)


def roofline(
    id: str, series: Sequence[Series], *, bandwidth: float, peak: float, compute: str, launch_ns: float
) -> Chart | None:
    """Where the versions stand under the device's measured roof; None where nothing was measured.

    With cases of different arithmetic intensity this is the roofline of Williams, Waterman and Patterson (CACM 2009):
    FLOP/s against FLOP/byte. Where every case has one intensity, or there is no arithmetic at all, that plot is a single
    column; the same roof is then drawn over size, where the launch floor bounds small cases, and bandwidth or the
    rate large ones.

    Args:
        bandwidth: the measured copy bandwidth in bytes/s.
        peak: the measured rate in FLOP/s of the arithmetic named by ``compute``.
        launch_ns: the time of an empty launch in ns.
    """
    shown = [s for s in series if s.points]
    if not shown:
        return None
    intensities = [p.flops / p.nbytes for s in shown for p in s.points]
    classic = min(intensities) > 0 and max(intensities) > 1.6 * min(intensities)
    roof: list[tuple[float, float]]
    y_label: Callable[[float], str]
    if classic:
        low, high = min(*intensities, 0.3 * peak / bandwidth), max(*intensities, 3 * peak / bandwidth)
        roof = [(low, low * bandwidth), (peak / bandwidth, peak), (high, peak)]
        x, y = _intensity, _achieved_flops
        x_axis = log_axis([low, high], fmt.digits, "arithmetic intensity, FLOP/byte")
        y_label, y_title = fmt.rate, "achieved rate"
        note = f"{fmt.bandwidth(bandwidth)} measured copy bandwidth, {fmt.rate(peak)} measured {compute}"
    else:
        intensity = max(intensities)
        sizes = [float(p.nbytes) for s in shown for p in s.points]
        grid = log_grid(min(sizes) / 1.5, max(sizes) * 1.5)
        roof = [(b, b / max(b / bandwidth, b * intensity / peak, launch_ns * 1e-9)) for b in grid]
        x, y = _nbytes, _achieved_bandwidth
        x_axis = log_axis(sizes, fmt.size, "compulsory bytes", base=2)
        y_label, y_title = fmt.bandwidth, "achieved bandwidth"
        note = f"{fmt.bandwidth(bandwidth)} measured copy bandwidth, {fmt.time(launch_ns)} launch floor"
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "roof",
            "meta": "roof",
            "x": [r[0] for r in roof],
            "y": [r[1] for r in roof],
            "line": {"width": 1.8},
            "hoverinfo": "skip",
        }
    ]
    for s in shown:
        points = sorted(s.points, key=lambda p: (p.nbytes, p.case))
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(s.name),
                "meta": s.role,
                "x": [x(p) for p in points],
                "y": [y(p) for p in points],
                "marker": {"size": 8, "symbol": _SYMBOLS.get(s.role, "circle")},
                "text": [f"{plain(p.case)}<br>{y_label(y(p))}<br>{_of_roof(p)}" for p in points],
                "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
            }
        )
    heights = [v for _, v in roof] + [y(p) for s in shown for p in s.points]
    drawn = layout(x_axis, log_axis(heights, y_label, y_title))
    rows = tuple(
        (p.case, s.name, y_label(y(p)), fmt.percent(p.bound_ns / p.time_ns) if p.bound_ns else fmt.NONE)
        for s in shown
        for p in sorted(s.points, key=lambda p: (p.nbytes, p.case))
    )
    names = ", ".join(s.name for s in shown)
    summary = f"Roofline with {note}; {names} as points below the roof."
    return Chart(id, "Roofline", summary, to_json(traces, drawn), ("case", "version", y_title, "of the roofline"), rows)


@dataclass(frozen=True)
class Speedups:
    """One task's bars: ratios over the naive kernel, with the best version's interval."""

    task: str
    best: float | None
    low: float | None
    high: float | None
    library: float | None


def speedups(id: str, tasks: Sequence[Speedups]) -> Chart | None:
    """Bars from 1×, logarithmic: the fastest version and library call of each task over its naive kernel."""
    shown = [t for t in tasks if t.best or t.library]
    if not shown:
        return None
    names = [plain(t.task) for t in shown][::-1]  # plotly fills from the bottom
    traces: list[dict[str, Any]] = []
    for role, name, ratios in (
        ("library", "fastest library call", [t.library for t in shown]),
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
            "x": [None if v is None else v - 1 for v in values],
            "text": [fmt.ratio(v) if v else "" for v in values],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertemplate": "%{y}<br>%{text}<extra>%{fullData.name}</extra>",
        }
        traces.append(trace)
    everything = [v for t in shown for v in (t.best, t.library, 1.0) if v]
    x_axis = log_axis([min(everything), max(everything) * 1.6], fmt.ratio, "times as fast as the naive kernel")
    drawn = layout(x_axis, {"automargin": True, "ticksuffix": "  "}, legend_traceorder="reversed")
    drawn |= {"barmode": "group", "bargap": 0.3, "bargroupgap": 0.08}
    drawn["shapes"] = [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1}}]
    rows = tuple((t.task, fmt.ratio(t.best), fmt.interval(t.low, t.high), fmt.ratio(t.library)) for t in shown)
    summary = f"Speed-up over the naive kernel for {len(shown)} tasks, logarithmic."
    head = ("task", "fastest of ours", "95 % interval", "fastest library call")
    return Chart(id, "Speed-up by task", summary, to_json(traces, drawn), head, rows, f"{5 + 2.2 * len(shown):.1f}rem")


def before_after(
    id: str, names: Sequence[str], before: Sequence[float], after: Sequence[float], labels: tuple[str, str]
) -> Chart | None:
    """Counters that are percentages, before and after a change, as pairs of bars."""
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
            "hovertemplate": "%{y}<br>%{text}<extra>%{fullData.name}</extra>",
        }
        for role, label, values in (("best", labels[1], after), ("parent", labels[0], before))
    ]
    top = max(100.0, *before, *after)
    x_axis = {"range": [0, top * 1.12], "ticksuffix": " %", "tickvals": [0, 25, 50, 75, 100], "fixedrange": True}
    drawn = layout(x_axis, {"automargin": True, "ticksuffix": "  "}, legend_traceorder="reversed")
    drawn |= {"barmode": "group", "bargap": 0.35, "bargroupgap": 0.08}
    rows = tuple((n, fmt.percent(b / 100), fmt.percent(a / 100)) for n, b, a in zip(names, before, after, strict=True))
    summary = f"{len(names)} counters before and after, in percent."
    height = f"{5 + 2.9 * len(names):.1f}rem"
    return Chart(id, "Before and after", summary, to_json(traces, drawn), ("counter", *labels), rows, height)


def progress(id: str, steps: Sequence[tuple[int, str, float | None]]) -> Chart | None:
    """Speed-up over the naive kernel by step of a run, with the best so far as a line; failed steps stand on the floor.

    ``steps`` holds (number, outcome, speed-up); None comes back where no step was timed.
    """
    timed = [speed for _, _, speed in steps if speed]
    if not timed:
        return None
    floor = min(timed) / 1.25
    best: list[float | None] = []
    for _, _, speed in steps:
        best.append(max((b for b in (best[-1] if best else None, speed) if b), default=None))
    numbers = [number for number, _, _ in steps]
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
        shown = [(n, s) for n, outcome, s in steps if outcome in outcomes and s]
        if shown:
            traces.append(_step_marks(name, role, symbol, shown, [fmt.ratio(s) for _, s in shown]))
    lost = [(n, floor) for n, outcome, s in steps if not s and outcome != "baseline"]
    if lost:
        said = {n: outcome.replace("_", " ") for n, outcome, _ in steps}
        traces.append(_step_marks("failed or no kernel", "failed", "x-thin-open", lost, [said[n] for n, _ in lost]))
    x_axis = {
        "title": {"text": "step"},
        "tickmode": "linear",
        "dtick": max(1, len(steps) // 12),
        "range": [numbers[0] - 0.4, numbers[-1] + 0.4],
    }
    drawn = layout(x_axis, log_axis([floor, *timed], fmt.ratio, "times as fast as naive"))
    rows = tuple((str(n), outcome.replace("_", " "), fmt.ratio(s)) for n, outcome, s in steps)
    return Chart(
        id,
        "Progress",
        f"Speed-up by step, {len(steps)} steps.",
        to_json(traces, drawn),
        ("step", "outcome", "over naive"),
        rows,
        "20rem",
    )


# ------------------------------------------------------------------ parts


def _step_marks(
    name: str, role: str, symbol: str, marks: Sequence[tuple[int, float]], text: Sequence[str]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "meta": role,
        "x": [n for n, _ in marks],
        "y": [s for _, s in marks],
        "marker": {"size": 10, "symbol": symbol},
        "text": list(text),
        "hovertemplate": "step %{x}: %{text}<extra>%{fullData.name}</extra>",
    }


_SYMBOLS = {"naive": "circle", "library": "diamond", "best": "circle", "parent": "square", "child": "triangle-up"}


def _intensity(p: Point) -> float:
    return p.flops / p.nbytes


def _nbytes(p: Point) -> float:
    return float(p.nbytes)


def _achieved_flops(p: Point) -> float:
    return p.flops / (p.time_ns * 1e-9)


def _achieved_bandwidth(p: Point) -> float:
    return p.nbytes / (p.time_ns * 1e-9)


def _of_roof(p: Point) -> str:
    return f"{fmt.percent(p.bound_ns / p.time_ns)} of the roofline" if p.bound_ns else ""


def _line_through(points: Iterable[Point]) -> list[tuple[float, float]]:
    """One point a size: the geometric mean of the times of the cases that share it."""
    at: dict[float, list[float]] = defaultdict(list)
    for p in points:
        at[p.size].append(math.log(p.time_ns))
    return [(size, math.exp(sum(logs) / len(logs))) for size, logs in sorted(at.items())]
