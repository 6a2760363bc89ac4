"""Tokens are found where they are, and never in comments, strings or skipped directives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.emulator.lexer import includes, tokens


def texts(source: str) -> list[str]:
    return [token.text for token in tokens(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a // <<< \\\n still <<<\nb", ["a", "b"]),
        ("a /* <<<\n */ b", ["a", "b"]),
        ('a "<<<\\" // x" b', ["a", '"<<<\\" // x"', "b"]),
        ('R"x(a)" <<< )x" b', ['R"x(a)" <<< )x"', "b"]),
        ("u8R\"(')\" '\\'' b", ['u8R"(\')"', "'\\''", "b"]),
        ("k<<<1'000, 0x1.8p-3f>>>()", ["k", "<<<", "1'000", ",", "0x1.8p-3f", ">", ">", ">", "(", ")"]),
        ("#if X <<<\n#include <a>\n a->b::c", ["a", "->", "b", "::", "c"]),
        ("#define L(k, n) k<<<n, \\\n 1>>>()\nx", ["k", "<<<", "n", ",", "1", ">", ">", ">", "(", ")", "x"]),
        ("x # y", ["x", "#", "y"]),
    ],
)
def test_tokens(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


def test_bodies_of_macros_are_marked() -> None:
    assert [(t.text, t.macro) for t in tokens("#define A b \\\n c\nd")] == [("b", True), ("c", True), ("d", False)]


def test_include_names() -> None:
    assert includes('#include <cub/cub.cuh>\n  # include "a/b.cuh" // x\nint include;') == ["cub/cub.cuh", "a/b.cuh"]


PIECES = st.sampled_from(
    ["<<<", ">>>", '"', "'", "\\", "\n", "/*", "*/", "//", "#define ", "#", 'R"(', ')"', "__shared__ ", "asm", "(", ")", "{", "}", " ", "1e+", "é", "@", "`"]
)  # fmt: skip


@given(st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=30).map("".join))
def test_any_text_is_cut_in_order_without_overlap(source: str) -> None:
    end = 0
    for token in tokens(source):
        assert token.start >= end
        assert token.text == source[token.start : token.end] != ""
        end = token.end
