"""What makes a figure stale, and what does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from msbench.harness import digest as digests
from msbench.harness.digest import cpp_code, harness_digest, python_code
from tests.harness.fakes import OPERATOR

PYTHON = 'LIMIT = 2\n"""Of something."""\n\ndef double(x):\n    """Twice."""\n    return 2 * x  # exact\n'
CPP = 'int half(int x) {\n    return x / 2;  // rounds down\n}\nconst char* text = "// kept";\n'


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        (PYTHON, 'LIMIT = 2\ndef double(x):\n    """Other words."""\n\n    return 2 * x\n', True),
        (PYTHON, PYTHON.replace("LIMIT = 2", "LIMIT = 3"), False),
        (PYTHON, PYTHON.replace("2 * x", "2 + x"), False),
    ],
)
def test_python_counts_without_comments_and_docstrings(text: str, other: str, same: bool) -> None:
    assert (python_code(text) == python_code(other)) is same


def test_every_release_of_python_tells_the_same_of_a_module() -> None:
    told = "Module(body=[FunctionDef(name='f',args=arguments(args=[arg(arg='x')]),body=[Return(value=Name(id='x',ctx=Load()))])])"
    assert python_code("def f(x):\n    return x\n") == told


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ('int half(int x)\n{ return x / 2; /* down */ } const char* text = "// kept";', True),
        (CPP.replace("x / 2", "x / 3"), False),
        (CPP.replace("// kept", "// lost"), False),
    ],
)
def test_cpp_counts_without_comments_and_space(other: str, same: bool) -> None:
    assert (cpp_code(CPP) == cpp_code(other)) is same


def test_a_loosened_bound_makes_another_digest_and_a_comment_does_not(tmp_path: Path) -> None:
    spec = tmp_path / "spec.py"
    operator = replace(OPERATOR, folder=str(tmp_path))
    spec.write_text("BOUND = 1\n")
    before = harness_digest(operator)
    spec.write_text("BOUND = 1  # an ulp\n")
    assert harness_digest(operator) == before
    spec.write_text("BOUND = 2\n")
    assert harness_digest(operator) != before
    assert harness_digest() == harness_digest()


def test_when_and_where_things_are_done_makes_no_other_figure() -> None:
    counted = {str(file.relative_to(digests._PACKAGE)) for file in digests._files(digests._PACKAGE / "harness")}
    assert "harness/measuring.py" in counted and "harness/check/compare.py" in counted
    assert not any(name.startswith("harness/batch/") for name in counted)


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"cut off"])
def test_what_is_kept_of_the_sources_is_made_anew_where_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    monkeypatch.setenv("MSBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(digests, "_code", cache(digests._code.__wrapped__))
    told = harness_digest()
    [kept] = (tmp_path / "digests").iterdir()
    assert kept.read_text() == told
    kept.write_bytes(damage)
    monkeypatch.setattr(digests, "_code", cache(digests._code.__wrapped__))
    assert harness_digest() == told == kept.read_text()
