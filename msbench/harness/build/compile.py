"""Compiles a candidate with nvcc into a shared library that a worker loads.

The generated header is included before the first line, so a wrong signature is a compile error; a file with an ``Entry``
of its own has what that says instead. Builds are cached by the hash of source, header, shared headers, flags, compiler and
screen: a version that breaks a rule of ``screen`` has a failed build, and its library is never loaded. Candidates and the
runner link the shared CUDA runtime,
not the static one that is nvcc's default: both then see the same "last error", so an unreported launch failure is
caught.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from msbench import limits, operators, resources
from msbench.errors import ToolchainError
from msbench.harness import screen
from msbench.harness.build import compiler_output
from msbench.harness.build.toolchain import HEADERS, Toolchain, gencode
from msbench.lexemes import code
from msbench.model import BuildResult, Candidate, Failure, Fault, digest
from msbench.scratch import scratch
from msbench.spec import Operator

_LOG_CHARACTERS = 60_000
_NATIVE = Path(__file__).with_name("native")
# Device code may call constexpr functions of the host, such as std::max: PyTorch's builds for its extensions let it, too.
_FLAGS = (
    "-O3",
    "-std=c++17",
    "--expt-relaxed-constexpr",
    "-lineinfo",
    "-Xptxas",
    "-v",
    "-Xcompiler",
    "-fPIC",
    "-shared",
    "-cudart",
    "none",
)
_OVERLAPPED = ("--threads", "2")  # nvcc preprocesses for the host and for the device at the same time
_KEEP = "--keep"  # nvcc's intermediate files, which the screen reads
_COPIES = ("cudaMemcpyAsync", "cudaMemcpy2DAsync")  # which native/copies.cpp stands before
_ALLOCATING = (
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaMallocManaged",
    "cudaMallocHost",
    "cudaHostAlloc",
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeHost",
)
"""What native/ledger.cu counts."""

_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_INDIRECT = re.compile(r"(?:#|%:)\s*(?:include|import)(?!\s*[\"<])")
"""An inclusion that does not name its file, or not right behind the directive."""


def build(
    op: Operator, candidate: Candidate, toolchain: Toolchain, arch: str, *, time_limit_s: float | None = None
) -> BuildResult:
    """Compile one candidate for one architecture (``"sm_90a"``). A bad kernel is a ``BuildResult.failure``.

    Safe to call from several threads and processes at once.

    Raises:
        ToolchainError: the compiler can't be run at all.
    """
    entry = operators.entry(op, candidate)
    try:
        linking = _link_flags(toolchain, candidate.link)
        unlinkable = None
    except ToolchainError as error:
        fault = Fault.UNSUPPORTED if set(candidate.link) <= set(HEADERS) else Fault.LINK
        linking, unlinkable = [], Failure(fault, str(error))
    linking += [part for name in _COPIES for part in ("-Xlinker", f"--wrap={name}")]
    ledger = (_NATIVE / "ledger.cu").read_text(encoding="utf-8") if entry.counts_memory else ""
    if ledger:
        linking += [part for name in _ALLOCATING for part in ("-Xlinker", f"--wrap={name}")]
    flags = (*_FLAGS, "-gencode", gencode(arch), *(f"-l{name}" for name in candidate.link))
    added = entry.before + entry.after + ledger + _copies_source() + _screen()
    rules = "library" if screen.is_library(candidate) else "own"
    headers = _included(candidate.source + added)
    build_id = digest("build", candidate.id, added, headers, *flags, *linking, rules, toolchain.fingerprint)
    unbuilt = BuildResult(build_id, candidate.id, toolchain.id, flags, 0.0, cached=False)
    if not any(code(candidate.source)):
        empty = f"The file holds no code. The launcher must be: {entry.prototype}"
        return _failed(unbuilt, Failure(Fault.EMPTY, empty), 0.0)
    if refused := screen.look_at_source(candidate):
        return _failed(unbuilt, refused, 0.0)
    if unlinkable:
        return _failed(unbuilt, unlinkable, 0.0)
    kept = resources.cache_dir() / "builds" / build_id
    if (found := _cached(kept, unbuilt)) is not None:
        return found
    started = time.monotonic()
    with _work_folder() as work:
        name, include = entry.function, []
        if entry.before:
            (work / f"{name}.h").write_text(entry.before, encoding="utf-8")
            include = ["-I", str(resources.include_dir()), "-I", ".", "-include", f"{name}.h"]
        (work / f"{name}.cu").write_text(candidate.source + entry.after, encoding="utf-8")
        shutil.copy(_copies(toolchain), work / "copies.o")
        output = ["-o", "kernel.so", f"{name}.cu", "copies.o"]
        if ledger:
            (work / "ledger.cu").write_text(ledger, encoding="utf-8")
            output.append("ledger.cu")
        argv = [*_FLAGS, _KEEP, "-gencode", gencode(arch), *include, *linking, *output]
        ended = _run_nvcc(toolchain, argv, work, time_limit_s)
        log = ended.said
        seconds = time.monotonic() - started
        if ended.limit:
            return _failed(unbuilt, Failure(Fault(ended.kind), ended.limit, compiler_output.clean_log(log)), seconds)
        if refused := screen.look_at_device_code(candidate, work, name, compiled=not ended.code):
            return _failed(unbuilt, refused, seconds)
        if ended.code or not (work / "kernel.so").is_file():
            return _failed(unbuilt, compiler_output.classify_failure(log, name, entry.prototype), seconds)
        facts = {
            "seconds": seconds,
            "log": compiler_output.clean_log(log)[-_LOG_CHARACTERS:],
            "kernels": _demangled(compiler_output.kernels(log), toolchain),
            "sass": _sass(work / "kernel.so", toolchain),
            "variables": screen.device_variables(candidate, work, name),
        }
        (work / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        _keep(work, kept)
    return _result(kept, unbuilt, facts, cached=False)


def native(source: Path, toolchain: Toolchain, arch: str) -> Path:
    """Compile a ``.cu`` that is a part of msbench itself; cached like a candidate. Its headers are in the folder of its name.

    Raises:
        ToolchainError: it does not compile, which the compiler's own words explain.
    """
    files = [source, *sorted(source.with_suffix("").glob("*.cuh"))]
    sources = {path.relative_to(source.parent): path.read_text(encoding="utf-8") for path in files}
    content = [part for path, text in sources.items() for part in (path.as_posix(), text)]
    linking = _link_flags(toolchain, ())
    key = digest("native", *content, *_FLAGS, arch, *linking, toolchain.fingerprint)
    kept = resources.cache_dir() / "native" / key
    if not (kept / "kernel.so").is_file():
        with _work_folder() as work:
            for path, text in sources.items():
                (work / path).parent.mkdir(exist_ok=True)
                (work / path).write_text(text, encoding="utf-8")
            argv = [*_FLAGS, "-gencode", gencode(arch), *linking, "-o", "kernel.so", source.name]
            ended = _run_nvcc(toolchain, argv, work)
            if ended.code != 0:
                tail = ended.limit or compiler_output.clean_log(ended.said)[-2000:]
                raise ToolchainError(f"{toolchain.nvcc} can't compile msbench's own {source.name} for {arch}:\n{tail}")
            _keep(work, kept)
    return kept / "kernel.so"


def variables(binary: Path) -> list[str]:
    """The variables that a build keeps in the device's memory, by their names there: no call may leave one changed.

    Raises:
        ToolchainError: the build is no longer whole.
    """
    try:
        found: list[str] = json.loads(binary.with_name("facts.json").read_text(encoding="utf-8"))["variables"]
    except (OSError, ValueError, KeyError) as error:
        raise ToolchainError(
            f"The build in {binary.parent} can't be read: {error}. If the cache was cleared meanwhile, start again."
        ) from error
    return found


def device_code(binary: Path) -> tuple[int, int]:
    """Where a build's device code begins in its library, and how many bytes it has; none where it has no kernel."""
    sections = screen.ElfObject(binary).sections
    return next(((s.offset, s.size) for s in sections if s.name == ".nv_fatbin"), (0, 0))


