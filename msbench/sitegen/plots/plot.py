"""What all charts are made of: axes, layout, and a figure as JSON that is checked by plotly and safe inside a page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from msbench.sitegen.plots.still import still

Row = tuple[str, ...]
_SHARED = frozenset({"x", "customdata"})
"""What the traces of a chart have in common where they show the same cases."""
_MARKUP = re.compile(r"<(?=[!/]|script)", re.IGNORECASE)
"""What could end the script element that a figure stands in, or start a comment there."""
_TRAILING = re.compile(r"\.0+(?=\D|$)")


@dataclass(frozen=True)
class Chart:
    """A drawable figure: ``id`` is unique on its page; ``summary`` describes it to those who can't see it."""

    id: str
    title: str
    summary: str
    json: Markup
    head: Row
    rows: tuple[Row, ...]
    height: str = "26rem"

    @property
    def embedded(self) -> Markup:
        """``json`` for a page: what a trace shares with an earlier one is that one's number, and the page's script puts it back."""
        figure = json.loads(self.json)
        lists: dict[tuple[str, str], int] = {}
        for number, trace in enumerate(figure["data"]):
            for name in _SHARED & trace.keys():
                first = lists.setdefault((name, _spelled(trace[name])), number)
                trace[name] = trace[name] if first == number else first
        return Markup(_spelled(figure))

    @property
    def still(self) -> Markup:
        """The figure as an SVG, for paper and for browsers without JavaScript."""
        return still(json.loads(self.json), 16 * float(self.height.removesuffix("rem")))


def plain(text: str) -> str:
    """``text`` as plotly shows it unchanged: plotly reads a few HTML tags and entities in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def log_grid(low: float, high: float, steps: int = 48) -> list[float]:
    """Evenly spaced on a logarithmic axis, both ends included."""
    return [float(f"{low * (high / low) ** (i / steps):.6g}") for i in range(steps + 1)]


def log_axis(values: Sequence[float], label: Callable[[float], str], title: str, base: int = 10) -> dict[str, Any]:
    """A logarithmic axis over positive ``values`` with at most about seven labelled ticks."""
    low, high = min(values), max(values)
    pad = (high / low) ** 0.06 if high > low else 2.0
    low, high = low / pad, high * pad
    if base == 2:
        first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
        step = max(1, math.ceil((last - first + 1) / 7))
        ticks = [2.0**e for e in range(first, last + 1, step)]
    else:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        span = math.log10(high / low)
        step = max(1, math.ceil(span / 7))
        parts = (1,) if span > 2 else (1, 2, 5)
        ticks = [m * 10.0**e for e in range(first, last + 1, step) for m in parts]
        ticks = [t for t in ticks if low <= t <= high]
    return {
        "type": "log",
        "range": [round(math.log10(low), 4), round(math.log10(high), 4)],
        "title": {"text": title},
        "tickvals": ticks,
        "ticktext": [_TRAILING.sub("", label(t)) for t in ticks],
    }


def layout(x_axis: dict[str, Any], y_axis: dict[str, Any], **options: Any) -> dict[str, Any]:
    """What is a chart's own; the page's script adds what all share: a legend on top, margins, no zooming by accident."""
    return {"xaxis": x_axis, "yaxis": y_axis} | options


def to_json(traces: list[dict[str, Any]], drawn: dict[str, Any]) -> Markup:
    """Checked by plotly, spelled the same every time, and safe inside a script element."""
    import plotly.graph_objects as go

    figure: Any = go.Figure(data=traces, layout=drawn)
    spelled = json.loads(figure.to_json(engine="json"))
    del spelled["layout"]["template"]  # plotly's own look, 6 kB of it: the page's script sets every colour
    return Markup(_spelled(_rounded(spelled)))


def _spelled(value: Any) -> str:
    """As JSON, in few bytes: sorted keys, and 6289e5 for 628900000."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_spelled(name)}:{_spelled(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value):
        digits = str(int(value)).rstrip("0")
        zeros = len(str(int(value))) - len(digits)
        return f"{digits}e{zeros}" if zeros > 2 else str(int(value))
    return _MARKUP.sub(r"\\u003c", json.dumps(value, ensure_ascii=False))


def _rounded(value: Any) -> Any:
    """Six significant digits: more is noise, and costs bytes."""
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return value
