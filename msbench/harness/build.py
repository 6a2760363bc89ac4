"""Compiles a candidate with nvcc into a shared library that a worker loads.

The generated header is included before the first line, so a wrong signature is a compile error. Builds are cached by
the hash of source, header, shared headers, flags and compiler. Candidates and the runner link the shared CUDA runtime,
not the static one that is nvcc's default: both then see the same "last error", so an unreported launch failure is
caught.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from msbench import operators, resources
from msbench.errors import ToolchainError
from msbench.guarded import disk_was_full, guarded
from msbench.harness import compiler_output
from msbench.harness.toolchain import HEADERS, Toolchain, gencode
from msbench.model import BuildResult, Candidate, Failure, Fault, digest
from msbench.scratch import scratch
from msbench.spec import Operator

TIME_LIMIT_S = 180.0
"""A compilation may take this long; all of CUB takes about ten seconds."""

_MEMORY_KIB = 12 * 2**20  # address space of each compiler process
_FILE_KIB = 2**20  # size of any file that it writes
_LOG_CHARACTERS = 60_000
_NATIVE = Path(__file__).with_name("native")
_FLAGS = ("-O3", "-std=c++17", "-lineinfo", "-Xptxas", "-v", "-Xcompiler", "-fPIC", "-shared", "-cudart", "none")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def build(
    op: Operator, candidate: Candidate, toolchain: Toolchain, arch: str, *, time_limit_s: float = TIME_LIMIT_S
) -> BuildResult:
    """Compile one candidate for one architecture (``"sm_90a"``). A bad kernel is a ``BuildResult.failure``.

    Safe to call from several threads and processes at once.

    Raises:
        ToolchainError: the compiler can't be run at all.
    """
    header = operators.header(op, candidate.precision)
    try:
        linking = _link_flags(toolchain, candidate.link)
        unlinkable = None
    except ToolchainError as error:
        fault = Fault.UNSUPPORTED if set(candidate.link) <= set(HEADERS) else Fault.LINK
        linking, unlinkable = [], Failure(fault, str(error))
    flags = (*_FLAGS, "-gencode", gencode(arch), *(f"-l{name}" for name in candidate.link))
    build_id = digest("build", candidate.id, header, _shared_headers(), *flags, *linking, toolchain.fingerprint)
    unbuilt = BuildResult(build_id, candidate.id, toolchain.id, flags, 0.0, cached=False)
    if not _COMMENT.sub("", candidate.source).strip():
        empty = f"The file holds no code. The launcher must be: {operators.prototype(op)}"
        return _failed(unbuilt, Failure(Fault.EMPTY, empty), 0.0)
    if unlinkable:
        return _failed(unbuilt, unlinkable, 0.0)
    kept = resources.cache_dir() / "builds" / build_id
    if (found := _cached(kept, unbuilt)) is not None:
        return found
    started = time.monotonic()
    with _work_folder() as work:
        (work / f"{op.name}.h").write_text(header, encoding="utf-8")
        (work / f"{op.name}.cu").write_text(candidate.source, encoding="utf-8")
        include = ["-I", str(resources.include_dir()), "-I", ".", "-include", f"{op.name}.h"]
        output = ["-o", "kernel.so", f"{op.name}.cu"]
        argv = [*_FLAGS, "-gencode", gencode(arch), *include, *linking, *output]
        code, log = _run_nvcc(toolchain, argv, work, time_limit_s)
        seconds = time.monotonic() - started
        if code is None:
            late = f"The compiler did not finish within {time_limit_s:g} s and was stopped."
            return _failed(unbuilt, Failure(Fault.TIMEOUT, late, compiler_output.clean_log(log)), seconds)
        if code or not (work / "kernel.so").is_file():
            return _failed(unbuilt, compiler_output.classify_failure(log, op.name, operators.prototype(op)), seconds)
        facts = {
            "seconds": seconds,
            "log": compiler_output.clean_log(log)[-_LOG_CHARACTERS:],
            "kernels": _demangled(compiler_output.kernels(log), toolchain),
            "sass": _sass(work / "kernel.so", toolchain),
        }
        (work / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        _keep(work, kept)
    return _result(kept, unbuilt, facts, cached=False)


def native(name: str, toolchain: Toolchain, arch: str) -> Path:
    """Compile ``native/<name>.cu``, a part of msbench itself; cached like a candidate.

    Raises:
        ToolchainError: it does not compile, which the compiler's own words explain.
    """
    source = (_NATIVE / f"{name}.cu").read_text(encoding="utf-8")
    linking = _link_flags(toolchain, ())
    key = digest("native", source, *_FLAGS, arch, *linking, toolchain.fingerprint)
    kept = resources.cache_dir() / "native" / key
    if not (kept / "kernel.so").is_file():
        with _work_folder() as work:
            (work / f"{name}.cu").write_text(source, encoding="utf-8")
            argv = [*_FLAGS, "-gencode", gencode(arch), *linking, "-o", "kernel.so", f"{name}.cu"]
            code, log = _run_nvcc(toolchain, argv, work, TIME_LIMIT_S)
            if code != 0:
                tail = compiler_output.clean_log(log)[-2000:]
                raise ToolchainError(f"{toolchain.nvcc} can't compile msbench's own {name}.cu for {arch}:\n{tail}")
            _keep(work, kept)
    return kept / "kernel.so"


def _link_flags(toolchain: Toolchain, names: tuple[str, ...]) -> list[str]:
    """Link files by their own names: wheels have libcudart.so.13 and no libcudart.so. The rpath finds them later."""
    libraries = [toolchain.library(name) for name in names]
    flags = [part for lib in libraries if lib.include for part in ("-isystem", str(lib.include))]
    files = [toolchain.cudart, *(lib.path for lib in libraries)]
    for folder in dict.fromkeys(f.parent for f in files):
        flags += [f"-L{folder}", "-Xlinker", f"-rpath,{folder}"]
    flags += [f"-l:{f.name}" for f in files]
    return [*flags, "-Xlinker", "-z,defs"]


@cache
def _shared_headers() -> str:
    """A hash of kernels/include."""
    folder = resources.include_dir()
    files = sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []
    return digest(*(part for p in files for part in (str(p.relative_to(folder)), p.read_bytes())))


def _run_nvcc(toolchain: Toolchain, argv: list[str], work: Path, time_limit_s: float) -> tuple[int | None, str]:
    """Run nvcc in ``work`` with limits on time, memory and file size; (exit code or None if too late, its output).

    The shell sets the limits: ``preexec_fn`` is unsafe in a process with threads, and builds run in threads.
    """
    limits = f"ulimit -c 0; ulimit -v {_MEMORY_KIB}; ulimit -f {_FILE_KIB * 2}; "
    command = [str(toolchain.nvcc), "-ccbin", str(toolchain.host_compiler), *argv]
    environment = toolchain.environment() | {"TMPDIR": str(work)}
    try:
        with (
            (work / "log").open("wb") as log,
            guarded(command, limits=limits, cwd=work, env=environment, stdout=log, stderr=log) as process,
        ):
            code: int | None = process.wait(time_limit_s)
    except subprocess.TimeoutExpired:
        code = None
    except OSError as error:
        raise ToolchainError(f"{toolchain.nvcc} can't be started: {error}.") from error
    said = (work / "log").read_text(encoding="utf-8", errors="replace")
    if code and disk_was_full(said, work):
        raise ToolchainError(f"{toolchain.nvcc} can't write to {work}: the disk is full. Free some space, then repeat.")
    return code, said


@contextmanager
def _work_folder() -> Iterator[Path]:
    """For one compilation, in the cache.

    Raises:
        ToolchainError: the cache can't be written.
    """
    root = resources.cache_dir() / "tmp"
    try:
        with scratch(root) as folder:
            yield folder
    except OSError as error:
        raise ToolchainError(
            f"The build cache {root} can't be written: {error}. Set MSBENCH_CACHE to one that can, on a disk with room."
        ) from error


def _keep(work: Path, kept: Path) -> None:
    """Move a finished build into the cache at one stroke; another process may have been first with the same."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    final = work / "kept"
    final.mkdir()
    for name in ("kernel.so", "facts.json"):
        if (work / name).is_file():
            (work / name).rename(final / name)
    with suppress(OSError):
        final.rename(kept)


