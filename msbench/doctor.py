"""What msbench finds on this machine, what anything missing limits, and how to get it."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msbench.errors import MsbenchError


@dataclass(frozen=True)
class Finding:
    """One thing looked for: ``found`` is its version or place, None where it is missing."""

    name: str
    found: str | None
    limits: str = ""
    remedy: str = ""
    needed: bool = False


def _output(*argv: str) -> list[str]:
    """The lines that a command prints; none where it is missing, fails or hangs."""
    if shutil.which(argv[0]) is None:
        return []
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def _first_line(*argv: str) -> str | None:
    return next(iter(_output(*argv)), None)


def _last_line(*argv: str) -> str | None:
    return next(reversed(_output(*argv)), None)


def _python() -> Finding:
    version = platform.python_version()
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding(
        "Python 3.11 to 3.13",
        f"{version} at {sys.executable}" if supported else None,
        f"msbench is unsupported: this is {version}",
        "Create the environment with another Python, for example `make PYTHON=python3.12 demo`.",
        needed=True,
    )


def _host_compiler() -> Finding:
    return Finding(
        "g++",
        _first_line("g++", "--version"),
        "nothing can be compiled, for the cpu executor or by nvcc",
        "Install it: `apt install g++` (Debian, Ubuntu) or `dnf install gcc-c++` (Fedora).",
        needed=True,
    )


def _nvcc() -> Finding:
    from msbench.harness.build import toolchain

    try:
        found: str | None = toolchain.find().describe()
    except MsbenchError:
        found = None
    return Finding(
        "nvcc",
        found,
        "kernels can't be compiled for a GPU; the cpu executor still checks them",
        "Install CUDA 13 (at least 12.4), set CUDA_HOME, or `pip install 'mskernelbench[cuda]'`.",
    )


def _gpu() -> Finding:
    line = _first_line("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    return Finding(
        "GPU",
        line and "{}, driver {}, {}".format(*(part.strip() for part in line.split(",")[:3])),
        "nothing can be timed here; times come from the published database, labelled as such",
        "Run msbench on a machine with an NVIDIA GPU and a driver for CUDA 12.4 (550) or newer.",
    )


def _cupy() -> Finding:
    present = importlib.util.find_spec("cupy") is not None
    return Finding(
        "CuPy",
        "installed" if present else None,
        "the cuda executor can't compute its references",
        "`pip install 'mskernelbench[cuda]'`.",
    )


def _ncu() -> Finding:
    line = _last_line("ncu", "--version")
    remedy = "Install Nsight Compute (it comes with the CUDA toolkit)."
    found = line
    if line and not _may_read_counters():
        found = None
        remedy = (
            "The driver lets only administrators read counters: run as root, or load the nvidia module with "
            "NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)."
        )
    return Finding(
        "Nsight Compute",
        found,
        "profiles have no hardware counters, only compiler facts and times",
        remedy,
    )


def _may_read_counters() -> bool:
    if os.geteuid() == 0:
        return True
    params = Path("/proc/driver/nvidia/params")
    return params.is_file() and "RmProfilingAdminOnly: 0" in params.read_text()


def _confinement() -> Finding:
    from msbench.harness.sandbox import confine

    missing = confine.missing()
    return Finding(
        "confinement",
        None if missing else "seccomp and Landlock",
        f"kernels run without {missing}, with less protection for this machine",
        "Use Linux 5.13 or newer, in a container Docker 23 or newer (its profile must allow Landlock).",
    )


def _vendor_libraries() -> Iterator[Finding]:
    from msbench.harness.build import toolchain

    try:
        places = toolchain.find().vendor_libraries()
    except MsbenchError:
        places = {}
    for name in ("cublas", "cublasLt", "cusparse", "cudnn"):
        place = places.get(name)
        found = str(place) if place else ctypes.util.find_library(name)
        yield Finding(
            f"lib{name}",
            found,
            f"the baselines that link {name} are skipped",
            "Install the CUDA libraries, or `pip install 'mskernelbench[cuda]'`.",
        )


def _key() -> Finding:
    key, endpoint = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL")
    found = f"{'OPENAI_API_KEY is set' if key else 'no key'}, endpoint {endpoint or 'api.openai.com'}"
    return Finding(
        "provider key",
        found if key or endpoint else None,
        "`msbench optimize` can't ask a model; the providers `replay` and `manual` need no key",
        "Set OPENAI_API_KEY, or OPENAI_BASE_URL for another OpenAI-compatible endpoint.",
    )


def examine() -> list[Finding]:
    """Look for everything, in the order in which it is needed."""
    single: tuple[Callable[[], Finding], ...] = (_python, _host_compiler, _gpu, _nvcc, _cupy, _ncu, _confinement)
    return [*(look() for look in single), *_vendor_libraries(), _key()]
