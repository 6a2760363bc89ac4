"""Two sources have the same token form exactly if they are the same program."""

from __future__ import annotations

import pytest

from msbench.agents._source import balanced, code_only, launcher_end, token_form
from msbench.model import Candidate
from msbench.spec import Precision

SOURCE = """\
#include <cstdint>
#define WIDTH 4
__global__ void k(float* x) { x[0] = 1'000.5f + 'a'; }  // a comment
extern "C" cudaError_t scale(float* x) { k<<<1, WIDTH>>>(x); return cudaGetLastError(); }
"""


def form(source: str) -> str:
    return token_form(Candidate("scale", Precision.FP32, source))


@pytest.mark.parametrize(
    "same",
    [
        SOURCE.replace("// a comment", "/* another\n comment */"),
        SOURCE.replace("{ ", "{\n\n    ").replace("  //", "//"),
        "// It is much faster now.\n" + SOURCE,
        SOURCE.replace("1, WIDTH", "1,WIDTH"),
        SOURCE.replace("#define WIDTH 4", "#define WIDTH \\\n  4"),
        SOURCE.replace("\n", "\r\n"),
    ],
)
def test_comments_and_layout_do_not_count(same: str) -> None:
    assert form(same) == form(SOURCE)


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace("WIDTH 4", "WIDTH 8"),
        SOURCE.replace("'a'", "'b'"),
        SOURCE.replace("x[0] = 1", "x [0] = + +1"),
        SOURCE.replace("#define WIDTH 4\n", "#define WIDTH 4 "),
        SOURCE.replace("x[0]", "// x[0]\n x[1]"),
        "// msbench: link cublas\n" + SOURCE,
    ],
)
def test_everything_else_does(other: str) -> None:
    assert form(other) != form(SOURCE)


def test_comment_marks_in_literals_are_no_comments() -> None:
    assert form(SOURCE.replace("'a'", '"//"')) != form(SOURCE.replace("'a'", '"/* */"'))
    assert code_only("f(\"//}\", '{'); // {") == "f(\"   \", ' ');     "
    assert balanced(code_only('f("{"); /* { */ R"x({)x";'))


def test_only_a_definition_is_a_launcher() -> None:
    assert launcher_end(code_only('extern "C" cudaError_t scale(float* x);'), "scale") is None
    assert launcher_end(code_only("int main() { return scale(x); }"), "scale") is None
    assert launcher_end(code_only("void scale_more(float*) {}"), "scale") is None
    assert launcher_end("e scale(int (*f)(int)) { if (a) { b(); } } int c;", "scale") == 42