def _cached(kept: Path, unbuilt: BuildResult) -> BuildResult | None:
    try:
        facts = json.loads((kept / "facts.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return _result(kept, unbuilt, facts, cached=True) if (kept / "kernel.so").is_file() else None


def _result(kept: Path, unbuilt: BuildResult, facts: dict[str, Any], cached: bool) -> BuildResult:
    return BuildResult(
        id=unbuilt.id,
        candidate_id=unbuilt.candidate_id,
        toolchain=unbuilt.toolchain,
        flags=unbuilt.flags,
        seconds=facts["seconds"],
        cached=cached,
        log=facts["log"],
        binary=str(kept / "kernel.so"),
        kernels=tuple(facts["kernels"]),
        sass=facts["sass"],
    )


def _failed(unbuilt: BuildResult, failure: Failure, seconds: float) -> BuildResult:
    return BuildResult(
        id=unbuilt.id,
        candidate_id=unbuilt.candidate_id,
        toolchain=unbuilt.toolchain,
        flags=unbuilt.flags,
        seconds=seconds,
        cached=False,
        log=failure.log[-_LOG_CHARACTERS:],
        failure=failure,
    )


def _demangled(kernels: list[dict[str, Any]], toolchain: Toolchain) -> list[dict[str, Any]]:
    if not kernels or toolchain.demangler is None:
        return kernels
    names = _tool_output([str(toolchain.demangler)], toolchain, "\n".join(k["name"] for k in kernels))
    lines = names.splitlines() if names else []
    return (
        [k | {"name": name} for k, name in zip(kernels, lines, strict=True)] if len(lines) == len(kernels) else kernels
    )


def _sass(binary: Path, toolchain: Toolchain) -> dict[str, int] | None:
    if toolchain.cuobjdump is None:
        return None
    listing = _tool_output([str(toolchain.cuobjdump), "-sass", str(binary)], toolchain)
    return compiler_output.sass_mix(listing) if listing else None


def _tool_output(argv: list[str], toolchain: Toolchain, stdin: str = "") -> str | None:
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=60, check=True, env=toolchain.environment()
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
