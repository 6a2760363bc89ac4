"""The hash that shows when a figure is stale: of the code that makes figures and verdicts, and of the operator's spec.

Comments, docstrings, whitespace and file names do not count, since they change no figure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msbench.lexemes import code
from msbench.model import digest
from msbench.spec import Operator

_PACKAGE = Path(__file__).resolve().parent.parent
_PARTS = ("harness", "gpu", "executors", "emulator", "statistics.py", "roofline.py")
_SPEC_PARTS = ("bounds.py", "operators")


def harness_digest(operator: Operator | None = None) -> str:
    """The harness's digest; with ``operator``, also of its spec and the modules specs use."""
    if operator is None:
        return _code(_PARTS)
    spec = Path(operator.folder, "spec.py")
    own = python_code(spec.read_text("utf-8")) if operator.folder and spec.is_file() else ""
    return digest(_code(_PARTS), _code(_SPEC_PARTS), own)


@cache
def _code(parts: tuple[str, ...]) -> str:
    return digest(*sorted(text for part in parts for text in _texts(_PACKAGE / part)))


def _texts(path: Path) -> Iterator[str]:
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.suffix == ".py":
            yield python_code(file.read_text("utf-8"))
        elif file.is_file() and file.suffix != ".pyc":
            yield cpp_code(file.read_text("utf-8"))


def python_code(text: str) -> str:
    """A module's syntax tree, without docstrings and positions."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    """Whether it is an unused string: a docstring, or one that documents an attribute."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def cpp_code(text: str) -> str:
    """The tokens of a C++ source, one space apart."""
    return " ".join(found[0] for found in code(text))
