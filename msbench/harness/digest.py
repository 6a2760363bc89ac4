"""The hash that shows when a figure is stale: of the code that makes figures and verdicts, and of the operator's spec.

Comments, docstrings, whitespace and file names do not count, since they change no figure.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from msbench import lexemes, resources
from msbench.lexemes import code
from msbench.model import digest
from msbench.spec import Operator

_PACKAGE = Path(__file__).resolve().parent.parent
_PARTS = ("harness", "gpu", "executors", "emulator", "statistics.py", "roofline.py")
_NOT_OF_A_FIGURE = _PACKAGE / "harness" / "batch"  # which says when, and in which process, a thing is done
_SPEC_PARTS = ("arrays.py", "bounds.py", "weighted.py", "operators")


def harness_digest(operator: Operator | None = None) -> str:
    """The harness's digest; with ``operator``, also of its spec and the modules specs use."""
    if operator is None:
        return _code(_PARTS)
    spec = Path(operator.folder, "spec.py")
    own = python_code(spec.read_text("utf-8")) if operator.folder and spec.is_file() else ""
    return digest(_code(_PARTS), _code(_SPEC_PARTS), own)


@cache
def _code(parts: tuple[str, ...]) -> str:
    """Kept beside the builds by what the files hold: parsing them takes most of a second."""
    sources = [(file.suffix, file.read_text("utf-8")) for part in parts for file in _files(_PACKAGE / part)]
    parsers = [Path(module).read_text("utf-8") for module in (__file__, lexemes.__file__)]
    key = digest("code", sys.version, *parsers, *sorted(suffix + text for suffix, text in sources))
    kept = resources.cache_dir() / "digests" / key
    with suppress(OSError, UnicodeDecodeError):
        if len(known := kept.read_text("ascii")) == len(key):
            return known
    made = digest(*sorted(python_code(text) if suffix == ".py" else cpp_code(text) for suffix, text in sources))
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        whole = kept.with_name(f"{key}.{os.getpid()}")
        whole.write_text(made, "ascii")
        whole.replace(kept)
    return made


def _files(path: Path) -> Iterator[Path]:
    found = [path] if path.is_file() else path.rglob("*")
    return (
        file for file in found if file.is_file() and file.suffix != ".pyc" and not file.is_relative_to(_NOT_OF_A_FIGURE)
    )


def python_code(text: str) -> str:
    """A module's syntax tree, without docstrings and positions; the same from every release of Python that can read it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return _told(tree)


def _told(node: object) -> str:
    """Like ``ast.dump``, but without empty fields: releases differ in those (``type_params`` came with Python 3.12)."""
    if isinstance(node, ast.AST):
        fields = (
            f"{name}={_told(value)}" for name, value in ast.iter_fields(node) if value is not None and value != []
        )
        return f"{type(node).__name__}({','.join(fields)})"
    return f"[{','.join(map(_told, node))}]" if isinstance(node, list) else repr(node)


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
