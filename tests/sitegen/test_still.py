"""The charts on paper and without JavaScript: marks lie where the figures say."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from msbench.sitegen.plots import charts
from msbench.sitegen.plots.charts import Point, Series
from msbench.sitegen.plots.plot import Chart, layout, log_axis, to_json
from msbench.sitegen.plots.still import WIDTH
from tests.browser.reader import Reader
from tests.sitegen.showcase import NASTY

HEIGHT = 320


def chart(traces: list[dict[str, Any]], drawn: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(Chart("c", "C", "c", to_json(traces, drawn), (), (), f"{HEIGHT / 16}rem").still)


def numbers(svg: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    """Where the paths of a kind begin, the legend's left out (these are the last)."""
    found = [path.get("d", "") for path in svg.iter("path") if path.get("class") == kind]
    return [(float(x), float(y)) for d in found[:-1] for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", d)]


def texts(svg: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in svg.iter("text")]


def scatter(x: list[float], y: list[float], **options: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": "markers", "name": "n", "meta": "best", "x": x, "y": y} | options


def test_equal_factors_are_equally_far_apart_on_logarithmic_axes() -> None:
    values = [1.0, 10.0, 100.0, 1000.0]
    axis = log_axis(values, str, "axis")
    points = numbers(chart([scatter(values, values)], layout(axis, axis)), "d")
    steps = [(b[0] - a[0], a[1] - b[1]) for a, b in pairwise(points)]
    assert all(across > 60 and up > 30 for across, up in steps)
    assert (
        max(x for x, _ in steps) - min(x for x, _ in steps) <= 2 >= max(y for _, y in steps) - min(y for _, y in steps)
    )
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points)


def test_an_interval_reaches_from_its_lower_end_to_its_upper_end() -> None:
    bars = {"type": "data", "symmetric": False, "array": [100.0, 0.0], "arrayminus": [50.0, 0.0]}
    traces = [scatter([0.0, 1.0], [200.0, 500.0], error_y=bars), scatter([0.0, 0.0], [150.0, 300.0], name="ends")]
    svg = chart(traces, layout({"range": [-1, 2]}, {"range": [0, 600]}))
    (line,) = (path.get("d", "") for path in svg.iter("path") if path.get("class") == "l")
    low, high = (y for _, y in numbers(svg, "d")[2:4])
    assert re.match(rf"M(\d+) {low:.0f}V{high:.0f}$", line)


def test_bars_are_as_long_as_their_figures_and_stack() -> None:
    def bar(name: str, x: list[float]) -> dict[str, Any]:
        return {"type": "bar", "orientation": "h", "name": name, "meta": "best", "y": ["low", "high"], "x": x}

    drawn = layout({"range": [0, 100]}, {})
    svg = chart([bar("one", [10, 20]), bar("two", [40, 80])], drawn | {"barmode": "stack"})
    found = [path.get("d", "") for path in svg.iter("path") if path.get("class") == "b"][:2]
    ends = [[tuple(map(float, e)) for e in re.findall(r"M(\d+) \d+H(\d+)", d)] for d in found]
    (one_low, one_high), (two_low, two_high) = ends
    assert (one_low[1], one_high[1]) == (two_low[0], two_high[0])
    assert two_high[1] - two_high[0] == pytest.approx(4 * (one_high[1] - one_high[0]), abs=2)
    heights = [float(y) for y in re.findall(r"M\d+ (\d+)H", found[0])]
    assert heights[0] > heights[1]  # the first stands at the bottom


def test_names_are_text_and_never_markup() -> None:
    one = charts.time_against_size("t", [Series(NASTY, "best", (Point("N=1", 1, 8, 2, None, 5.0),))], "N")
    assert one is not None
    assert NASTY in texts(ElementTree.fromstring(one.still))


def test_every_chart_of_the_site_stays_inside_its_frame(built: Path) -> None:
    seen = 0
    for page in built.rglob("*.html"):
        for found in re.findall(r'<svg class="still".*?</svg>', page.read_text(encoding="utf-8")):
            svg = ElementTree.fromstring(found)
            height = float(svg.get("viewBox", "").split()[3])
            for d in (path.get("d", "") for path in svg.iter("path")):
                for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", d):
                    assert 0 <= float(x) <= WIDTH and 0 <= float(y) <= height, (page, d)
            seen += 1
    assert seen > 10


@pytest.mark.browser
def test_a_chart_is_there_without_javascript_and_on_paper(chromium: Any, built: Path) -> None:
    reader = Reader(chromium, built)
    boxes = (
        "return ['.still', '.plot'].map((s) => document.querySelector('.chart ' + s).getBoundingClientRect().height)"
    )
    reader.screen(1280, scripts=False)
    reader.open("op/rms_scale.html")
    reader.screen(1280)
    assert reader.js(boxes)[0] > 200
    reader.open("op/rms_scale.html")
    reader.draw_all()
    still, plot = reader.js(boxes)
    assert still == 0 < plot
    reader.window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    still, plot = reader.js(boxes)
    reader.window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert plot == 0 < still


def test_what_both_draw_is_the_same_figure() -> None:
    one = charts.time_against_size("t", [Series("ours", "best", (Point("N=1", 1, 8, 2, None, 5.0),))], "N")
    assert one is not None
    ticks = json.loads(one.json)["layout"]["yaxis"]["ticktext"]
    assert set(ticks) <= set(texts(ElementTree.fromstring(one.still)))
