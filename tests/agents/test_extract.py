"""The kernel is found however a model wraps it, and a reply without one is a typed error."""

from __future__ import annotations

import html
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench.agents._extract import extract_kernel
from msbench.errors import ReplyError
from msbench.model import normalise

KERNEL = normalise("""
#include "msbench.cuh"
// One thread an element; { is no brace here, nor is ``` a fence.
template <int kWidth>
__global__ void scale_kernel(const scalar_t* x, scalar_t* y, float a, int64_t n) {
    const char* brace = "}";
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n && brace) y[i] = scalar_t(a * float(x[i]));
}

extern "C" size_t scale_workspace(float a, int64_t n) { return 0; }

extern "C" cudaError_t scale(const scalar_t* x, scalar_t* y, float a, int64_t n, void*, size_t, cudaStream_t stream) {
    scale_kernel<4><<<unsigned((n + 255) / 256), 256, 0, stream>>>(x, y, a, n);
    return cudaGetLastError();
}
""")
OLD = KERNEL.replace("255", "127")
INTRO = "Here is the improved kernel. It uses wider loads, see `scale_kernel`:\n\n"
OUTRO = "\n\nThis should be about 2x faster."


def fenced(code: str, info: str = "cuda", fence: str = "```", indent: str = "") -> str:
    return "".join(f"{indent}{line}\n" for line in [fence + info, *code.rstrip("\n").split("\n"), fence])


@pytest.mark.parametrize("info", ["cuda", "c++", "CPP", " cpp", "cu", "", "C", "cuda scale.cu", 'cpp title="scale.cu"'])
@pytest.mark.parametrize("fence", ["```", "~~~", "`````"])
@pytest.mark.parametrize("indent", ["", "   ", "\t"])
def test_fences_of_any_spelling(info: str, fence: str, indent: str) -> None:
    reply = INTRO + fenced(KERNEL, info, fence, indent) + OUTRO
    assert extract_kernel(reply, "scale") == KERNEL


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(KERNEL, id="bare"),
        pytest.param("Sure, this is it:\n\n" + KERNEL + OUTRO, id="bare, in prose"),
        pytest.param("```cuda\n" + KERNEL, id="fence left open after the whole code"),
        pytest.param("```cuda\n" + KERNEL + "\nIt is done.", id="fence left open before prose"),
        pytest.param(fenced(KERNEL).replace("\n", "\r\n"), id="CRLF"),
        pytest.param(fenced(OLD) + "becomes\n" + fenced(KERNEL), id="the old kernel is quoted first"),
        pytest.param("```cuda\n" + OLD + fenced(KERNEL), id="the first block is never closed"),
        pytest.param(fenced(KERNEL) + fenced("nvcc -O3 scale.cu", "bash"), id="a command after it"),
        pytest.param(fenced(KERNEL) + "Call it so:\n" + fenced("scale(x, y, 2.0f, n);", "cpp"), id="a call after it"),
        pytest.param(fenced('{"plan": "p"}', "json") + fenced(KERNEL), id="JSON before it"),
        pytest.param(fenced('extern "C" cudaError_t scale(float*);') + fenced(KERNEL), id="the prototype before it"),
        pytest.param("<think>\n" + fenced(OLD) + "no, better:\n</think>\n" + fenced(KERNEL), id="think"),
        pytest.param(fenced(KERNEL) + "\n</think>\n", id="a stray end of thinking"),
        pytest.param(fenced(KERNEL) + "\n<think>\nIs it right?", id="thinks on after the answer"),
        pytest.param(fenced(OLD) + "better:\n</think>\n" + fenced(KERNEL), id="think, opened by the chat template"),
        pytest.param("<THINKING>\nhm\n</THINKING>\n" + KERNEL, id="think, and bare code"),
        pytest.param(json.dumps({"thoughts": "wide loads", "code": KERNEL}), id="JSON"),
        pytest.param(json.dumps([{"files": [{"name": "scale.cu", "content": KERNEL}]}]), id="JSON, deep"),
        pytest.param(json.dumps({"answer": fenced(KERNEL)}), id="JSON around a fence"),
        pytest.param(fenced(json.dumps({"code": KERNEL}), "json"), id="JSON in a fence"),
        pytest.param('{"code": "' + KERNEL.replace("\\", "\\\\").replace('"', '\\"') + '"}', id="JSON, raw line ends"),
        pytest.param(fenced(html.escape(KERNEL)), id="HTML-escaped in a fence"),
        pytest.param("<pre><code>" + html.escape(KERNEL) + "</code></pre>", id="HTML"),
        pytest.param('<file name="scale.cu"><![CDATA[' + KERNEL + "]]></file>", id="a tag with CDATA"),
        pytest.param("".join(f"> {line}\n" for line in fenced(KERNEL).split("\n")), id="a quotation"),
    ],
)
def test_wrappings(reply: str) -> None:
    assert extract_kernel(reply, "scale") == KERNEL


