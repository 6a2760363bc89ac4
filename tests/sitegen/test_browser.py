"""The site in a real browser, from file://: what a reader can do, and what must not happen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.reader import Reader

pytestmark = pytest.mark.browser

PAGES = (
    "index.html", "method.html", "how.html", "op/rms_scale.html", "op/tile_mul.html", "op/scale.html", "op/hostile.html", "op/cpu_only.html",
    "op/untouched.html", "run/5f0c1f0e7d.html", "run/0a77ab31c2.html", "run/------escape.html",
)  # fmt: skip


@pytest.fixture
def reader(chromium: Any, built: Path) -> Reader:
    found = Reader(chromium, built)
    found.screen(1280)
    found.open("index.html")
    found.js("localStorage.clear()")
    found.open("index.html")
    return found


@pytest.fixture(scope="session")
def version_page(built: Path) -> Callable[[str], str]:
    def find(title: str) -> str:
        found = (built / "version").glob("*.html")
        (page,) = (p for p in found if f"<title>{title}" in p.read_text(encoding="utf-8"))
        return f"version/{page.name}"

    return find


@pytest.mark.parametrize("width", [1280, 360])
def test_pages_open_without_complaints_network_or_sideways_scrolling(
    reader: Reader, width: int, version_page: Callable[[str], str]
) -> None:
    for page in (
        *PAGES,
        version_page("small blocks, "),
        version_page("grid stride, RMS scale"),
        version_page("inline ptx, "),
    ):
        reader.screen(width, dark=width == 360)
        reader.open(page)
        reader.draw_all()
        assert reader.complaints() == [], page
        assert {url.partition(":")[0] for url in reader.requests()} <= {"file", "data", "blob"}, page
        assert reader.js("return document.documentElement.scrollWidth <= innerWidth"), (
            f"{page} scrolls sideways at {width}"
        )
        assert reader.js("return document.querySelectorAll('h1').length") == 1, page


@pytest.mark.parametrize("width", [1280, 390])
def test_a_kernels_long_name_stays_inside_its_table(
    reader: Reader, width: int, version_page: Callable[[str], str]
) -> None:
    reader.screen(width)
    reader.open(version_page("cublas, Tile"))
    for unfolded in (False, True):
        reader.js("for (const e of document.querySelectorAll('#main details')) e.open = arguments[0]", unfolded)
        assert reader.js("return document.documentElement.scrollWidth <= innerWidth"), f"unfolded: {unfolded}"
    kernels = "[...document.querySelectorAll('[aria-label=Kernels] summary')]"
    assert reader.js(f"return {kernels}.map((e) => e.textContent)") == ["gemm::Kernel"] * 2


def test_a_long_command_takes_one_line_until_it_is_asked_for(
    reader: Reader, version_page: Callable[[str], str]
) -> None:
    command = "[...document.querySelectorAll('#main details')].at(-1)"
    reader.screen(390)
    reader.open(version_page("small blocks, "))
    reader.js(f"{command}.querySelector('code').textContent = 'msbench bench ' + 'an_operator '.repeat(40)")
    folded = reader.js(f"return {command}.offsetHeight")
    reader.js(f"{command}.open = true")
    assert folded < 40 < reader.js(f"return {command}.offsetHeight")


def test_charts_are_drawn_with_the_themes_colours(reader: Reader) -> None:
    colour = "getComputedStyle(document.querySelector('.chart .legendtext')).fill"
    reader.open("op/rms_scale.html")
    assert reader.draw_all() == 2
    light = reader.js(f"return {colour}")
    assert reader.js("return document.querySelectorAll('#time-fp32 .errorbar, #time-fp32 .yerror').length") > 0
    reader.js("document.querySelector('.theme').click()")
    reader.wait(f"{colour} !== {json.dumps(light)}")


def test_the_theme_follows_the_system_until_it_is_chosen(reader: Reader) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = reader.js(paper)
    reader.screen(1280, dark=True)
    dark = reader.js(paper)
    assert dark != light
    reader.js("document.querySelector('.theme').click()")
    assert reader.js(paper) == light
    reader.open("op/scale.html")
    assert reader.js(paper) == light  # remembered on the next page, against the system
    assert reader.js("return document.querySelector('.theme').textContent") == "Switch to dark"


def contrast(reader: Reader, selector: str) -> float:
    """The WCAG 2 contrast of an element's text with what is behind it."""
    return float(
        reader.js(
            """
            const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
            const light = (c) => { const [r, g, b] = rgb(c).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                                   return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
            const element = document.querySelector(arguments[0]);
            let behind = element;
            while (rgb(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
            const pair = [light(getComputedStyle(element).color), light(getComputedStyle(behind).backgroundColor)].sort();
            return (pair[1] + 0.05) / (pair[0] + 0.05);
            """,
            selector,
        )
    )


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_both_themes(reader: Reader, dark: bool) -> None:
    reader.screen(1280, dark=dark)
    reader.open("op/rms_scale.html")
    for selector in (
        "p.verdict",
        ".label",
        "td small",
        "th button",
        ".tag.bad",
        ".diff i",
        ".diff b",
        "a",
    ):
        assert contrast(reader, selector) >= 4.5, selector


