"""The page about the studies is written from the database, the same every time."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from msbench.errors import MsbenchError
from msbench.model import Study
from msbench.store.store import Store
from msbench.study import page
from msbench.study.plot import Bar, intervals
from tests import factories as make
from tests.study.fakes import trial


def filled() -> Store:
    store = Store(":memory:")
    store.add_device(make.GPU)
    for kind in page.KINDS:
        store.add_trials(
            trial(kind, number, shift, duration_ns)
            for duration_ns in (3e6, 4e3)
            for number, shift in enumerate((0.001, -0.002, 0.007), 1)
        )
    return store


def test_the_page_has_every_study_with_its_criterion_table_and_plot(tmp_path: Path) -> None:
    with filled() as store:
        paths = page.write(store, tmp_path / "docs")
    assert [path.name for path in paths] == ["study.md", "study-same.svg", "study-slowdown.svg"]
    text = paths[0].read_text()
    assert "**The interval contains 1 in 4 of 6 pairs (66.7%, 95 % interval 22% to 96%;" in text
    assert "**The slower kernel was found in 6 of 6 pairs (100.0%, 95 % interval 54% to 100%;" in text
    assert (
        "The interval contains the true ratio in 2 of 3 for calls of at least 20 µs, and 2 of 3 for shorter calls."
        in text
    )
    assert f"{make.GPU.name}, driver {make.GPU.driver}" in text
    assert "by `msbench study`." in text
    rows = [line for line in text.splitlines() if line.startswith("| relu")]
    assert rows[0] == "| relu/fp32-4000 | N=1024 | 4 µs | 2 of 3 | 0.9980 to 1.0070 | 1.0000 | 0.50% | 4 | 0.30% |"
    assert [row.split(" | ")[2] for row in rows] == ["4 µs", "3 ms"] * 2
    for path in paths[1:]:
        assert f"]({path.name})" in text
        ElementTree.parse(path)


def test_the_same_database_gives_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        with filled() as store:
            contents.append([path.read_bytes() for path in page.write(store, tmp_path / name)])
    assert contents[0] == contents[1]


def test_disturbances_and_lost_pairs_are_said(tmp_path: Path) -> None:
    held_down = trial(Study.SAME, 1)
    held_down = trial(
        Study.SAME, 1, details={**held_down.details, "disturbed": "sitting 2 of 4: clocks were held down"}
    )
    lost = trial(Study.SAME, 2, held=False, outcome="it crashed", details={"task": "relu/fp32", "case": "N=1"})
    with Store(":memory:") as store:
        store.add_device(make.GPU)
        store.add_trials([held_down, lost])
        text = page.write(store, tmp_path)[0].read_text()
    assert "Disturbances detected: sitting 2 of 4: clocks were held down." in text
    assert "- relu/fp32-4000 N=1024 #2: it crashed" in text
    assert "slowed down" not in text


def test_no_study_is_said_in_one_sentence(tmp_path: Path) -> None:
    with Store(":memory:") as store, pytest.raises(MsbenchError, match=r"holds no study\. Record one on a GPU with"):
        page.write(store, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "docs").write_text("a file")
    with filled() as store, pytest.raises(MsbenchError, match=r"docs.* can't be written"):
        page.write(store, tmp_path / "docs")


def test_bars_lie_where_their_numbers_are() -> None:
    svg = ElementTree.fromstring(
        intervals("t", [Bar("a", 1.0, 0.99, 1.01, 1.0, True), Bar("a <b>", 1.03, 1.02, 1.04, 1.03, False)])
    )
    name = "{http://www.w3.org/2000/svg}"
    first, second = svg.findall(f"{name}circle")
    lines = {line.get("stroke"): line for line in svg.findall(f"{name}line") if line.get("stroke-width") == "2"}
    for circle, line in ((first, lines["#1f5fa8"]), (second, lines["#c0392b"])):
        middle = (float(line.get("y1", "")) + float(line.get("y2", ""))) / 2
        assert float(circle.get("cy", "")) == pytest.approx(middle, abs=0.1)
    grid = {text.text: float(text.get("y", "")) - 4 for text in svg.findall(f"{name}text") if "%" in (text.text or "")}
    assert float(first.get("cy", "")) == pytest.approx(grid["+0 %"], abs=0.1)
    one_percent = (grid["-1 %"] - grid["+4 %"]) / 5
    assert float(second.get("cy", "")) == pytest.approx(grid["+0 %"] - 3 * one_percent, abs=0.2)
    assert [text.text for text in svg.findall(f"{name}text") if "rotate" in text.get("transform", "")] == ["a", "a <b>"]
