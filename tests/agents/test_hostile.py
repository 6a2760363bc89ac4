"""Replies of a megabyte that are made to take long: each is read within a second."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from msbench.agents._extract import extract_kernel
from msbench.agents._plan import parse_plan
from msbench.agents._source import balanced, code_only, launcher_end, token_form
from msbench.errors import ReplyError
from msbench.model import Candidate
from msbench.spec import Precision

MB = 2**20
KERNEL = 'extern "C" cudaError_t scale(const scalar_t* x, scalar_t* y, cudaStream_t stream) { return cudaSuccess; }\n'

UNITS = (
    "a", " ", "\n", "'", '"', "`", "{", "}", "(", "<", ">", "/", "*", "#", ",", "0", "\\\\", "\\'", '\\"', 'R"(', 'R"a(', "/*",
    "//", "{ ", '{"', '{"a":', '{"a":[', '{"a":1,', "<code>", "</code>", "<think>", "</think>", "```\n", "```cuda\n", "~~~~", "> ",
    "scale (", "scale(", "scale ", "__global__ ", "__global__ void k(", "k<", "k <<<", "a.cu", "./-", "a'b", "&lt;", "#include \"a\"\n",
    "1'", "e+", "\ud800", "\x00", "é", "𝄞", "\t", "\r", "1.", "%", "[", "-", ".cu ", "f(){", "<file a",
)  # fmt: skip


def replies() -> dict[str, str]:
    found = {f"{unit!r} again and again": (unit * (MB // len(unit) + 1))[:MB] for unit in UNITS}
    found["a fence of blanks and a backtick"] = "```" + " " * MB + "`"
    found["a launch and blanks"] = "k" + " " * MB + "x<<"
    found["one line"] = "```cuda\n" + KERNEL + "// " + "x" * MB + "\n```"
    found["a long word before the kernel"] = "a" * MB + "\n```cuda\n" + KERNEL + "```"
    found["many raw strings"] = "".join(f'R"a{i}(' for i in range(MB // 8))
    found["many kernels"] = f"```cuda\n{KERNEL}```\n" * (MB // 130)
    found["many blocks"] = "```cuda\n__global__ void k() {}\n```\n" * (MB // 40) + f"```cuda\n{KERNEL}```"
    found["JSON that breaks late"] = '{"a":[' * 900 + "1," * (MB // 2) + "x"
    return found


@pytest.mark.parametrize("reply", list(replies().values()), ids=list(replies()))
def test_any_megabyte_is_read_within_a_second(reply: str) -> None:
    extract_s = _seconds(lambda: extract_kernel(reply, "scale", KERNEL))
    plan_s = _seconds(lambda: parse_plan(reply))
    assert extract_s < 1.0 and plan_s < 1.0, (extract_s, plan_s)


@pytest.mark.parametrize("unit", UNITS)
def test_any_source_is_tokenised_in_one_pass(unit: str) -> None:
    """Twice as much takes twice as long, not four times."""
    source = (unit * MB)[: MB // 4] + KERNEL
    took = _seconds(lambda: (code_only(source), balanced(source), launcher_end(source, "scale")))
    tokens = _seconds(lambda: token_form(Candidate("scale", Precision.FP32, source)))
    assert took < 0.5 and tokens < 2.0, (took, tokens)


def _seconds(call: object) -> float:
    begun = time.process_time()
    with suppress(ReplyError):
        call()  # type: ignore[operator]
    return time.process_time() - begun


def test_the_old_kernel_after_the_new_one_is_not_the_answer() -> None:
    new = KERNEL.replace("return cudaSuccess", "return cudaGetLastError()")
    reply = f"Here:\n```cuda\n{new}```\nIt was\n```cuda\n// as given\n{KERNEL}```\n"
    assert "cudaGetLastError" in extract_kernel(reply, "scale", KERNEL)
    assert "cudaGetLastError" not in extract_kernel(reply, "scale")
    assert extract_kernel(f"```cuda\n{KERNEL}```", "scale", KERNEL)
    tuned = KERNEL.replace("return", 'asm("one"); return')
    asked = f"```cuda\n{tuned.replace('one', 'two')}```\nbefore:\n```cuda\n{tuned}```"
    assert '"two"' in extract_kernel(asked, "scale", tuned)
