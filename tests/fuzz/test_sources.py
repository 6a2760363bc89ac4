"""Whatever is in a .cu file: the cpu executor's rewriter makes C++ of it, or refuses it in our words; soon."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from msbench import resources
from msbench.emulator.lexer import tokens
from msbench.emulator.rewrite import rewrite
from msbench.errors import BuildError, UnsupportedError

KERNELS = tuple(
    p.read_text(encoding="utf-8") for p in sorted(resources.kernels_dir().glob("*/naive.cu")) + sorted(resources.kernels_dir().glob("*/best/*.cu"))
    + sorted(resources.kernels_dir().glob("*/best.cu"))
)  # fmt: skip
PIECES = (
    "<<<", ">>>", "<", ">", "(", ")", "[", "]", "{", "}", ";", ",", "::", "#", "##", "\\\n", "\n", '"', "'", "/*", "*/", "//", 'R"(', 'R"x(',
    "__shared__ ", "extern __shared__ float s[];", "__shared__ float a[32], *b;", "__global__ ", "__device__ ", "template <typename T> ", "asm volatile(",
    'asm("mov.u32 %0, %%laneid;" : "=r"(x));', 'asm("ld.global.f32 %9, [%1];" :: "f"(x));', "#define F(x) x\n", "#include <msbench.cuh>\n",
    '#include "msbench.cuh"\n', '#include "/etc/passwd"\n', '#include "../../../etc/passwd"\n', "cudaLaunchKernel((void*)k, ", "return ", "auto f = [=]{", "f<3>(x)", "k<a, b>",
    "\0", "é", "🙂", "\u2028", "\f", "1'000", "1e+", "0x", "u8", "L'", "operator", "struct S {", "namespace {", "else", "reinterpret_cast<", "...",
)  # fmt: skip


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A kernel of ours with pieces taken out, moved and put in; or a heap of pieces."""
    if draw(st.integers(0, 4)) == 0:
        return "".join(draw(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40)))
    text = draw(st.sampled_from(KERNELS))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 60)))
        new = draw(st.sampled_from(PIECES) | st.text(max_size=6) | st.just("") | st.just(text[start:end] * 2))
        text = text[:start] + new + text[end:]
    return text


@given(sources())
@example("<<<" * 5000)
@example("(" * 20_000)
@example("__shared__ " * 5000)
@example("__global__ void k" * 5000)
@example("{" * 5000 + "__shared__ int x;")
@example("asm(" * 5000)
@example("template <" * 5000 + "k<<<1,1>>>()")
@example('void f() {\n}>>>int x) {\n asm volatile("mbarrier" : "r"(x));\n}\n')
@example("a<" * 5000 + ">" * 5000 + "<<<1, 1>>>()")
def test_a_source_is_rewritten_or_refused(source: str) -> None:
    found = list(tokens(source))
    assert all(token.text == source[token.start : token.end] for token in found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    try:
        rewritten = rewrite(source, "kernel.cu", (resources.include_dir(),))
    except (BuildError, UnsupportedError) as error:
        assert str(error) and str(error).count("\n") == 0
        return
    assert rewritten.source.startswith('#line 1 "kernel.cu"\n')
    assert rewritten.source.count("\n") == source.count("\n") + 1  # so that messages name the kernel's own lines
    for name in rewritten.headers:
        assert not Path(name).is_absolute() and ".." not in Path(name).parts