def _link_flags(toolchain: Toolchain, names: tuple[str, ...]) -> list[str]:
    """Link files by their own names: wheels have libcudart.so.13 and no libcudart.so. The rpath finds them later."""
    libraries = [toolchain.library(name) for name in names]
    flags = [part for lib in libraries if lib.include for part in ("-isystem", str(lib.include))]
    files = [toolchain.cudart, *(lib.path for lib in libraries)]
    for folder in dict.fromkeys(f.parent for f in files):
        flags += [f"-L{folder}", "-Xlinker", f"-rpath,{folder}"]
    flags += [f"-l:{f.name}" for f in files]
    return [*flags, "-Xlinker", "-z,defs"]


def _copies_source() -> str:
    return (_NATIVE / "copies.cpp").read_text(encoding="utf-8")


def _copies(toolchain: Toolchain) -> Path:
    """What is linked into every version: native/copies.cpp, compiled once."""
    kept = resources.cache_dir() / "native" / digest("copies", _copies_source(), toolchain.fingerprint)
    if not (kept / "kernel.so").is_file():
        with _work_folder() as work:
            (work / "copies.cpp").write_text(_copies_source(), encoding="utf-8")
            argv = ["-O2", "-Xcompiler", "-fPIC", "-c", "-o", "kernel.so", "copies.cpp"]
            ended = _run_nvcc(toolchain, argv, work)
            if ended.code != 0:
                tail = ended.limit or compiler_output.clean_log(ended.said)[-2000:]
                raise ToolchainError(f"{toolchain.nvcc} can't compile msbench's own copies.cpp:\n{tail}")
            _keep(work, kept)
    return kept / "kernel.so"


@cache
def _screen() -> str:
    """A hash of the screen: what was built under other rules is looked at again."""
    files = sorted(Path(screen.__file__).parent.glob("*.py"))
    return digest(*(path.read_bytes() for path in files))


@cache
def _headers() -> dict[str, str]:
    """The text of each file in kernels/include, by its name there."""
    folder = resources.include_dir()
    files = sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in files}


def _included(source: str) -> str:
    """A hash of what a source may include of kernels/include: what it names, and what that names; all, if a macro may name it."""
    found: dict[str, str] = {}
    left = [source]
    while left:
        text = _CONTINUED.sub("", left.pop())
        named = {k: v for k, v in _headers().items() if k not in found and (k in text or _INDIRECT.search(text))}
        found |= named
        left += named.values()
    return digest(*(part for name in sorted(found) for part in (name, found[name])))


def _run_nvcc(toolchain: Toolchain, argv: list[str], work: Path, time_limit_s: float | None = None) -> limits.Ended:
    command = [str(toolchain.nvcc), "-ccbin", str(toolchain.host_compiler), *_OVERLAPPED, *argv]
    try:
        return limits.compile_within(command, work, toolchain.environment(), time_limit_s)
    except OSError as error:
        raise ToolchainError(f"{toolchain.nvcc} can't be started: {error}.") from error


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
