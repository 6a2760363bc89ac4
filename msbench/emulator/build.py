"""Compiles a CUDA file for the host: rewrite, g++, a shared library that runs its kernels on fibers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msbench.emulator import host_compiler
from msbench.emulator.host_compiler import INCLUDE_DIR, HostCompiler, Prepared, work_folder
from msbench.emulator.rewrite import Rewritten, rewrite
from msbench.emulator.unsupported import unsupported_construct
from msbench.errors import BuildError, UnsupportedError
from msbench.limits import Ended
from msbench.model import digest
from msbench.resources import cache_dir

_OWN_CODE = re.compile(r"(?:::)?msbench_cpu::")
_KEPT = ("kernel.so", "facts.json")
"""A build's files; the last one says that the others are whole."""


@dataclass(frozen=True)
class Built:
    """A library that exports what the source exports, and msbench_cpu_configure and msbench_cpu_failure."""

    id: str
    library: Path
    toolchain: str
    flags: tuple[str, ...]
    seconds: float
    cached: bool
    log: str


def build(
    source: str,
    name: str,
    *,
    include_dirs: Sequence[Path] = (),
    preinclude: str = "",
    sanitize: bool = False,
    time_limit_s: float | None = None,
    compiler: HostCompiler | None = None,
) -> Built:
    """Compile one file. ``name`` is what messages call it; ``preinclude`` is a header's text, read before its first line.

    Kept in the cache by the hash of everything that goes in. Safe to call from several threads and processes at once.

    Raises:
        BuildError: the compiler refuses it; ``log`` has the kernel's own file name and line numbers.
        UnsupportedError: it uses something that the cpu executor can't run, which the message names.
        ToolchainError: there is no g++ that works.
    """
    compiler = compiler or host_compiler.find()
    flags = (*compiler.flags(sanitize), "-fvisibility=hidden")
    source = source.removeprefix("\ufeff")  # nvcc skips a byte order mark; g++ does only in front, where ours comes
    rewritten = rewrite(source, name, include_dirs)
    prepared = compiler.prepared(sanitize)
    header_parts = [part for item in sorted(rewritten.headers.items()) for part in item]
    build_id = digest("cpu", prepared.key, name, source, preinclude, rewritten.source, *header_parts, *flags)
    kept = cache_dir() / "emulator" / "builds" / build_id
    if all((kept / file).is_file() for file in _KEPT):
        return _built(build_id, kept, compiler, flags, cached=True)
    started = time.monotonic()
    with work_folder() as work:
        (work / Path(name).name).write_text(source, encoding="utf-8")  # g++ quotes it in its messages
        _lay_out(work, Path(name).name, rewritten, preinclude)
        ended = Ended(0, "")
        said = ""
        for arguments in _steps(flags, Path(name).name, prepared, include_dirs):
            ended = compiler.run(arguments, work, time_limit_s)
            said += ended.said
            if ended.code or ended.limit:
                break
        log = _clean(said)
        if ended.limit:
            raise BuildError(ended.limit, log, ended.kind)
        if ended.code != 0:
            if construct := unsupported_construct(log):
                raise UnsupportedError(f"The cpu executor can't run this kernel: it uses {construct}.")
            raise BuildError(_first_error(log), log)
        facts = {"seconds": time.monotonic() - started, "log": log}
        (work / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        kept.mkdir(parents=True, exist_ok=True)
        for file in _KEPT:
            (work / file).replace(kept / file)
    return _built(build_id, kept, compiler, flags, cached=False)


def _built(build_id: str, kept: Path, compiler: HostCompiler, flags: tuple[str, ...], cached: bool) -> Built:
    facts = json.loads((kept / "facts.json").read_text(encoding="utf-8"))
    return Built(
        id=build_id,
        library=kept / "kernel.so",
        toolchain=f"g++ {compiler.version}",
        flags=flags,
        seconds=facts["seconds"],
        cached=cached,
        log=facts["log"],
    )


def _lay_out(work: Path, file_name: str, rewritten: Rewritten, preinclude: str) -> None:
    """Write what the compiler reads."""
    for folder in ("rewritten", "headers"):
        (work / folder).mkdir()
    (work / "rewritten" / file_name).write_text(rewritten.source, encoding="utf-8")
    (work / "preinclude.h").write_text(preinclude, encoding="utf-8")
    for header, text in rewritten.headers.items():
        path = work / "headers" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _steps(
    flags: Sequence[str], file_name: str, prepared: Prepared, include_dirs: Sequence[Path]
) -> Iterator[list[str]]:
    """g++'s arguments, one call after the other: compile, link."""
    yield [
        *flags,
        *("-include", str(prepared.prefix), "-include", "preinclude.h"),
        *("-I", "headers", "-isystem", str(INCLUDE_DIR)),
        *(part for d in include_dirs for part in ("-I", str(d))),
        *("-x", "c++", "-c", f"rewritten/{file_name}", "-o", "kernel.o"),
    ]
    yield [
        *flags,
        *("kernel.o", *map(str, prepared.runtime)),
        *("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-lpthread", "-o", "kernel.so"),
    ]


def _clean(said: str) -> str:
    """Without the names of temporary files and of this package's own functions."""
    lines = [line.rstrip() for line in said.splitlines()]
    lines = [re.sub(r"^/\S*?/ld: \S+?\.o: ", "ld: ", line) for line in lines]
    return "\n".join(_OWN_CODE.sub("", line) for line in lines if line)


def _first_error(log: str) -> str:
    lines = log.splitlines()
    return next(
        (line for line in lines if "error:" in line or "undefined reference" in line),
        lines[0] if lines else "g++ failed.",
    )