def test_a_kernel_in_two_blocks_is_put_together() -> None:
    device, host = KERNEL.split('extern "C" size_t')
    reply = "First the kernel:\n" + fenced(device) + "and its launcher:\n" + fenced('extern "C" size_t' + host)
    source = extract_kernel(reply, "scale")
    assert source.index("__global__") < source.index("cudaError_t scale(")
    assert source.count("__global__") == 1


@pytest.mark.parametrize("named", ["**tile.cuh**\n```cuda\n", "```cuda tile.cuh\n", "```cuda\n// tile.cuh\n"])
def test_a_kernel_in_two_files_is_put_together(named: str) -> None:
    header = "#pragma once\n__device__ float twice(float v) { return 2 * v; }\n"
    main = '#include "tile.cuh"\n' + KERNEL
    source = extract_kernel(named + header + "```\n\n**scale.cu**\n" + fenced(main), "scale")
    assert '#include "tile.cuh"' not in source and "pragma" not in source
    assert source.index("twice") < source.index("__global__")
    assert '#include "msbench.cuh"' in source


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("I can't help with that.", "no_code"),
        ("Use float4 loads, and a block of 256; that is all.", "no_code"),
        (fenced("nvcc -O3 scale.cu", "bash"), "no_code"),
        (fenced('extern "C" cudaError_t scale(const scalar_t* x);'), "no_launcher"),
        (fenced(KERNEL.replace("cudaError_t scale(", "cudaError_t scale_v2(")), "no_launcher"),
        (KERNEL.replace("cudaError_t scale(", "cudaError_t scale_v2("), "no_launcher"),
        (fenced("// " + KERNEL.replace("\n", "\n// ") + "\nint x;\nextern int y;"), "no_launcher"),
        ("```cuda\n" + KERNEL[: KERNEL.index("return cudaGetLastError")], "truncated"),
        ("```cuda\n" + KERNEL[: KERNEL.index("extern")], "truncated"),
        (KERNEL[: KERNEL.index("return cudaGetLastError")], "truncated"),
        ("<think>\nLet me see:\n" + fenced(KERNEL), "truncated"),
        (json.dumps({"code": KERNEL})[:-40], "truncated"),
    ],
)
def test_no_kernel(reply: str, kind: str) -> None:
    with pytest.raises(ReplyError) as caught:
        extract_kernel(reply, "scale")
    assert caught.value.kind == kind


@given(
    before=st.text(st.characters(exclude_characters="`~<>{}\"'/#"), max_size=60),
    after=st.text(st.characters(exclude_characters="`~<>{}\"'/#"), max_size=60),
    fence=st.sampled_from(["```", "````", "~~~", "~~~~~"]),
    info=st.text(st.characters(categories=["L", "N"], include_characters="+ ."), max_size=10),
    other=st.sampled_from(["", fenced("int main() { return 0; }", "c"), fenced("make", "sh"), fenced(OLD)]),
    think=st.sampled_from(["", "<think>" + fenced(OLD) + "</think>", "hm\n</think>\n"]),
)
def test_any_prose_around_it(before: str, after: str, fence: str, info: str, other: str, think: str) -> None:
    reply = f"{think}{before}\n{other}{fenced(KERNEL, info, fence)}{after}"
    assert extract_kernel(reply, "scale") == KERNEL


_PIECES = [KERNEL, OLD, "```", "```cuda\n", "~~~", "<think>", "</think>", "{", "}", '"', "\n", '{"code": "', "/*", "//", "#if 0\n", "scale(", "&lt;", "<code>", "</code>"]  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(_PIECES), st.text(max_size=20)), max_size=12).map("".join))
def test_anything_else_is_a_kernel_or_a_typed_error(reply: str) -> None:
    try:
        source = extract_kernel(reply, "scale")
    except ReplyError as error:
        assert error.kind in {"empty", "truncated", "no_code", "no_launcher"}
    else:
        assert "scale" in source and source.endswith("\n")


@pytest.mark.parametrize(
    "word", ["<code>", "<think>", "scale(", "{", '{"a":', "```\n", "[[", "/*", "</think>", '"', "#if\n"]
)
def test_a_model_that_repeats_itself_does_not_hang_the_run(word: str) -> None:
    started = time.monotonic()
    for reply in (word * 20_000, fenced(word * 20_000)):
        with pytest.raises(ReplyError):
            extract_kernel(reply, "scale")
    assert time.monotonic() - started < 30


@given(st.integers(1, len(KERNEL) - 1))
def test_a_cut_reply_is_never_taken_for_whole(length: int) -> None:
    """Whatever is taken from a reply that was cut off compiles: the launcher's body is closed."""
    try:
        source = extract_kernel("```cuda\n" + KERNEL[:length], "scale")
    except ReplyError as error:
        assert error.kind in {"truncated", "no_code"}
    else:
        assert source == KERNEL
