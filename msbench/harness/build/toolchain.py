"""Finds a CUDA compiler and the vendor libraries.

Looked for in this order: ``CUDA_HOME`` (or ``CUDA_PATH``), ``PATH``, ``/usr/local/cuda``, and the wheels of the
``cuda`` extra (``site-packages/nvidia/cu13``), so that msbench works where no CUDA is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msbench.errors import ToolchainError
from msbench.guarded import captured
from msbench.model import digest

HEADERS: Mapping[str, str] = {
    "cublas": "cublas_v2.h",
    "cublasLt": "cublasLt.h",
    "cudnn": "cudnn.h",
    "cufft": "cufft.h",
    "curand": "curand.h",
    "cusolver": "cusolverDn.h",
    "cusparse": "cusparse.h",
}
"""The vendor libraries that a kernel may ask for with ``// msbench: link``, and the header each is known by."""

_DEFAULT_HOME = Path("/usr/local/cuda")
_ANSWER_S = 60.0  # a tool that says what it is does so at once
_OLDEST = (12, 4)  # the first release whose driver tells a recorded kernel's parameters (cuFuncGetParamInfo)
_SYSTEM_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib",
)
_SYSTEM_HEADERS = (
    "/usr/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/include/aarch64-linux-gnu",
    "/usr/local/include",
)
_HOW = "Install it with `pip install 'mskernelbench[cuda]'`, or set CUDA_HOME to an installed toolkit."


@dataclass(frozen=True)
class Library:
    """A vendor library: the file to link and the folder of its header (None: nvcc finds it by itself)."""

    name: str
    path: Path
    include: Path | None


