"""Finds g++, and prepares once for each set of flags what every kernel needs: a precompiled header and the runtime."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msbench import limits
from msbench.errors import ToolchainError
from msbench.model import digest
from msbench.resources import cache_dir
from msbench.scratch import scratch

_HERE = Path(__file__).parent
INCLUDE_DIR = _HERE / "include"
_RUNTIME_DIR = _HERE / "runtime"
_OLDEST = 11  # the first g++ with C++20's source_location and bit_cast

_ALWAYS = ("-std=gnu++20", "-g1", "-fPIC", "-w")
_KERNEL = (
    "-ffp-contract=off",  # nvcc fuses where it likes; without fusing at all a result is at least the same everywhere
    "-fno-math-errno",
    "-fno-strict-aliasing",  # kernels load float4 from float arrays
    "-fwrapv",
    "-fstack-clash-protection",  # a large local array touches every page, so it can't jump over a stack's guard page
    "-fno-finite-loops",  # a loop that never ends is to be found, not removed
    # A vector access at an address that its type does not allow is a fault on a GPU; it becomes a trap here.
    "-fsanitize=alignment",
    "-fsanitize-undefined-trap-on-error",
)
_PLAIN = ("-O2",)
_SANITIZED = ("-O1", "-fsanitize=address", "-fno-omit-frame-pointer")
# The runtime itself is not instrumented: it manages stacks and redzones, and every switch goes through it.
_RUNTIME = ("-O2", "-fvisibility=hidden")

_MISSING = (
    "The cpu executor needs g++ (version {} or later), which was not found. Install it: `apt install g++` on Debian and "
    "Ubuntu, `dnf install gcc-c++` on Fedora; or set CXX to one."
)


@dataclass(frozen=True)
class HostCompiler:
    """A g++ that works. ``extra``: further flags for kernels and runtime alike."""

    path: str
    version: str
    extra: tuple[str, ...] = ()

    def flags(self, sanitize: bool) -> tuple[str, ...]:
        """What every compilation gets; ``sanitize``: under AddressSanitizer."""
        return (*_ALWAYS, *_KERNEL, *_machine_flags(), *(_SANITIZED if sanitize else _PLAIN), *self.extra)

    def sanitizer_library(self) -> str:
        """libasan, which a process has to load before anything else.

        Raises:
            ToolchainError: it is not installed.
        """
        asked = subprocess.run(
            [self.path, "-print-file-name=libasan.so"], capture_output=True, text=True, timeout=30, check=True
        )
        path = Path(asked.stdout.strip())
        if not path.is_absolute() or not path.exists():
            raise ToolchainError(
                f"{self.path} comes without AddressSanitizer. Install libasan (`dnf install libasan`), or leave out --sanitize."
            )
        return str(path.resolve())

    def run(self, arguments: list[str], folder: Path, seconds: float | None) -> limits.Ended:
        """Run it in ``folder``, within the limits of a compilation."""
        environment = {**os.environ, "LC_ALL": "C", "GCC_COLORS": ""}
        try:
            return limits.compile_within([self.path, *arguments], folder, environment, seconds)
        except OSError as error:
            raise ToolchainError(f"{self.path} can't be started: {error}.") from error

    def prepared(self, sanitize: bool) -> Prepared:
        """The precompiled header and the compiled runtime for these flags; built on the first call, kept in the cache.

        Raises:
            ToolchainError: g++ can't compile msbench's own runtime.
        """
        flags = self.flags(sanitize)
        # The folder too: debug information names it, and a kernel's own lines are told from the runtime's by it.
        key = digest("prepared", self.version, platform.machine(), *flags, *_RUNTIME, str(_HERE), own_sources())
        folder = cache_dir() / "emulator" / key
        if not (folder / "done").is_file():
            _prepare(self, flags, sanitize, folder)
        return Prepared(key, folder / "prefix.hpp", tuple(folder / f"{s.stem}.o" for s in _runtime_sources()))


@dataclass(frozen=True)
class Prepared:
    """``prefix`` has its precompiled form beside it; where g++ refuses that form it reads the text instead."""

    key: str
    prefix: Path
    runtime: tuple[Path, ...]


@cache
def own_sources() -> str:
    """A hash of everything that a build includes and links."""
    files = sorted(p for d in (INCLUDE_DIR, _RUNTIME_DIR) for p in d.rglob("*") if p.is_file())
    return digest(*(part for p in files for part in (str(p.relative_to(_HERE)), p.read_bytes())))


def _runtime_sources() -> list[Path]:
    return sorted(_RUNTIME_DIR.glob("*.cpp"))


def find(path: str | None = None) -> HostCompiler:
    """``path``, or the g++ that ``CXX`` names, or the one on PATH.

    Raises:
        ToolchainError: there is none, it is too old, or it is not g++.
    """
    return _examine(path or os.environ.get("CXX") or "g++")


@cache
def _examine(wanted: str) -> HostCompiler:
    path = shutil.which(wanted)
    if path is None:
        raise ToolchainError(_MISSING.format(_OLDEST))
    try:
        asked = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, timeout=30, check=True)
        macros = subprocess.run(
            [path, "-dM", "-E", "-x", "c++", os.devnull], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{path} does not work as a C++ compiler: {error}.") from error
    version = asked.stdout.strip()
    if "__clang__" in macros.stdout or "__GNUC__" not in macros.stdout:
        raise ToolchainError(f"{path} is not g++, which the cpu executor needs. Set CXX to a g++ {_OLDEST} or later.")
    if int(version.split(".")[0]) < _OLDEST:
        raise ToolchainError(
            f"{path} is version {version}; the cpu executor needs g++ {_OLDEST} or later. Set CXX to a newer one."
        )
    return HostCompiler(path, version)


@cache
def _machine_flags() -> tuple[str, ...]:
    """Fused multiply-add and AVX2 where this machine has them: without, every fmaf is a library call."""
    if platform.machine() != "x86_64":
        return ()
    try:
        flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
    except OSError:
        return ()
    needed = {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}
    return ("-march=x86-64-v3",) if needed <= set(flags) else ()


def _prepare(compiler: HostCompiler, flags: tuple[str, ...], sanitize: bool, folder: Path) -> None:
    with _writing(folder.parent), _locked(folder.with_name(f"{folder.name}.lock")):
        if (folder / "done").is_file():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # In its final place: g++ records where the header lay.
        (folder / "prefix.hpp").write_text('#include "msbench_cpu/bf162.hpp"\n', encoding="utf-8")
        header = [*flags, "-I", str(INCLUDE_DIR), "-x", "c++-header", "prefix.hpp", "-o", "prefix.hpp.gch"]
        asan = ["-DMSBENCH_CPU_ASAN"] if sanitize else []
        runtime = [*_ALWAYS, *_machine_flags(), *_RUNTIME, *compiler.extra, *asan]
        jobs = [header, *([*runtime, "-c", str(source), "-o", f"{source.stem}.o"] for source in _runtime_sources())]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for ended in pool.map(lambda arguments: compiler.run(arguments, folder, 300.0), jobs):
                if ended.code != 0:
                    raise ToolchainError(
                        f"{compiler.path} {compiler.version} can't compile msbench's own runtime:\n"
                        f"{ended.limit or ended.said[-3000:]}"
                    )
        (folder / "done").touch()


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder in the cache for one compilation.

    Raises:
        ToolchainError: the cache can't be written.
    """
    root = cache_dir() / "tmp"
    with _writing(root), scratch(root) as folder:
        yield folder


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Several builds start at once; one of them does what is done once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ToolchainError(
            f"The build cache {folder} can't be written: {error}. Set MSBENCH_CACHE to one that can, on a disk with room."
        ) from error
