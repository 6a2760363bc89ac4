"""The charts of the evaluator's own trials; see charts.py for how a figure is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msbench.sitegen import format as fmt
from msbench.sitegen.plots.plot import Chart, layout, log_axis, plain, to_json
from msbench.sitegen.trials import REST, Pair, Verdict

SPANS = 4
"""How many parts of a verdict's time have a colour of their own; the others are one."""
BARS = 30
"""How many candidates a chart shows."""
_COLOURS = ("best", "child", "library", "parent")


def against_itself(id: str, same: Sequence[Pair], slowed: Sequence[Pair]) -> Chart | None:
    """Ratios of two copies of a kernel over its duration, with 95 % intervals; None where nothing was measured.

    Identical copies belong on the line at 1, slowed ones away from it. The band is ±1 %.
    """
    series = (
        ("identical, interval contains 1", "best", "circle", [p for p in same if p.covers]),
        ("identical, interval misses 1", "failed", "circle-open", [p for p in same if not p.covers]),
        ("one copy slowed, found", "library", "diamond", [p for p in slowed if p.held]),
        ("one copy slowed, not found", "failed", "diamond-open", [p for p in slowed if not p.held]),
    )
    everything = [*same, *slowed]
    if not everything:
        return None
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "meta": role,
            "x": [p.duration_ns for p in shown],
            "y": [p.median for p in shown],
            "error_y": {
                "array": [p.high - p.median for p in shown],
                "arrayminus": [p.median - p.low for p in shown],
            },
            "marker": {"size": 6.5, "symbol": symbol},
            "text": [
                f"{plain(p.subject)}<br>{fmt.time(p.duration_ns)} per call<br>{exact(p)}<br>{fmt.day(p.measured_at)}"
                for p in shown
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }
        for name, role, symbol, shown in series
        if shown
    ]
    ends = [0.985, 1.015, *(end for p in everything for end in (p.low, p.high))]
    room = 0.04 * (max(ends) - min(ends))
    y_axis = {
        "title": {"text": "time of one copy over the other"},
        "tickformat": ".2f",
        "range": [min(ends) - room, max(ends) + room],
    }
    drawn = layout(log_axis([p.duration_ns for p in everything], fmt.time, "duration of a call"), y_axis)
    across = {"xref": "paper", "x0": 0, "x1": 1, "layer": "below"}
    drawn["shapes"] = [
        {"type": "rect", "y0": 0.99, "y1": 1.01, "fillcolor": "rgba(128,134,139,0.13)", "line": {"width": 0}, **across},
        {"type": "line", "y0": 1, "y1": 1, "line": {"width": 1.4}, **across},
    ]
    rows = tuple(
        (
            p.subject,
            fmt.time(p.duration_ns),
            f"{p.factor:.2f}",
            f"{p.median:.4f}",
            f"{p.low:.4f} to {p.high:.4f}",
            fmt.day(p.measured_at),
        )
        for p in everything
    )
    summary = f"Ratios of {len(same)} identical pairs and {len(slowed)} slowed ones over the duration of a call."
    head = ("pair", "duration", "slowed by", "ratio", "95 % interval", "measured")
    return Chart(id, "Two copies of one kernel", summary, to_json(traces, drawn), head, rows)


def exact(pair: Pair) -> str:
    """A ratio with its interval, to a hundredth of a percent: ``1.0003 (0.9990 to 1.0015)``."""
    return f"{pair.median:.4f} ({pair.low:.4f} to {pair.high:.4f})"


def evenly(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """At most ``BARS`` of them, evenly from the first to the last."""
    if len(verdicts) <= BARS:
        return list(verdicts)
    return [verdicts[round(i * (len(verdicts) - 1) / (BARS - 1))] for i in range(BARS)]


def where_time_goes(id: str, verdicts: Sequence[Verdict]) -> Chart | None:
    """Bars of the seconds from source to stored verdict, in parts; None where no part was recorded."""
    shown = evenly([one for one in verdicts if one.spans])
    totals: Counter[str] = Counter()
    for one in shown:
        totals.update(one.spans)
    if not totals:
        return None
    named = [name for name, _ in totals.most_common() if name != REST][:SPANS]
    parts = [
        (name, role, [one.spans.get(name, 0.0) for one in shown]) for name, role in zip(named, _COLOURS, strict=False)
    ]
    rest = [sum(s for name, s in one.spans.items() if name not in named) for one in shown]
    if any(rest):
        parts.append((REST, "naive", rest))
    bars = [plain(one.subject) for one in shown][::-1]  # plotly fills from the bottom
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(name.replace("_", " ")),
            "meta": role,
            "y": bars,
            "x": seconds[::-1],
            "hovertext": [
                f"{fmt.seconds(s)}<br>{fmt.day(one.measured_at)}"
                for one, s in zip(shown[::-1], seconds[::-1], strict=True)
            ],
            "hovertemplate": "%{y}<br>%{hovertext}<extra>%{fullData.name}</extra>",
        }
        for name, role, seconds in parts
    ]
    x_axis = {"title": {"text": "seconds from source to stored verdict"}, "rangemode": "tozero"}
    drawn = layout(x_axis, {"automargin": True, "ticksuffix": "  "}, legend_traceorder="normal")
    drawn |= {"barmode": "stack", "bargap": 0.35}
    head = ("candidate", *(name for name, _, _ in parts), "together", "measured")
    rows = tuple(
        (
            one.subject,
            *(fmt.seconds(seconds[i]) for _, _, seconds in parts),
            fmt.seconds(one.seconds),
            fmt.day(one.measured_at),
        )
        for i, one in enumerate(shown)
    )
    summary = f"Seconds to a verdict for {len(shown)} candidates, by part."
    height = f"{6 + 1.7 * len(shown):.1f}rem"
    return Chart(id, "Where the time goes", summary, to_json(traces, drawn), head, rows, height)
