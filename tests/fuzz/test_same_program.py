"""A kernel whose text is changed without changing the program is judged as before: the cpu executor reads tokens, not lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msbench import emulator, operators
from msbench.emulator.lexer import Kind, tokens
from msbench.executors.cpu import CpuExecutor
from msbench.harness.evaluate import Checks, Plan, evaluate
from msbench.model import Candidate, Status
from msbench.operators import select_cases
from msbench.spec import Precision, Task

NAMES = ("vector_add", "rms_norm", "softmax")
WRONG = ("vector_add", "A[i]) +", "A[i]) -")
COMMENTS = (
    "/* k<<<1, 2>>>(x); */", "/* __shared__ float s[3]; */", '/* " */', "/* ' */", "/* // */", "/*)}]*/", "/* asm(\"bar.sync 0;\") */", " ", "\t",
)  # fmt: skip
LINES = ("\n", "\n\n", "// __global__ void k() {\n", "// \"'(\n", "// <<< \\\n still the comment\n")


@pytest.fixture(scope="module")
def executor() -> Iterator[CpuExecutor]:
    with CpuExecutor(emulator.find()) as made:
        yield made


def spread(source: str, data: st.DataObject) -> str:
    """The same program: comments and line ends before some of its words."""
    found = [token for token in tokens(source) if token.kind == Kind.WORD]
    text = source
    for token in sorted(
        data.draw(st.lists(st.sampled_from(found), min_size=1, max_size=12, unique=True)), key=lambda t: -t.start
    ):
        line = text[text.rfind("\n", 0, token.start) + 1 : token.start]
        plain = not token.macro and not re.match(r"\s*#", line) and not line.rstrip().endswith("\\")
        text = (
            text[: token.start]
            + data.draw(st.sampled_from(COMMENTS + LINES if plain else COMMENTS))
            + text[token.start :]
        )
    return text


@settings(max_examples=max(4, settings().max_examples // 25), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_layout_changes_no_verdict(executor: CpuExecutor, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from((*NAMES, WRONG[0] + " wrong")))
    op = operators.load(name.removesuffix(" wrong"))
    (source,) = [c.source for c in operators.versions(Task(op, Precision.FP32)) if c.label == "naive"]
    expected = Status.PASSED
    if name.endswith("wrong"):
        source, expected = source.replace(*WRONG[1:]), Status.CHECK_FAILED
    plan = Plan(select_cases(op, "smallest"), checks=Checks.QUICK)
    candidate = Candidate(op.name, Precision.FP32, spread(source, data))
    (result,) = evaluate(executor, Task(op, Precision.FP32), [candidate], plan, command="")
    assert result.status == expected, (result.failure, candidate.source)
