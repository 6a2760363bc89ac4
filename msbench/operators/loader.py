"""Reads ``spec.py`` files, from ``kernels/`` and from a user's own folder of operators."""

from __future__ import annotations

import dataclasses
import shlex
import traceback
from pathlib import Path
from types import ModuleType

from msbench import resources
from msbench.errors import SpecError, UnknownNameError
from msbench.operators.validate import one_line, validate
from msbench.spec import Operator

SPEC = "spec.py"


def names(ops_dir: Path | str | None = None) -> tuple[str, ...]:
    """The operators there are, sorted.

    Raises:
        SpecError: ``ops_dir`` is no folder of operators, or one of them has the name of a built-in one.
    """
    return tuple(sorted(_folders(ops_dir)))


def load(name: str, ops_dir: Path | str | None = None) -> Operator:
    """The operator ``name``, validated, one of msbench's own or of those in ``ops_dir``.

    Raises:
        UnknownNameError: there is no such operator.
        SpecError: its spec is wrong; the file and the field are named.
    """
    folders = _folders(ops_dir)
    if name not in folders:
        hint = "" if ops_dir else "If it is one of your own, give the folder that holds it with --ops-dir."
        raise UnknownNameError("operator", name, tuple(sorted(folders)), hint, "`msbench ops` lists them.")
    return _load(folders[name])


def load_all(ops_dir: Path | str | None = None) -> dict[str, Operator]:
    """Every operator by name, sorted.

    Raises:
        SpecError: a spec is wrong; the file and the field are named.
    """
    folders = _folders(ops_dir)
    return {name: _load(folders[name]) for name in sorted(folders)}


def _folders(ops_dir: Path | str | None) -> dict[str, Path]:
    built_in = _folders_in(resources.kernels_dir())
    if ops_dir is None:
        return built_in
    root = Path(ops_dir)
    if not root.is_dir():
        raise SpecError(f"{root} is no folder. Give one that holds <operator>/{SPEC}; `msbench new-op` makes one.")
    if (root / SPEC).is_file():
        raise SpecError(f"{root} is an operator's own folder. Give the one that holds it: --ops-dir {_parent(root)}")
    own = _folders_in(root)
    for name, folder in own.items():
        if name in built_in and folder.resolve() != built_in[name].resolve():
            raise SpecError(
                f"{folder / SPEC}: {taken(name)} Rename the folder, OPERATOR.name and the launchers in its .cu files."
            )
    return built_in | own


def _folders_in(root: Path) -> dict[str, Path]:
    return {spec.parent.name: spec.parent for spec in root.glob(f"*/{SPEC}")}


def _parent(folder: Path) -> str:
    return shlex.quote(str(folder.resolve().parent))


def taken(name: str) -> str:
    """Why an operator of one's own can't have the name of a built-in one, by which results are stored."""
    return f"msbench has an operator {name!r} of its own, and their results would mix."


def _load(folder: Path) -> Operator:
    path = folder / SPEC
    module = execute(path)
    if not hasattr(module, "OPERATOR"):
        raise SpecError(f"{path}: there is no OPERATOR. Declare one: OPERATOR = Operator(name={folder.name!r}, …).")
    op = module.OPERATOR
    if not isinstance(op, Operator):
        raise SpecError(f"{path}: OPERATOR is {type(op).__name__}, not msbench.spec.Operator.")
    try:
        validate(op, folder.name)
    except SpecError as problem:
        raise SpecError(f"{path}: {problem}") from None
    return dataclasses.replace(op, folder=str(folder.resolve()))


def execute(path: Path) -> ModuleType:
    """Executes an operator's Python file as a module of its own: sys.path and sys.modules stay as they are, and no .pyc can
    go stale.

    Raises:
        SpecError: it failed; the file and the line are named.
    """
    module = ModuleType(f"msbench_spec_{path.parent.name}")
    module.__file__ = str(path)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a stranger's file: SystemExit and what it derives itself, too
        raise SpecError(f"{path}{_line(error, path)}: {type(error).__name__}: {one_line(error)}") from error
    return module


def place(op: Operator, error: BaseException | None = None) -> str:
    """The file that declares ``op``, with the last line of it that led to ``error``: ``"/home/me/ops/my_op/spec.py:12"``."""
    path = Path(op.folder or op.name) / SPEC
    return f"{path}{_called_from(error, path)}" if error else str(path)


def _line(error: BaseException, path: Path) -> str:
    """``":12"``: the last line of the spec itself that led to the error."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}" if error.lineno else ""
    return _called_from(error, path)


def _called_from(error: BaseException, path: Path) -> str:
    here = path.resolve()  # a frame has the path as it was given, an operator's folder is absolute
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == here]
    return f":{lines[-1]}" if lines else ""
