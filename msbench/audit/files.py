"""Finds the files of a collection, and in each the function that makes it a kernel of a convention."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePath

from msbench.audit.abi import Abi, Symbol
from msbench.emulator import NotUnderstood, SourceFile
from msbench.errors import MsbenchError
from msbench.harness.build.toolchain import HEADERS

_NEAR = 0.75  # how much alike, for difflib, a misspelt name is to the right one
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?P<name>[^">\n]+)', re.MULTILINE)
_NOTED = re.compile(
    r"cuda(?:Malloc|Free|HostAlloc|HostRegister|Memcpy|StreamCreate)\w*|cuda(?:Device|Stream|Event|Thread)Synchronize"
)


@dataclass(frozen=True)
class Found:
    """One file: ``name`` is its path below the folder, ``sha256`` that of its bytes.

    Where it holds a function of the convention, ``symbol`` is that, ``count`` the number of its parameters, ``calls``
    what it calls that a launcher must not, and ``link`` the vendor libraries whose headers it includes; otherwise
    ``problem`` says why not, in one sentence.
    """

    name: str
    sha256: str
    source: str
    symbol: Symbol | None = None
    count: int = 0
    calls: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    problem: str = ""


def find(folder: Path, abi: Abi) -> list[Found]:
    """Every ``.cu`` file below ``folder``, by name.

    Raises:
        MsbenchError: there is no such folder, or no such file in it.
    """
    if not folder.is_dir():
        raise MsbenchError(f"{folder} is not a folder. Give the folder that holds the .cu files to audit.")
    paths = sorted(path for path in folder.rglob("*.cu") if path.is_file())
    if not paths:
        raise MsbenchError(f"There is no .cu file in {folder} or below it.")
    return [_read(path, path.relative_to(folder).as_posix(), abi) for path in paths]


def _read(path: Path, name: str, abi: Abi) -> Found:
    try:
        raw = path.read_bytes()
    except OSError as error:
        return Found(name, "", "", problem=f"It can't be read: {error.strerror}.")
    return identify(name, raw, abi)


def identify(name: str, raw: bytes, abi: Abi) -> Found:
    """What a file of these bytes is."""
    source = raw.decode("utf-8", errors="replace")
    sha256 = hashlib.sha256(raw).hexdigest()
    file = SourceFile(name, source)
    known = abi.symbols()
    try:
        defined = dict(_defined(file, known))
        if not defined:
            return Found(name, sha256, source, problem=_nothing_known(file, known, abi))
    except NotUnderstood as problem:
        return Found(name, sha256, source, problem=f"It is no C++: it has {problem}.")
    optimized = [text for text in defined if known[text].optimized]
    chosen = optimized or list(defined)
    if len(chosen) > 1:
        several = f"It defines {', '.join(sorted(chosen))}: which of them is meant can't be told. Leave one in it."
        return Found(name, sha256, source, problem=several)
    included = {found["name"] for found in _INCLUDE.finditer(source)}
    return Found(
        name,
        sha256,
        source,
        symbol=known[chosen[0]],
        count=defined[chosen[0]],
        calls=tuple(
            sorted({t.text for i, t in enumerate(file.tokens) if _NOTED.fullmatch(t.text) and file.is_(i + 1, "(")})
        ),
        link=tuple(library for library, header in HEADERS.items() if header in included),
    )


def _defined(file: SourceFile, known: Mapping[str, Symbol]) -> Iterator[tuple[str, int]]:
    """The known functions that a file defines with C linkage, with how many parameters each has."""
    declared: set[str] = set()
    for i in _named(file, known):
        text, closing = file.tokens[i].text, file.partner(i + 1)
        if _has_c_linkage(file, i):
            declared.add(text)
        if file.is_(closing + (2 if file.is_(closing + 1, "noexcept") else 1), "{") and text in declared:
            yield text, len(file.arguments(i + 1, closing))


def _named(file: SourceFile, known: Mapping[str, Symbol]) -> Iterator[int]:
    """Where a known function's name may be that of a function of the host, declared or defined."""
    for i, token in enumerate(file.tokens):
        if token.text in known and file.is_(i + 1, "(") and not token.macro and not file.in_function(i):
            before = range(file.statement_start(i), i)
            if not any(file.is_(k, "__global__", "__device__") for k in before):
                yield i


def _has_c_linkage(file: SourceFile, index: int) -> bool:
    start = file.statement_start(index)
    if file.is_(start, "extern") and file.tokens[start + 1].text == '"C"':
        return True
    brace = file.scope(index)
    return brace is not None and any(file.tokens[i].text == '"C"' for i in file.header(brace))


def _nothing_known(file: SourceFile, known: Mapping[str, Symbol], abi: Abi) -> str:
    near = [file.tokens[i].text for i in _named(file, known)]
    if near:
        return f"It has {near[0]}, but does not define it as {known[near[0]].prototype()}."
    nothing = f"It defines no function of the convention {abi.name}"
    meant = _meant(file, known)
    if meant is None:
        return f"{nothing}: `msbench show OPERATOR --abi {abi.name}` prints those of an operator."
    return f"{nothing}, such as {meant.prototype()}."


def _meant(file: SourceFile, known: Mapping[str, Symbol]) -> Symbol | None:
    """The function that a file most likely ought to have, by the names of its functions, or else by its own."""
    lower = {name.lower(): symbol for name, symbol in known.items()}
    for words in ([word.lower() for word in _function_names(file)], [PurePath(file.name).stem.lower()]):
        within = [name for name in lower if any(name in word for word in words)]
        if within:
            return lower[max(within, key=len)]
        for word in words:
            for name in get_close_matches(word, lower, n=1, cutoff=_NEAR):
                return lower[name]
    return None


def _function_names(file: SourceFile) -> Iterator[str]:
    """The functions that a file defines, on the host and on the device."""
    for i, token in enumerate(file.tokens):
        named = token.text.isidentifier() and not token.macro and not file.in_function(i)
        if named and file.is_(i + 1, "(") and file.is_(file.partner(i + 1) + 1, "{"):
            yield token.text
