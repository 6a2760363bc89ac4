"""Compiles a CUDA file for the host: rewrite, g++, a shared library that runs its kernels on fibers.

The kernel's own object is kept beside the library, for who wants to know what it calls.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msbench.emulator import host_compiler
from msbench.emulator.host_compiler import INCLUDE_DIR, HostCompiler, work_folder
from msbench.emulator.rewrite import rewrite
from msbench.emulator.unsupported import unsupported_construct
from msbench.errors import BuildError, UnsupportedError
from msbench.model import digest
from msbench.resources import cache_dir

_OWN_CODE = re.compile(r"::msbench_cpu::|msbench_cpu::")


@dataclass(frozen=True)
class Built:
    """A library that exports what the source exports, and msbench_cpu_configure and msbench_cpu_failure.

    ``object`` is the source alone, before it was linked with the emulator's runtime.
    """

    id: str
    library: Path
    object: Path
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
    rewritten = rewrite(source, name, include_dirs)
    prepared = compiler.prepared(sanitize)
    header_parts = [part for item in sorted(rewritten.headers.items()) for part in item]
    build_id = digest("cpu", prepared.key, name, source, preinclude, rewritten.source, *header_parts, *flags)
    kept = cache_dir() / "emulator" / "builds" / build_id
    library, alone, facts = kept / "kernel.so", kept / "kernel.o", kept / "facts.json"
    toolchain = f"g++ {compiler.version}"
    if library.is_file() and alone.is_file() and facts.is_file():
        known = json.loads(facts.read_text(encoding="utf-8"))
        return Built(build_id, library, alone, toolchain, flags, known["seconds"], True, known["log"])
    started = time.monotonic()
    with work_folder() as work:
        file_name = Path(name).name
        (work / file_name).write_text(source, encoding="utf-8")  # g++ quotes it in its messages
        (work / "rewritten").mkdir()
        (work / "rewritten" / file_name).write_text(rewritten.source, encoding="utf-8")
        (work / "preinclude.h").write_text(preinclude, encoding="utf-8")
        for header, text in rewritten.headers.items():
            path = work / "headers" / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        compiling = [
            *flags,
            *("-include", str(prepared.prefix), "-include", "preinclude.h"),
            *("-I", "headers", "-isystem", str(INCLUDE_DIR)),
            *(part for d in include_dirs for part in ("-I", str(d))),
            *("-x", "c++", "-c", f"rewritten/{file_name}", "-o", "kernel.o"),
        ]
        linking = [
            *flags,
            *("kernel.o", *map(str, prepared.runtime)),
            *("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-Wl,-z,relro", "-lpthread", "-o", "kernel.so"),
        ]
        ended = compiler.run(compiling, work, time_limit_s)
        said = ended.said
        if ended.code == 0 and not ended.limit:
            ended = compiler.run(linking, work, time_limit_s)
            said += ended.said
        log = _clean(said)
        if ended.limit:
            raise BuildError(ended.limit, log, ended.kind)
        if ended.code != 0:
            if construct := unsupported_construct(log):
                raise UnsupportedError(f"The cpu executor can't run this kernel: it uses {construct}.")
            raise BuildError(_first_error(log), log)
        seconds = time.monotonic() - started
        kept.mkdir(parents=True, exist_ok=True)
        (work / "kernel.o").replace(alone)
        (work / "kernel.so").replace(library)
        (work / "facts.json").write_text(json.dumps({"seconds": seconds, "log": log}), encoding="utf-8")
        (work / "facts.json").replace(facts)
    return Built(build_id, library, alone, toolchain, flags, seconds, False, log)


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
