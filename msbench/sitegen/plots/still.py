"""A chart as a small SVG, for paper and for browsers without JavaScript: drawn from the figure that plotly gets.

It knows the parts of plotly's language that charts.py speaks: scatter traces, horizontal bars, linear and logarithmic
axes, lines and bands behind. Colours are the style sheet's, by a trace's role, as on the screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

from markupsafe import Markup, escape

WIDTH = 600
"""In CSS pixels, as wide as half a page on a screen and as a page on paper."""
_CHARACTER = 6.2  # mean width at 12 pixels
_LONGEST = 36  # characters of a bar's name
_DASHES = {"dot": "2 3", "dash": "6 4"}
_SYMBOLS = {
    "circle-open": "m{-r} 0a{r} {r} 0 1 0 {2r} 0a{r} {r} 0 1 0{-2r} 0",
    "diamond-open": "m0{-r}l{r} {r}{-r} {r}{-r}{-r}z",
    "square-open": "m{-r}{-r}h{2r}v{2r}h{-2r}z",
    "triangle-up-open": "m0{-r}l{r} {2r}h{-2r}z",
    "x-thin-open": "m{-r}{-r}l{2r} {2r}m0{-2r}l{-2r} {2r}",
    "line-ew-open": "m{-r} 0h{2r}",
}
"""A mark of radius r as a path from its middle."""
_POINTS = {"circle": ("d", "h0", 1.0), "diamond": ("q", "l.1.1", 2**-0.5)}
"""A mark as a thick line of hardly any length: its class, the line, and its thickness in marks' sizes.

A circle has round ends, and a diamond square ones, which are turned as the line is.
"""

Figure = dict[str, Any]


@dataclass(frozen=True)
class _Axis:
    """From data to pixels: ``ends`` are the data's (their exponents, if logarithmic), ``pixels`` where these lie."""

    logarithmic: bool
    ends: tuple[float, float]
    pixels: tuple[float, float]
    ticks: tuple[tuple[float, str], ...]
    title: str

    def at(self, value: float) -> float:
        """The pixel of a value; what lies below a logarithmic axis lies at its end."""
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.ends[0]
        share = (value - self.ends[0]) / (self.ends[1] - self.ends[0])
        return self.pixels[0] + share * (self.pixels[1] - self.pixels[0])


def still(figure: Figure, height: float) -> Markup:
    """The SVG of a plotly figure, ``WIDTH`` by ``height`` CSS pixels; it scales to what it lies in."""
    traces, layout = figure["data"], {"xaxis": {}, "yaxis": {}} | figure["layout"]
    names = _names(traces)
    legend, top = _legend(traces, reverse=layout.get("legend", {}).get("traceorder") == "reversed")
    bottom = height - 22 - (18 if layout["xaxis"].get("title") else 0)
    spec = layout["yaxis"]
    if names:
        labels = [(i + 0.5, _shortened(name)) for i, name in enumerate(names)]
        y = _Axis(False, (0, len(names)), (bottom, top), tuple(labels), "")
    else:
        y = _axis(spec, _values(traces, "y"), (bottom, top))
    widest = max((len(label) for _, label in y.ticks), default=0)
    left = widest * _CHARACTER + 14 + (18 if y.title else 0)
    lengths = _totals(traces) if layout.get("barmode") == "stack" else _values(traces, "x")
    x = _axis(layout["xaxis"], lengths, (left, WIDTH - 14))
    parts = [
        *_background(layout.get("shapes", ()), x, y),
        _grid(x, y, named=bool(names)),
        *(_bars(traces, names, layout, x, y) if names else ()),
        *(_scatter(trace, x, y) for trace in traces if trace["type"] == "scatter"),
        *_labels(x, y, height),
        legend,
    ]
    return Markup('<svg class="still" viewBox="0 0 {} {:.0f}" aria-hidden="true">{}</svg>').format(
        WIDTH, height, Markup("").join(parts)
    )


# ------------------------------------------------------------------ axes


def _axis(spec: Figure, values: Sequence[float], pixels: tuple[float, float]) -> _Axis:
    logarithmic = spec.get("type") == "log"
    first, last = spec.get("range") or (min(0.0, *values), 1.04 * max(values))
    if "tickvals" in spec:
        at = spec["tickvals"]
    else:
        step = spec.get("dtick") or _step(last - first)
        at = [i * step for i in range(math.ceil(first / step), math.floor(last / step) + 1)]
    shown = spec.get("ticktext") or [_number(v, spec.get("tickformat", "")) + spec.get("ticksuffix", "") for v in at]
    axis = _Axis(logarithmic, (first, last), pixels, (), _text(spec.get("title", {}).get("text", "")))
    inside = [
        (v, _text(label))
        for v, label in zip(at, shown, strict=True)
        if min(pixels) - 0.5 <= axis.at(v) <= max(pixels) + 0.5
    ]
    return _Axis(logarithmic, (first, last), pixels, tuple(inside), axis.title)