@dataclass(frozen=True)
class Toolchain:
    """A compiler that was found, and what belongs to it. ``None``: not found; the caller says what that limits."""

    nvcc: Path
    version: str
    root: Path
    host_compiler: Path
    host_version: str
    cudart: Path
    library_dirs: tuple[Path, ...]
    include_dirs: tuple[Path, ...]
    cuobjdump: Path | None
    demangler: Path | None
    ncu: Path | None
    sanitizer: Path | None = None

    @property
    def id(self) -> str:
        """For example ``"nvcc 13.0.88, g++ 13.3.0"``: what a build was made with."""
        return f"nvcc {self.version}, g++ {self.host_version}"

    @property
    def release(self) -> str:
        """For example ``"13.0"``."""
        return ".".join(self.version.split(".")[:2])

    @property
    def fingerprint(self) -> str:
        """A hash of the compiler's identity and place: binaries carry paths of its libraries."""
        return digest(self.id, str(self.nvcc), str(self.cudart))

    def environment(self) -> dict[str, str]:
        """The environment that tools run in: nothing secret, and each other on the path."""
        folders = [self.nvcc.parent, self.host_compiler.parent]
        if self.cuobjdump:
            folders.append(self.cuobjdump.parent)  # it calls nvdisasm
        path = [*map(str, folders), "/usr/bin", "/bin"]
        # Builds are repeatable: __DATE__ and __TIME__ are the epoch's, so that no version knows how old its build is.
        return {"PATH": os.pathsep.join(dict.fromkeys(path)), "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}

    def library(self, name: str) -> Library:
        """Look a vendor library up in the toolkit, the system's folders and the wheels.

        Raises:
            ToolchainError: unknown, or not installed, or without its header.
        """
        if name not in HEADERS:
            raise ToolchainError(f"A kernel may link {', '.join(HEADERS)}; {name!r} is none of these.")
        file = _shared_library(name, self.library_dirs)
        if file is None:
            places = ", ".join(map(str, self.library_dirs[:3]))
            raise ToolchainError(f"lib{name}.so is not installed (looked in {places} and further folders). {_HOW}")
        for folder in self.include_dirs:
            if (folder / HEADERS[name]).is_file():
                return Library(name, file, None if folder == self.include_dirs[0] else folder)
        raise ToolchainError(f"{file} is there but its header {HEADERS[name]} is not. {_HOW}")

    def vendor_libraries(self) -> dict[str, Path | None]:
        """Every library that a kernel may link, and its file where it can be linked here."""
        found: dict[str, Path | None] = {}
        for name in HEADERS:
            try:
                found[name] = self.library(name).path
            except ToolchainError:
                found[name] = None
        return found

    def describe(self) -> str:
        """One line for ``msbench doctor``."""
        return f"{self.version} at {self.nvcc}, with g++ {self.host_version} at {self.host_compiler}"


@cache
def find() -> Toolchain:
    """The first toolchain that works.

    Raises:
        ToolchainError: there is no nvcc, it is too old or does not run, or its host compiler is missing or too new.
    """
    wheels = tuple(_wheel_roots())
    for nvcc in _nvcc_candidates(wheels):
        return _inspect(nvcc, wheels)
    raise ToolchainError(f"There is no CUDA compiler: nvcc is not in CUDA_HOME, on PATH, or in Python's wheels. {_HOW}")


def architecture(capability: tuple[int, int]) -> str:
    """nvcc's name for a compute capability: ``"sm_90a"`` on Hopper.

    From 9.0 on it is the architecture-specific target, since a kernel is built for the device that it runs on, and
    instructions such as ``wgmma`` exist only there (CUDA C++ programming guide, "Feature set compiler targets").
    """
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def gencode(arch: str) -> str:
    """The ``-gencode`` option's value that builds machine code for ``arch``."""
    return f"arch=compute_{arch.removeprefix('sm_')},code={arch}"


def parse_version(text: str) -> str:
    """The version in ``nvcc --version``'s output, such as ``"13.0.88"``.

    Raises:
        ToolchainError: there is none.
    """
    found = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    if not found:
        raise ToolchainError(f"nvcc --version says nothing that looks like a version: {text.strip()[:200]!r}.")
    return found[1]


def newest_host_compiler(host_config: str) -> int | None:
    """The newest g++ that nvcc accepts, from the text of its ``crt/host_config.h``; None where it does not say."""
    found = re.search(r"#if __GNUC__ > (\d+)", host_config)
    return int(found[1]) if found else None


def _nvcc_candidates(wheels: tuple[Path, ...]) -> Iterator[Path]:
    homes = [os.environ[v] for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    on_path = shutil.which("nvcc")
    places = [
        *(Path(home) / "bin" / "nvcc" for home in homes),
        *([Path(on_path)] if on_path else []),
        _DEFAULT_HOME / "bin" / "nvcc",
        *(root / "bin" / "nvcc" for root in wheels),
    ]
    # By its real path: nvcc finds its other parts beside itself, and a symlink's neighbours are others.
    return (_behind_wrapper(p.resolve()) for p in places if p.is_file() and os.access(p, os.X_OK))


def _behind_wrapper(nvcc: Path) -> Path:
    """The compiler that a wrapper script calls: nvcc says where it lies, as ``#$ _HERE_=/usr/local/cuda-13.0/bin``."""
    try:
        # Captured: even for this nvcc writes files of its own, and leaves them where it or its reader is killed.
        _, _, said = captured([str(nvcc), "--dryrun", "-E", "-x", "cu", os.devnull], _ANSWER_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{nvcc} does not run: {error}. {_HOW}") from error
    found = re.search(r"^#\$ _HERE_=(.+)$", said, re.MULTILINE)
    real = Path(found[1].strip()) / "nvcc" if found else nvcc
    return real if real.is_file() else nvcc


def _wheel_roots() -> Iterator[Path]:
    """Folders such as site-packages/nvidia/cu13, newest first."""
    folders = dict.fromkeys([*site.getsitepackages(), site.getusersitepackages(), *sys.path])
    for folder in folders:
        yield from sorted(Path(folder).glob("nvidia/cu[0-9]*"), reverse=True)


def _inspect(nvcc: Path, wheels: tuple[Path, ...]) -> Toolchain:
    version = parse_version(_output([str(nvcc), "--version"]))
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise ToolchainError(f"{nvcc} is CUDA {version}; msbench needs {_OLDEST[0]}.{_OLDEST[1]} or newer. {_HOW}")
    root = nvcc.parent.parent
    host, host_version = _host_compiler(root)
    parts = [w / "lib" for w in wheels]
    vendors = [p for w in wheels for p in sorted(w.parent.glob("*/lib"))]
    libraries = _folders(
        [root / "lib64", root / "lib", root / "targets/x86_64-linux/lib", *parts, *vendors, *_SYSTEM_LIBRARIES]
    )
    includes = _folders(
        [root / "include", root / "targets/x86_64-linux/include", *(p.parent / "include" for p in [*parts, *vendors])]
    )
    cudart = _shared_library("cudart", libraries)
    if cudart is None:
        raise ToolchainError(f"{nvcc} is there but the CUDA runtime, libcudart.so, is not. {_HOW}")
    beside = [nvcc.parent, *(w / "bin" for w in wheels)]
    cuobjdump, nvdisasm = _tool("cuobjdump", beside), _tool("nvdisasm", beside)
    return Toolchain(
        nvcc=nvcc,
        version=version,
        root=root,
        host_compiler=host,
        host_version=host_version,
        cudart=cudart,
        library_dirs=libraries,
        include_dirs=tuple(dict.fromkeys([*includes, *_folders(_SYSTEM_HEADERS)])),
        cuobjdump=cuobjdump if nvdisasm else None,
        demangler=_tool("cu++filt", beside) or _tool("c++filt", beside),
        sanitizer=_tool("compute-sanitizer", [nvcc.parent]),
        ncu=_tool("ncu", [nvcc.parent, *sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)]),
    )


def _host_compiler(root: Path) -> tuple[Path, str]:
    named = os.environ.get("NVCC_CCBIN") or "g++"
    found = shutil.which(named)
    if found is None:
        raise ToolchainError(f"nvcc needs a C++ compiler, and {named!r} is not there: install g++.")
    version = _output([found, "-dumpfullversion"]).strip()
    config = root / "include" / "crt" / "host_config.h"
    newest = newest_host_compiler(config.read_text(errors="replace")) if config.is_file() else None
    if newest is not None and version.split(".")[0].isdigit() and int(version.split(".")[0]) > newest:
        raise ToolchainError(
            f"nvcc in {root} accepts g++ up to {newest}, and {found} is {version}: "
            f"install g++-{newest} and set NVCC_CCBIN=g++-{newest}."
        )
    return Path(found), version


def _shared_library(name: str, folders: tuple[Path, ...]) -> Path | None:
    """``lib<name>.so``, or ``lib<name>.so.<major>`` alone, which is how wheels have it."""
    for folder in folders:
        plain = folder / f"lib{name}.so"
        if plain.exists():
            return plain
        numbered = [p for p in folder.glob(f"lib{name}.so.*") if re.fullmatch(r"[\d.]+", p.name.partition(".so.")[2])]
        if numbered:
            return min(numbered, key=lambda p: (len(p.name), p.name))
    return None


def _folders(paths: Iterable[Path | str]) -> tuple[Path, ...]:
    """Those that are there, once each."""
    there: dict[Path, Path] = {}
    for path in map(Path, paths):
        if path.is_dir():
            there.setdefault(path.resolve(), path)
    return tuple(there.values())


def _tool(name: str, folders: list[Path]) -> Path | None:
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    found = shutil.which(name)
    return Path(found) if found else None


def _output(argv: list[str]) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=_ANSWER_S, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{argv[0]} does not run: {error}. {_HOW}") from error
