"""Turns a CUDA file and the local headers it includes into C++ for the host. Line numbers stay what they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from msbench.emulator.kernels import KernelTable, kernels
from msbench.emulator.launches import launches
from msbench.emulator.lexer import includes
from msbench.emulator.ptx import inline_ptx
from msbench.emulator.shared import shared_variables
from msbench.emulator.syntax import Edit, SourceFile


@dataclass(frozen=True)
class Rewritten:
    """The kernel file's C++, and by include name that of every header that is not the compiler's own."""

    source: str
    headers: dict[str, str]


def rewrite(source: str, name: str, include_dirs: Sequence[Path] = ()) -> Rewritten:
    """Rewrite a file and whatever it includes from ``include_dirs``.

    Raises:
        BuildError: a launch makes no sense.
        UnsupportedError: a construct that the cpu executor can't run.
    """
    main = SourceFile(name, source)
    headers = [SourceFile(header, text) for header, text in _local_headers(source, include_dirs)]
    table = KernelTable([kernel for file in (main, *headers) for kernel in kernels(file)])
    return Rewritten(
        _line_marker(name) + _apply(main, table, ""),
        {h.name: _line_marker(h.name) + _apply(h, table, f"H{n}_") for n, h in enumerate(headers)},
    )


def _apply(file: SourceFile, table: KernelTable, prefix: str) -> str:
    edits = sorted(
        (*launches(file, table), *shared_variables(file, prefix), *inline_ptx(file)),
        key=lambda edit: (edit.start, edit.end),
    )
    return "".join(_replaced(file.text, edits))


def _replaced(text: str, edits: Sequence[Edit]) -> Iterator[str]:
    position = 0
    for edit in edits:
        if edit.start < position:
            continue  # inside of something that was replaced as a whole
        yield text[position : edit.start]
        yield edit.text
        position = edit.end
    yield text[position:]


def _line_marker(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{escaped}"\n'


def _local_headers(source: str, include_dirs: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Every header that the file reaches in ``include_dirs``, by the name that it is included by.

    Names that lead out of these folders are left to the compiler: what is given out here is rewritten and written again.
    """
    seen: set[str] = set()
    waiting = includes(source)
    while waiting:
        name = waiting.pop()
        if name in seen or "\0" in name or PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            continue
        seen.add(name)
        path = next((d / name for d in include_dirs if _is_file(d / name)), None)
        if path is None:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        yield name, text
        # A header's own neighbours are found by the same name where it lies in the folder's root.
        waiting += includes(text)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for any file
        return False
