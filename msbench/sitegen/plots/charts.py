"""Figures for plotly: built here as data, drawn in the browser by the one vendored script.

A trace's ``meta`` is its role (``naive``, ``library``, ``best``, ``parent``, ``child``, ``roof`` …); the page's script
gives each role its colour from the style sheet. What is shown where a mark is pointed at ends with the day on which its
figure was measured. Every chart comes with the rows of a table that says the same without JavaScript.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msbench.sitegen import format as fmt
from msbench.sitegen.plots.plot import Chart, layout, log_axis, log_grid, plain, to_json


@dataclass(frozen=True)
class Point:
    """One case of one version: time in ns with the ends of its 95 % interval, and the case's compulsory work.

    ``by`` names the version where a series has points of several; ``day`` is when it was measured. ``like`` is the same
    for cases that differ in size alone; a case that stands for itself has none.
    """

    case: str
    size: float
    nbytes: int
    flops: int
    bound_ns: float | None
    time_ns: float
    interval_ns: tuple[float, float] | None = None
    by: str = ""
    day: str = ""
    like: str = ""

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

    @property
    def day(self) -> str:
        """The day of its figures, where all points have the same."""
        days = {p.day for p in self.points}
        return days.pop() if len(days) == 1 else ""

    @property
    def head(self) -> str:
        """Its name in a table's head, with the day where all points have the same."""
        return f"{self.name}, {self.day}" if self.day else self.name

    def hover(self, ending: str = "") -> str:
        """What is shown where a mark is pointed at: case and text with its ending, and the day unless each text has its own."""
        return f"%{{customdata}}<br>%{{text}}{ending}{on(self.day)}<extra>%{{fullData.name}}</extra>"

    def cell(self, point: Point, text: str) -> str:
        """A point in a table, with its day where the head has none."""
        return f"{text}, {point.day}" if self.head == self.name and point.day else text


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
        points = sorted(s.points, key=lambda p: (p.size, p.case))
        # Cases of one size in bytes may have nothing else in common.
        for line in [] if in_bytes else _lines_through(points):
            traces.append(
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
                }
            )
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(s.name),
                "meta": s.role,
                "legendgroup": s.role,
                "x": [p.size for p in points],
                "y": [p.time_ns for p in points],
                "error_y": {
                    "array": [p.high_ns - p.time_ns for p in points],
                    "arrayminus": [p.time_ns - p.low_ns for p in points],
                },
                "marker": _marker(s.role),
                "hovertemplate": s.hover(),
                "customdata": [plain(p.case) for p in points],
                "text": [f"{fmt.time(p.time_ns)}{_by(p, s)}{_own_day(p, s)}" for p in points],
            }
        )
    bounds = sorted({(p.size, p.bound_ns) for s in shown for p in s.points if p.bound_ns})
    if bounds:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "a case’s bound",
                "meta": "roof",
                "x": [b[0] for b in bounds],
                "y": [b[1] for b in bounds],
                "marker": _BOUND,
                "hoverinfo": "skip",
            }
        )
        times += [b[1] for b in bounds]
    title = "compulsory bytes" if in_bytes else size_name
    drawn = layout(log_axis(sizes, label, title, base=2), log_axis(times, fmt.time, "median time, cold cache"))
    table: dict[tuple[float, str], dict[str, str]] = defaultdict(dict)
    for s in shown:
        for p in s.points:
            table[p.size, p.case][s.name] = s.cell(p, fmt.time(p.time_ns))
    names = tuple(s.name for s in shown)
    rows = tuple((case, *(cells.get(n, fmt.NONE) for n in names)) for (_, case), cells in sorted(table.items()))
    summary = f"Time against {title} for {', '.join(names)}, {len(table)} cases, both axes logarithmic."
    head = ("case", *(s.head for s in shown))
    return Chart(id, "Time against size", summary, to_json(traces, drawn), head, rows)


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
        launch_ns: the time of an empty call in ns, timed as the versions are.
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
        note = f"{fmt.bandwidth(bandwidth)} measured copy bandwidth, {fmt.time(launch_ns)} for an empty call"
    roof = _corners(roof)
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
    lower = sorted({(x(p), y(_at_bound(p))) for s in shown for p in s.points if _below(p, bandwidth, peak, launch_ns)})
    if lower:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "a case’s bound by L2",
                "meta": "roof",
                "x": [b[0] for b in lower],
                "y": [b[1] for b in lower],
                "marker": _BOUND,
                "hoverinfo": "skip",
            }
        )
    for s in shown:
        points = sorted(s.points, key=lambda p: (p.nbytes, p.case))
        ending = _OF_ROOF if s.day and all(p.bound_ns for p in points) else ""
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(s.name),
                "meta": s.role,
                "x": [x(p) for p in points],
                "y": [y(p) for p in points],
                "marker": _marker(s.role),
                "customdata": [plain(p.case) for p in points],
                "text": [
                    f"{y_label(y(p))}{_by(p, s)}{_of_roof(p)}{_own_day(p, s)}".removesuffix(ending) for p in points
                ],
                "hovertemplate": s.hover(ending),
            }
        )
    heights = [v for _, v in roof] + [y(p) for s in shown for p in s.points]
    drawn = layout(x_axis, log_axis(heights, y_label, y_title))
    table: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    for s in shown:
        for p in s.points:
            share = f" ({fmt.percent(p.bound_ns / p.time_ns)})" if p.bound_ns else ""
            table[p.nbytes, p.case][s.name] = s.cell(p, f"{y_label(y(p))}{share}")
    names = tuple(s.name for s in shown)
    rows = tuple((case, *(cells.get(n, fmt.NONE) for n in names)) for (_, case), cells in sorted(table.items()))
    summary = f"Roofline with {note}; {', '.join(names)} as points below the roof."
    head = (f"case ({y_title}, of the roofline)", *(s.head for s in shown))
    return Chart(id, "Roofline", summary, to_json(traces, drawn), head, rows)