def test_the_keyboard_reaches_what_matters(reader: Reader) -> None:
    from selenium.webdriver.common.keys import Keys

    reader.press(Keys.TAB)
    assert reader.js("return document.activeElement.className") == "skip"
    assert reader.js("return getComputedStyle(document.activeElement).outlineStyle") != "none"
    reader.press(Keys.ENTER)
    reader.press(Keys.TAB)
    assert reader.js("return document.getElementById('main').contains(document.activeElement)")

    reader.open("op/rms_scale.html")
    reached: set[str] = set()
    for _ in range(60):
        reader.press(Keys.TAB)
        reached.add(
            reader.js(
                "const e = document.activeElement; return e.tagName + '.' + (e.className || e.parentElement.className)"
            )
        )
    kinds = {name.split(".")[0] for name in reached}
    assert {"A", "BUTTON", "SUMMARY", "PRE"} <= kinds
    assert "BUTTON.theme" in reached and "DIV.box" in reached


def test_tabs_choose_the_precision_by_mouse_keyboard_and_address(reader: Reader) -> None:
    from selenium.webdriver.common.keys import Keys

    shown = "return ['fp32', 'bf16'].filter((id) => document.getElementById(id).offsetParent)"
    reader.open("op/scale.html")
    assert reader.js(shown) == ["fp32"]
    reader.js("document.querySelector('.tabs a[aria-selected=true]').focus()")
    reader.press(Keys.ARROW_RIGHT)
    assert reader.js(shown) == ["bf16"]
    assert reader.draw_all() == 2
    reader.open("op/scale.html#bf16-versions")
    reader.wait("!document.getElementById('fp32').offsetParent")
    assert reader.js(shown) == ["bf16"]
    assert 0 < reader.js("return document.getElementById('bf16-versions').getBoundingClientRect().top") < 400


def test_a_table_sorts_by_its_numbers_within_groups(reader: Reader) -> None:
    column = "return [...document.querySelectorAll('#main table.sortable')[0].querySelectorAll('tbody:first-of-type tr:not(.group)')].map((r) => r.cells[3].dataset.v)"
    button = "document.querySelectorAll('#main table.sortable')[0].querySelectorAll('th button')[3]"
    reader.js(f"{button}.click()")
    down = reader.js(column)
    assert [float(v) for v in down if v] == sorted((float(v) for v in down if v), reverse=True)
    assert down[-1] == ""  # what has no figure comes last
    reader.js(f"{button}.click()")
    up = reader.js(column)
    assert [float(v) for v in up if v] == sorted(float(v) for v in up if v)
    assert up[-1] == ""
    assert reader.js(f"return {button}.closest('th').getAttribute('aria-sort')") == "ascending"


def test_code_is_copied_without_line_numbers(reader: Reader, built: Path, version_page: Callable[[str], str]) -> None:
    page = version_page("small blocks, ")
    reader.open(page)
    reader.js(
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })"
    )
    reader.js("document.querySelector('button[data-copy=code]').click()")
    reader.wait("window.copied")
    file = reader.js("return document.querySelector('.source a[download]').getAttribute('href')")
    assert reader.js("return window.copied") == (built / page).parent.joinpath(file).read_text(encoding="utf-8")


def test_a_diff_stands_side_by_side_and_on_a_phone_in_one_column(
    reader: Reader, version_page: Callable[[str], str]
) -> None:
    place = """
        const box = (e) => e.getBoundingClientRect();
        const gone = document.querySelector('.diff del'), come = document.querySelector('.diff ins');
        return [box(gone).left, box(gone).top, box(come).left, box(come).top];
    """
    reader.open(version_page("small blocks, "))
    left, top, right, level = reader.js(place)
    assert right > left and abs(level - top) < 1
    reader.screen(360)
    left, top, right, level = reader.js(place)
    assert abs(right - left) < 1 and level > top


def test_everything_can_be_read_without_javascript(reader: Reader) -> None:
    reader.screen(1280, dark=True, scripts=False)
    reader.open("op/scale.html")
    reader.screen(1280, dark=True)
    assert reader.js("return ['fp32', 'bf16'].every((id) => document.getElementById(id).offsetParent)")
    assert reader.js("return document.querySelectorAll('figure details table').length") == 2  # times, of each precision
    assert reader.js("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 24)"
    assert not reader.js(
        "return [...document.querySelectorAll('button')].some((b) => b.offsetParent)"
    )  # none that does nothing
