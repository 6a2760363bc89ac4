"""Highlighting and differences: nothing may be lost, and nothing may get out of its page."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from msbench.sitegen import highlight
from msbench.sitegen.diff import CONTEXT, Diff, diff

PIECES = [
    "int i = 0;",
    "/* a",
    "b */",
    "// c",
    '"<b>&',
    "#define X 1",
    "",
    "    return x;",
    "</script>",
    "\tfor (;;) {",
    "}",
]
SOURCES = st.lists(st.sampled_from(PIECES), max_size=40).map(lambda lines: "\n".join(lines) + "\n")


def text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def side(compared: Diff, name: str) -> list[str]:
    return [text(line.html) for block in compared.blocks for line in getattr(block, name)]


@given(SOURCES)
def test_highlighted_code_says_what_the_source_says(source: str) -> None:
    assert "\n".join(text(highlight.html(line)) for line in highlight.lines(source)) == source.removesuffix("\n")


@given(SOURCES, st.data())
def test_marks_change_nothing_but_the_markup(source: str, data: st.DataObject) -> None:
    for line in highlight.lines(source):
        length = len(highlight.text(line))
        low = data.draw(st.integers(0, length))
        high = data.draw(st.integers(low, length))
        marked = highlight.html(line, [(low, high)])
        assert text(marked) == highlight.text(line)
        assert "".join(text(m) for m in re.findall(r"<mark>(.*?)</mark>", marked)) == highlight.text(line)[low:high]


def test_neighbours_of_one_colour_are_one_element() -> None:
    assert highlight.code('extern "C" static const int x = 1;') == (
        "<span><b>extern</b> <u>&#34;C&#34;</u> <b>static const int</b> x = 1;</span>"
    )


def test_a_comment_of_several_lines_is_a_comment_on_each() -> None:
    assert all("<i>" in highlight.html(line) for line in highlight.lines("/* one\ntwo\nthree */"))


def test_a_message_shows_its_code_as_code_and_its_markup_as_text() -> None:
    said = highlight.prose("Try <b>this</b>:\n\n```cuda\nint x = 1;\n```\nDone. ```not a fence```")
    assert "&lt;b&gt;this&lt;/b&gt;" in said
    assert "<b>int</b>" in said
    assert said.count("<pre") == 1
    assert "not a fence" in said


def test_code_that_has_a_page_is_linked_and_not_repeated() -> None:
    link = Markup('The source of <a href="x">naive</a>')
    said = highlight.prose(
        "First:\n```cuda\nint x = 1;\nint y;\n```\nthen\n```cuda\nint z;\n```\nend", {"int x = 1;\nint y;": link}
    )
    assert '<p class="elsewhere">The source of <a href="x">naive</a>, 2 lines.</p>' in said
    assert said.count("<pre") == 1
    assert "int x" not in text(said)
    assert "then" in text(said)
    assert text(said).endswith("end")


def test_a_fence_that_never_closes_keeps_all_its_text() -> None:
    assert "int truncated" in text(highlight.prose("```cpp\nint truncated"))


@given(SOURCES, SOURCES)
def test_each_side_of_a_diff_is_its_source(before: str, after: str) -> None:
    compared = diff(before, after)
    trimmed = [s.rstrip("\n").split("\n") if s.strip("\n") else [] for s in (before, after)]
    for name, lines in zip(("left", "right"), trimmed, strict=True):
        shown = side(compared, name)
        assert [line.rstrip() for line in shown] == [line.rstrip() for line in lines][: len(shown)]
        assert not any(line.strip() for line in lines[len(shown) :])
    assert compared.added == sum(line.changed for block in compared.blocks for line in block.right)
    assert compared.removed == sum(line.changed for block in compared.blocks for line in block.left)


def test_changed_characters_are_marked_and_no_others() -> None:
    (block,) = diff("int threads = 256;", "int threads = 128;").blocks
    marked = [
        [text(mark) for mark in re.findall(r"<mark>(.*?)</mark>", line.html)] for line in (*block.left, *block.right)
    ]
    assert marked == [["256"], ["128"]]


def test_lines_without_likeness_are_not_marked() -> None:
    assert all("<mark>" not in line.html for block in diff("alpha();", "return 7;").blocks for line in block.left)


def test_what_is_far_from_a_change_is_folded() -> None:
    lines = [f"line({i});" for i in range(60)]
    changed = [*lines[:30], "other();", *lines[31:]]
    kinds = [(block.kind, len(block.left)) for block in diff("\n".join(lines), "\n".join(changed)).blocks]
    assert kinds == [("folded", 27), ("equal", CONTEXT), ("change", 1), ("equal", CONTEXT), ("folded", 26)]


def test_a_source_is_the_same_as_itself() -> None:
    assert diff("a;\nb;\n", "a;  \r\nb;").same
