"""Whatever is in a user's folder of operators: an operator, or one sentence that names file and field."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from msbench import operators, resources
from msbench.errors import MsbenchError, SpecError
from msbench.operators.validate import validate
from msbench.spec import Operator, Task
from tests import factories

SPECS = {
    f"my_{p.parent.name}": p.read_text(encoding="utf-8").replace(
        f'name="{p.parent.name}"', f'name="my_{p.parent.name}"'
    )
    for p in sorted(resources.kernels_dir().glob("*/spec.py"))
}
PIECES = (
    "(", ")", "[", "]", ",", "None", "-1", "0", "2**70", "1.5", "'x'", "''", "True", "lambda *a, **k: None", "lambda **k: k['N'] / 0", "float('nan')",
    "()", "{}", "object()", "OPERATOR", "import nothing_like_this", "raise SystemExit(3)", "raise BaseException", "1/0",
    "\n", "    ", "\t", "#", '"""', "\\", "\0", "é", "exec('(' * 500)", "def f(): f()\nf()", "yield", "import os; os._exit", "Dim('N', 5, 1)",
    "Array('y', ('N', 'M + '), output=True)", "'" + "(" * 400 + "'", "raise Exception('a\\nb' * 1000)", "type('E', (Exception,), {'__str__': lambda s: 1/0})()",
)  # fmt: skip


def loaded(raw: bytes, name: str) -> Operator | str:
    """The operator in a folder, or the sentence."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).mkdir()
        (Path(folder) / name / "spec.py").write_bytes(raw)
        try:
            return operators.load(name, folder)
        except SpecError as error:
            assert "spec.py" in str(error) and str(error).count("\n") == 0, str(error)
            return str(error)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, str]:
    """One of our specs, under a name of its own, with some of its text replaced."""
    name = draw(st.sampled_from(sorted(SPECS)))
    text = SPECS[name]
    for _ in range(draw(st.integers(1, 3))):
        words = [m.span() for m in re.finditer(r"\w+|[^\w\s]", text)]
        start, end = draw(st.sampled_from(words))
        text = text[:start] + draw(st.sampled_from(PIECES) | st.text(max_size=4) | st.just("")) + text[end:]
    return name, text


def harmless(text: str) -> bool:
    """Not one that a mutation made endless or that really ends this process."""
    return "_exit(" not in text and "while " not in text


@given(mutated())
def test_a_mutated_spec_is_an_operator_or_one_sentence(given_: tuple[str, str]) -> None:
    name, text = given_
    if harmless(text):
        found = loaded(text.encode("utf-8", "surrogatepass"), name)
        if isinstance(found, Operator):
            assert operators.header(Task(found, found.precisions[0]))
            with pytest.raises(MsbenchError, match=r"naive.cu is missing"):
                operators.versions(Task(found, found.precisions[0]))


@given(st.binary(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=8).map(lambda p: "\n".join(p).encode()))
@example(b"OPERATOR = 3")
@example(b"\xff\xfe")
@example(b"(" * 5000)
@example(b"x = " + b"-" * 100_000 + b"1")
@example(b"def f(): f()\nf()")
@example(b"raise SystemExit")
@example(b"raise BaseException('no')")
@example(b"class E(Exception):\n def __str__(self): return 1/0\nraise E")
@example(b"raise Exception('two\\nlines')")
@example(b"import msbench.spec\nOPERATOR = msbench.spec.Operator.__new__(msbench.spec.Operator)")
def test_any_file_is_an_operator_or_one_sentence(raw: bytes) -> None:
    if harmless(raw.decode("latin-1")):
        loaded(raw, "scale")


VALUES: tuple[Any, ...] = (
    None, 0, -1, 1, 2**70, 1.5, float("nan"), "", "x", "N", "é", "a" * 300, (), ("N",), ((),), [], {}, object(), print, lambda **k: k, True, b"x",
)  # fmt: skip


@given(st.data())
def test_any_field_of_any_type_is_valid_or_one_sentence(data: st.DataObject) -> None:
    op = factories.operator()
    value: Any = data.draw(st.sampled_from(VALUES) | st.lists(st.sampled_from(VALUES), max_size=3).map(tuple))
    field = data.draw(st.sampled_from(sorted(f.name for f in dataclasses.fields(op))))
    if data.draw(st.booleans()) and isinstance(getattr(op, field), tuple) and getattr(op, field):
        members = getattr(op, field)
        if dataclasses.is_dataclass(members[0]):
            inner = data.draw(st.sampled_from(sorted(f.name for f in dataclasses.fields(members[0]))))
            value = (dataclasses.replace(members[0], **{inner: value}), *members[1:])  # type: ignore[type-var]
    changed = dataclasses.replace(op, **{field: value})
    try:
        validate(changed, "scale")
    except SpecError as error:
        assert str(error).startswith("OPERATOR") and str(error).count("\n") == 0


@pytest.mark.parametrize("what", ["a folder", "nothing", "a file for the folder", "a dangling link"])
def test_what_is_missing_is_said(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "mine"
    if what == "a folder":
        (folder / "spec.py").mkdir(parents=True)
    elif what == "nothing":
        folder.mkdir()
    elif what == "a file for the folder":
        folder.write_text("")
    else:
        folder.mkdir()
        (folder / "spec.py").symlink_to("nowhere")
    with pytest.raises(MsbenchError):
        operators.load("mine", tmp_path)