def _step(span: float) -> float:
    """Such that a handful of round numbers lie in ``span``."""
    power: float = 10.0 ** math.floor(math.log10(span))
    return next(power * part for part in (0.1, 0.2, 0.5, 1, 2) if span / (power * part) <= 7)


def _number(value: float, form: str) -> str:
    return format(value, form) if form else f"{value:.6g}"


def _values(traces: Iterable[Figure], name: str) -> list[float]:
    return [v for trace in traces for v in trace[name] if isinstance(v, int | float)] or [1.0]


def _totals(traces: Iterable[Figure]) -> list[float]:
    """How long the bars are together, by what they stand for."""
    return [sum(lengths) for lengths in zip(*(trace["x"] for trace in traces), strict=True)]


def _names(traces: Iterable[Figure]) -> list[str]:
    """What the bars stand for, from the bottom."""
    return list(dict.fromkeys(_text(name) for trace in traces if trace["type"] == "bar" for name in trace["y"]))


# ------------------------------------------------------------------ parts


def _grid(x: _Axis, y: _Axis, *, named: bool) -> Markup:
    lines = [f"M{_px(x.at(v))} {_px(y.pixels[0])}V{_px(y.pixels[1])}" for v, _ in x.ticks]
    if not named:
        lines += [f"M{_px(x.pixels[0])} {_px(y.at(v))}H{_px(x.pixels[1])}" for v, _ in y.ticks]
    return Markup('<path class="g" d="{}"/>').format("".join(lines))


def _labels(x: _Axis, y: _Axis, height: float) -> list[Markup]:
    below = [_label(x.at(v), y.pixels[0] + 16, label) for v, label in x.ticks]
    beside = [_label(x.pixels[0] - 8, y.at(v) + 4, label) for v, label in y.ticks]
    parts = [
        Markup('<g text-anchor="middle">{}</g>').format(Markup("").join(below)),
        Markup('<g text-anchor="end">{}</g>').format(Markup("").join(beside)),
    ]
    middle = _px(sum(x.pixels) / 2), _px(sum(y.pixels) / 2)
    if x.title:
        parts.append(
            Markup('<text x="{}" y="{:.0f}" text-anchor="middle">{}</text>').format(middle[0], height - 6, x.title)
        )
    if y.title:
        turned = Markup('<text transform="translate(12 {})rotate(-90)" text-anchor="middle">{}</text>')
        parts.append(turned.format(middle[1], y.title))
    return parts


def _legend(traces: Sequence[Figure], *, reverse: bool) -> tuple[Markup, float]:
    """The legend's rows, and where they end."""
    shown = [t for t in traces if t.get("name") and t.get("showlegend", True)]
    across, down, parts = 6.0, 14.0, []
    for trace in reversed(shown) if reverse else shown:
        name = _text(trace["name"])
        wide = 32 + len(name) * _CHARACTER
        if across + wide > WIDTH and across > 6:
            across, down = 6.0, down + 18
        if trace["type"] == "bar":
            mark = _path("b", f"M{_px(across)} {_px(down - 9)}h12v9h-12z")
        elif "markers" in trace.get("mode", ""):
            mark = _marks(trace, [(across + 6, down - 4)])
        else:
            mark = _line(trace, f"M{_px(across)} {_px(down - 4)}h14")
        parts.append(_coloured(trace, mark) + _label(across + 18, down, name))
        across += wide
    return Markup("").join(parts), down + 14


def _background(shapes: Iterable[Figure], x: _Axis, y: _Axis) -> Iterable[Markup]:
    for shape in shapes:
        left, right = x.pixels if shape.get("xref") == "paper" else [x.at(shape[end]) for end in ("x0", "x1")]
        low, high = y.pixels if shape.get("yref") == "paper" else [y.at(shape[end]) for end in ("y0", "y1")]
        corners = f"M{_px(left)} {_px(low)}"
        if shape["type"] == "rect":
            yield _path("band", f"{corners}H{_px(right)}V{_px(high)}H{_px(left)}z")
        else:
            yield _path("axis", f"{corners}L{_px(right)} {_px(high)}")


