"""Draws intervals as an SVG: one bar a pair, sorted by how long the kernel takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 960, 450
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 34, 148
_TICKS = 6


@dataclass(frozen=True)
class Bar:
    """A ratio with its interval. Bars of one ``label`` are adjacent above it."""

    label: str
    median: float
    low: float
    high: float
    truth: float
    held: bool


def intervals(title: str, bars: Sequence[Bar]) -> str:
    """Ratios minus one, in percent; a short line at each bar's true value. The same bars give the same text.

    Raises:
        ValueError: there is no bar.
    """
    values = [100 * (value - 1) for bar in bars for value in (bar.low, bar.high, bar.truth)]
    step = _step(max(values) - min(values))
    low, high = (min(values) // step) * step, -(-max(values) // step) * step
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(position: float) -> float:
        return round(_LEFT + plot_width * position / len(bars), 1)

    def y(percent: float) -> float:
        return round(_TOP + plot_height * (high - percent) / (high - low), 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in range(round((high - low) / step) + 1):
        percent = low + tick * step
        out += [
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(percent)}" y2="{y(percent)}" stroke="#ddd"/>',
            f'<text x="{_LEFT - 6}" y="{y(percent) + 4}" text-anchor="end">{percent:+.4g} %</text>',
        ]
    first = 0
    for number, bar in enumerate(bars):
        at, colour = x(number + 0.5), "#1f5fa8" if bar.held else "#c0392b"
        truth = y(100 * (bar.truth - 1))
        out += [
            f'<line x1="{x(number)}" x2="{x(number + 1)}" y1="{truth}" y2="{truth}" stroke="#222"/>',
            f'<line x1="{at}" x2="{at}" y1="{y(100 * (bar.low - 1))}" y2="{y(100 * (bar.high - 1))}" stroke="{colour}" stroke-width="2"/>',
            f'<circle cx="{at}" cy="{y(100 * (bar.median - 1))}" r="2.5" fill="{colour}"/>',
        ]
        if number + 1 == len(bars) or bars[number + 1].label != bar.label:
            middle = x((first + number + 1) / 2)
            out.append(
                f'<text x="{middle}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="end" font-size="10" '
                f'transform="rotate(-45 {middle} {_HEIGHT - _BOTTOM + 14})">{escape(bar.label)}</text>'
            )
            first = number + 1
    return "\n".join([*out, "</svg>"]) + "\n"


def _step(span: float) -> float:
    """A round distance between ticks, of which about _TICKS fit."""
    raw = max(span, 0.1) / _TICKS
    size = 10.0 ** _floor_log10(raw)
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw)


def _floor_log10(value: float) -> int:
    return int(f"{value:e}".partition("e")[2])
