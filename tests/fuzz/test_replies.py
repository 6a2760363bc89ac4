"""Whatever a language model says: a kernel, a plan, or one of our own errors; soon."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from msbench.agents._extract import extract_kernel
from msbench.agents._plan import parse_plan
from msbench.agents._source import token_form
from msbench.errors import ReplyError
from msbench.model import Candidate, normalise
from msbench.spec import Precision

KERNEL = """#include <msbench.cuh>
__global__ void scale_kernel(const scalar_t* x) { x[0]; }
extern "C" cudaError_t scale(const scalar_t* x, cudaStream_t stream) { scale_kernel<<<1, 2>>>(x); return cudaGetLastError(); }
"""
PIECES = (
    KERNEL, KERNEL[:90], KERNEL.replace("<", "&lt;"), "```", "````", "~~~", "```cuda", "```json", "``` cpp kernel.cu", "> ```", "\n",
    "<think>", "</think>", "<code>", "</code>", "<![CDATA[", "]]>", '{"plan": "', '"predicted_speedup": 1e999', "{" * 40, "}" * 40, "[" * 40,
    '"', "'", "\\", "/*", "*/", "//", 'R"x(', ')x"', '#include "a.cuh"', "a.cuh", "<<<", ">>>", "\r", "\0", "\x00\xff", "\u2028", "🙂",
    '{"code": "```\\nextern"}', '{"plan": [1, {"a": null}], "hypothesis": {"x": NaN}}', "scale(", "extern \"C\"", "%s%n{}", "&#x110000;", "&amp;",
)  # fmt: skip

replies = st.one_of(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=30).map("".join),
    st.text(max_size=300),
    st.binary(max_size=300).map(lambda raw: raw.decode("utf-8", "replace")),
    st.tuples(st.sampled_from(PIECES), st.integers(1, 3000)).map(lambda pair: pair[0] * pair[1]),
)


@given(replies)
@example("{" * 100_000)
@example("[" * 100_000)
@example('{"plan":' * 20_000)
@example("/*" * 100_000)
@example("```\n" * 50_000)
@example("<code>" * 50_000)
@example("> " * 50_000 + "```")
@example(KERNEL * 400)
def test_a_reply_holds_a_kernel_or_is_refused(reply: str) -> None:
    try:
        found = extract_kernel(reply, "scale")
    except ReplyError as error:
        assert error.kind in ("empty", "truncated", "no_code", "no_launcher")
    else:
        assert found == normalise(found) and "scale" in found
        token_form(Candidate("scale", Precision.FP32, found))


@given(replies)
@example('{"plan": ' + "[" * 5000 + "]" * 5000 + "}")
@example('{"predicted_speedup": ' + "9" * 5000 + "}")
@example("{" + "-" * 100_000 + "1}")
@example("{{}}")  # to Python, a set of dictionaries
def test_every_reply_is_a_plan(reply: str) -> None:
    plan = parse_plan(reply)
    assert all(isinstance(text, str) for text in (plan.plan, plan.hypothesis, plan.bottleneck))
    assert plan.predicted_speedup is None or 0 < plan.predicted_speedup < 1e6


@given(replies)
def test_every_source_has_a_token_form(source: str) -> None:
    candidate = Candidate("scale", Precision.FP32, source)
    assert token_form(candidate) == token_form(Candidate("scale", Precision.FP32, candidate.source))
    assert len(candidate.id) == 32