def _bars(traces: Sequence[Figure], names: Sequence[str], layout: Figure, x: _Axis, y: _Axis) -> Iterable[Markup]:
    """Bars of a name side by side, or one after the other where they are stacked."""
    stacked = layout.get("barmode") == "stack"
    step = abs(y.at(1) - y.at(0))
    room = step * (1 - layout.get("bargap", 0.2))
    thick = room if stacked else room / len(traces)
    ends = dict.fromkeys(names, 0.0)
    for number, trace in enumerate(traces):
        boxes, texts, lines = [], [], []
        bars = trace.get("error_x")
        for i, (name, length) in enumerate(zip(trace["y"], trace["x"], strict=True)):
            if length is None:
                continue
            name = _text(name)
            start = ends[name] if stacked else trace.get("base", 0)
            ends[name] = start + length
            middle = y.at(names.index(name) + 0.5) + (0 if stacked else room / 2 - (number + 0.5) * thick)
            low, high = x.at(start), x.at(start + length)
            boxes.append(f"M{_px(low)} {_px(middle - 0.46 * thick)}H{_px(high)}v{_px(0.92 * thick)}H{_px(low)}z")
            outer = high
            if bars:
                outer = x.at(start + length + bars["array"][i])
                lines.append(f"{_moved((x.at(start + length - bars['arrayminus'][i]), middle))}H{_px(outer)}")
            if trace.get("textposition") == "outside":
                label = _text(trace["text"][i])
                at = max(high, outer) + 4 if high >= low else high - 4 - len(label) * _CHARACTER
                texts.append(_label(at, middle + 4, label))
        yield _coloured(trace, _path("b", "".join(boxes)))
        yield _path("e", "".join(lines)) if lines else Markup()
        yield Markup("").join(texts)


def _scatter(trace: Figure, x: _Axis, y: _Axis) -> Markup:
    points = [
        (x.at(a), y.at(b)) for a, b in zip(trace["x"], trace["y"], strict=True) if a is not None and b is not None
    ]
    if not points:
        return Markup()
    parts = []
    if "lines" in trace["mode"]:
        onward = "H{}V{}" if trace.get("line", {}).get("shape") == "hv" else "L{} {}"
        rest = "".join(onward.format(_px(a), _px(b)) for a, b in points[1:])
        parts.append(_line(trace, _moved(points[0]) + rest))
    if "markers" in trace["mode"]:
        bars = trace.get("error_y")
        if bars:
            ends = zip(trace["x"], trace["y"], bars["array"], bars["arrayminus"], strict=True)
            bounds = ((x.at(a), _px(y.at(b - less)), _px(y.at(b + more))) for a, b, more, less in ends)
            lines = "".join(f"M{_px(at)} {low}V{high}" for at, low, high in bounds if low != high)
            if lines:
                parts.append(_path("l", lines))
        parts.append(_marks(trace, points))
    return _coloured(trace, Markup("").join(parts))


def _marks(trace: Figure, points: Iterable[tuple[float, float]]) -> Markup:
    marker = trace.get("marker", {})
    size, symbol = marker.get("size", 8), marker.get("symbol", "circle")
    if symbol in _POINTS:
        kind, line, thickness = _POINTS[symbol]
        dots = "".join(_moved(p) + line for p in points)
        return Markup('<path class="{}" stroke-width="{:.3g}" d="{}"/>').format(kind, thickness * size, dots)
    form = _SYMBOLS[symbol]
    for name, value in (("{r}", size / 2), ("{-r}", -size / 2), ("{2r}", size), ("{-2r}", -size)):
        form = form.replace(name, f"{value:g}")
    return _path("o" if symbol.endswith("-open") else "b", "".join(_moved(p) + form for p in points))


def _line(trace: Figure, d: str) -> Markup:
    dashes = _DASHES.get(trace.get("line", {}).get("dash", ""))
    return Markup('<path class="l" stroke-dasharray="{}" d="{}"/>').format(dashes, d) if dashes else _path("l", d)


def _coloured(trace: Figure, parts: Markup) -> Markup:
    return Markup('<g class="{}">{}</g>').format(trace.get("meta", "best"), parts)


def _path(kind: str, d: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(kind, d)


def _label(x: float, y: float, text: str) -> Markup:
    return Markup('<text x="{}" y="{}">{}</text>').format(_px(x), _px(y), escape(text))


def _moved(point: tuple[float, float]) -> str:
    return f"M{_px(point[0])} {_px(point[1])}"


def _px(value: float) -> str:
    return f"{value:.0f}"


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _text(label: str) -> str:
    """What plotly would show of a label."""
    return unescape(label.replace("<br>", " "))