def _corners(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The ends of a line of straight pieces on logarithmic axes, and the points beside its bends."""

    def slope(one: tuple[float, float], other: tuple[float, float]) -> float:
        return math.log(other[1] / one[1]) / math.log(other[0] / one[0])

    inner = zip(line, line[1:], line[2:], strict=False)
    bends = [b for a, b, c in inner if abs(slope(a, b) - slope(b, c)) > 1e-3]
    return [line[0], *bends, line[-1]]


# ------------------------------------------------------------------ parts


_SYMBOLS = {
    "naive": "circle",
    "library": "diamond",
    "best": "circle",
    "parent": "square-open",
    "child": "triangle-up-open",
}


_OF_ROOF = " of the roofline"
_BOUND = {"size": 13, "symbol": "line-ew-open", "line": {"width": 1.6}}


def _marker(role: str) -> dict[str, Any]:
    """Of a version's relatives, whose marks may fall on its own, so large that none covers another."""
    return {"size": 13 if role in ("parent", "child") else 7.5, "symbol": _SYMBOLS.get(role, "circle")}


def on(day: str) -> str:
    """The day of a mark's figure, as its text ends."""
    return f"<br>{day}" if day else ""


def _at_bound(p: Point) -> Point:
    """What a case would be at its bound."""
    return replace(p, time_ns=p.bound_ns or p.time_ns)


def _below(p: Point, bandwidth: float, peak: float, launch_ns: float) -> bool:
    """Whether a case's own bound is below the roof that all share."""
    shared = max(p.nbytes / bandwidth * 1e9, p.flops / peak * 1e9, launch_ns)
    return p.bound_ns is not None and p.bound_ns > 1.01 * shared


def _intensity(p: Point) -> float:
    return p.flops / p.nbytes


def _nbytes(p: Point) -> float:
    return float(p.nbytes)


def _achieved_flops(p: Point) -> float:
    return p.flops / (p.time_ns * 1e-9)


def _achieved_bandwidth(p: Point) -> float:
    return p.nbytes / (p.time_ns * 1e-9)


def _of_roof(p: Point) -> str:
    return f"<br>{fmt.percent(p.bound_ns / p.time_ns)}{_OF_ROOF}" if p.bound_ns else ""


def _own_day(p: Point, s: Series) -> str:
    return "" if s.day else on(p.day)


def _by(p: Point, s: Series) -> str:
    return f" ({plain(p.by)})" if p.by and p.by != s.name else ""


def _lines_through(points: Iterable[Point]) -> list[list[tuple[float, float]]]:
    """One line for cases that are alike, with one point a size: the geometric mean of the times that share it."""
    at: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for p in points:
        if p.like:
            at[p.like][p.size].append(math.log(p.time_ns))
    means = [[(size, math.exp(sum(logs) / len(logs))) for size, logs in sorted(of.items())] for of in at.values()]
    return [line for line in means if len(line) > 1]
