from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from msbench.figures.ratios import Ratio
from msbench.sitegen.plots import charts, summary_charts
from msbench.sitegen.plots.charts import Point, Series
from msbench.sitegen.plots.plot import Chart, to_json
from msbench.sitegen.plots.summary_charts import Speedups, Step
from msbench.sitegen.points import size_dimension


def point(
    n: int, time_ns: float, *, flops: int | None = None, interval: tuple[float, float] | None = None, like: str = "all"
) -> Point:
    return Point(
        f"N={n}", n, 8 * n, 2 * n if flops is None else flops, 900.0, time_ns, interval, "", "1 May 2026", like
    )


def series(role: str, *points: Point) -> Series:
    return Series(role, role, points)


def figure(chart: Chart | None) -> dict[str, Any]:
    assert chart is not None
    decoded: dict[str, Any] = json.loads(chart.json)
    return decoded


def trace(drawn: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (t for t in drawn["data"] if t.get("name") == name)
    return found


def roof_of(chart: Chart | None) -> list[tuple[float, float]]:
    roof = trace(figure(chart), "roof")
    return list(zip(roof["x"], roof["y"], strict=True))


def test_times_have_their_intervals_as_bars() -> None:
    drawn = figure(charts.time_against_size("t", [series("best", point(1024, 2000.0, interval=(1900.0, 2300.0)))], "N"))
    bars = trace(drawn, "best")["error_y"]
    assert (bars["array"], bars["arrayminus"]) == ([300.0], [100.0])
    assert drawn["layout"]["xaxis"]["type"] == drawn["layout"]["yaxis"]["type"] == "log"


def test_the_line_goes_through_the_geometric_mean_of_cases_of_one_size() -> None:
    drawn = figure(
        charts.time_against_size("t", [series("best", point(64, 1000.0), point(64, 4000.0), point(128, 9000.0))], "N")
    )
    line = next(t for t in drawn["data"] if t["mode"] == "lines" and t["meta"] == "best")
    assert (line["x"], line["y"]) == ([64, 128], [2000.0, 9000.0])


def test_lines_connect_cases_that_are_alike_and_no_others() -> None:
    points = point(64, 1000.0), point(100, 7000.0, like=""), point(128, 2000.0), point(256, 9000.0, like="skewed")
    drawn = figure(charts.time_against_size("t", [series("best", *points)], "N"))
    assert [t["x"] for t in drawn["data"] if t["mode"] == "lines"] == [[64, 128]]


def test_every_mark_says_when_it_was_measured() -> None:
    times = charts.time_against_size("t", [series("best", point(64, 1000.0))], "N")
    assert times is not None and times.head == ("case", "best, 1 May 2026")
    best = trace(figure(times), "best")
    assert (best["customdata"], best["text"]) == (["N=64"], ["1.00\u202fµs"])
    assert best["hovertemplate"].startswith("%{customdata}<br>%{text}<br>1 May 2026<extra>")
    days = replace(point(64, 1.0), day="1 May 2026"), replace(point(65, 1.0), day="2 May 2026")
    mixed = charts.time_against_size("t", [series("best", *days)], "N")
    assert mixed is not None and mixed.head == ("case", "best")
    assert mixed.rows[1] == ("N=65", "1.00\u202fns, 2 May 2026")
    assert trace(figure(mixed), "best")["text"][1] == "1.00\u202fns<br>2 May 2026"


def test_a_parent_and_a_child_are_seen_around_a_versions_own_marks() -> None:
    drawn = figure(
        charts.time_against_size("t", [series(role, point(64, 1e3)) for role in ("best", "parent", "child")], "N")
    )
    size = {role: trace(drawn, role)["marker"]["size"] for role in ("best", "parent", "child")}
    assert min(size["parent"], size["child"]) > size["best"]


def test_a_case_that_l2_bounds_has_a_mark_of_its_own_below_the_roof() -> None:
    one = replace(point(1 << 24, 90_000.0), bound_ns=60_000.0)
    chart = charts.roofline("r", [series("best", one)], bandwidth=4e12, peak=5e13, compute="fp32", launch_ns=900.0)
    assert trace(figure(chart), "a case’s bound by L2")["y"] == [pytest.approx(8 * 2**24 / 60e-6, rel=1e-5)]


def test_one_intensity_is_drawn_over_size_with_the_launch_floor() -> None:
    chart = charts.roofline(
        "r", [series("best", point(1 << 10, 2000.0), point(1 << 24, 50_000.0))], bandwidth=4e12, peak=5e13, compute="fp32", launch_ns=900.0
    )  # fmt: skip
    roof = roof_of(chart)
    assert roof[0][1] == pytest.approx(roof[0][0] / 900e-9, rel=1e-4)  # a small case can't beat a launch
    assert roof[-1][1] == pytest.approx(4e12)


def test_different_intensities_give_the_classic_roofline() -> None:
    points = point(1 << 20, 50_000.0), point(1 << 20, 50_000.0, flops=1 << 32)
    roof = roof_of(
        charts.roofline("r", [series("best", *points)], bandwidth=4e12, peak=5e13, compute="fp32", launch_ns=900.0)
    )
    assert roof[1] == (12.5, 5e13)  # the ridge: peak / bandwidth
    assert roof[0][1] == pytest.approx(4e12 * roof[0][0])


def test_no_arithmetic_at_all_has_a_roofline_too() -> None:
    chart = charts.roofline(
        "r",
        [series("best", point(1 << 20, 9000.0, flops=0))],
        bandwidth=4e12,
        peak=5e13,
        compute="fp32",
        launch_ns=900.0,
    )
    assert trace(figure(chart), "best")["y"] == [pytest.approx(8 * 2**20 / 9e-6, rel=1e-5)]


def test_bars_start_at_one_and_slowdowns_go_left() -> None:
    best, rival = Ratio(4.0, 3.9, 4.1, None), Ratio(0.5, 0.5, 0.5, None)
    drawn = figure(
        summary_charts.speedups("s", [Speedups("a fp32", best, rival, "1 May 2026"), Speedups("b fp32", None, None)])
    )
    assert trace(drawn, "fastest of ours")["hovertext"] == ["4.00× (3.90 to 4.10)<br>1 May 2026"]
    assert trace(drawn, "fastest of ours")["base"] == 1
    assert trace(drawn, "fastest of ours")["x"] == [3.0]
    assert trace(drawn, "fastest rival")["x"] == [-0.5]
    assert trace(drawn, "fastest of ours")["y"] == ["a fp32"]  # a task without figures has no bar


def test_progress_marks_every_step_and_keeps_the_best() -> None:
    def step(number: int, outcome: str, speedup: float | None = None) -> Step:
        return Step(
            number, outcome, Ratio(speedup, speedup - 0.1, speedup + 0.1, None) if speedup else None, "1 May 2026"
        )

    steps = [
        step(0, "baseline", 1.0),
        step(1, "failed"),
        step(2, "improved", 3.0),
        step(3, "slower", 3.5),
        step(4, "no_kernel"),
        step(5, "improved", 2.9),
    ]
    chart = summary_charts.progress("p", steps)
    drawn = figure(chart)
    assert trace(drawn, "best so far")["y"] == [1.0, 1.0, 3.0, 3.0, 3.0, 3.0]
    marked = sorted(x for t in drawn["data"] if t["mode"] == "markers" for x in t["x"])
    assert marked == [0, 1, 2, 3, 4, 5]
    assert chart is not None and chart.rows[3] == ("3", "slower", "3.50× (3.40 to 3.60)", "3.00×", "1 May 2026")


def empty() -> Iterator[Chart | None]:
    yield charts.time_against_size("t", [series("naive")], "N")
    yield charts.roofline("r", [], bandwidth=1.0, peak=1.0, compute="fp32", launch_ns=1.0)
    yield summary_charts.speedups("s", [])
    yield summary_charts.before_after("b", [], [], [], ("a", "b"))
    yield summary_charts.progress("p", [Step(0, "failed", None)])


def test_nothing_measured_is_no_chart() -> None:
    assert list(empty()) == [None] * 5


def test_a_label_with_markup_stays_text() -> None:
    name = '</script><b>&lt;"'
    chart = charts.time_against_size("t", [Series(name, "best", (point(64, 1000.0),))], "N")
    assert chart is not None and "</" not in chart.json
    assert '&lt;/script&gt;&lt;b&gt;&amp;lt;"' in {t.get("name") for t in figure(chart)["data"]}


@pytest.mark.parametrize("text", ["</script>", "</SCRIPT ", "<!-- <script>", "<Script"])
def test_a_figure_does_not_end_or_nest_its_script(text: str) -> None:
    drawn = to_json([{"type": "scatter", "x": [1], "y": [1], "text": [text]}], {})
    assert not re.search("<[/!s]", drawn, re.IGNORECASE)
    assert json.loads(drawn)["data"][0]["text"] == [text]


def test_a_page_has_what_traces_share_once() -> None:
    versions = [series(role, point(64, 1e3), point(128, 2e3)) for role in ("naive", "best")] + [
        series("child", point(64, 1e3))
    ]
    chart = charts.roofline("r", versions, bandwidth=4e12, peak=5e13, compute="fp32", launch_ns=900.0)
    assert chart is not None
    traces = {t["name"]: t for t in json.loads(chart.embedded)["data"]}
    assert traces["naive"]["customdata"] == ["N=64", "N=128"] and len(traces["naive"]["x"]) == 2
    assert traces["best"]["customdata"] == traces["best"]["x"] == 1
    assert traces["child"]["customdata"] == ["N=64"]


def test_a_dimension_that_a_case_lacks_or_that_is_0_is_no_size() -> None:
    assert size_dimension([{"N": 1}, {"N": 2}]) == "N"
    assert size_dimension([{"N": 1}, {"N": 2}, {}]) == "bytes"
    assert size_dimension([{"N": 1, "padding": 0}, {"N": 1, "padding": 1}]) == "bytes"
