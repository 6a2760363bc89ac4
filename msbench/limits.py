"""How much of the machine a kernel's build and its run may take, and a way to run a compiler within that."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msbench.errors import ToolchainError
from msbench.guarded import disk_was_full, guarded

COMPILE_S = 120.0
"""A compilation may take this long."""

COMPILE_BYTES = 8 * 2**30
"""Address space of each compiler process, where the machine has twice that."""

FILE_BYTES = 256 * 2**20
"""Size of any file that is written by a compiler or a worker."""

_LOG_BYTES = 4 * 2**20  # of what a compiler says, read back

_OF_THE_SOURCE = re.compile(r"\s|\S+[(:]\d+[):]")  # a line of it, or a message that begins with a place in it
_NO_MEMORY = re.compile(r"bad_alloc|[Oo]ut of memory|[Mm]emory exhausted|Cannot allocate memory|Killed|signal 9\b")
_NO_MEMORY_AT = re.compile(r"catastrophic error: out of memory")  # nvcc's front end, with a place in the source
_LARGE_FILE = re.compile(r"File size limit exceeded|File too large|signal 25\b")


@dataclass(frozen=True)
class Ended:
    """How a compilation ended: its exit code (None: it was stopped), what it said, and the limit that it hit.

    ``limit`` is a sentence, "" where none was hit; ``kind`` is then a ``model.Fault``'s value.
    """

    code: int | None
    said: str
    limit: str = ""
    kind: str = ""


@cache
def memory() -> int:
    """Half of the memory that this machine, or this container, has, in bytes."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            sizes.append(int(Path(file).read_text(encoding="ascii")))
    return min(sizes) // 2


def compile_within(
    argv: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float | None = None
) -> Ended:
    """Run a compiler in ``folder``, in a process group that is killed as one; its temporary files go there too.

    ``seconds``: how long it may take (None: ``COMPILE_S``).

    Raises:
        OSError: it can't be started.
        ToolchainError: the disk is full.
    """
    # The shell sets the limits: ``preexec_fn`` is unsafe in a process with threads, and builds run in threads.
    seconds = COMPILE_S if seconds is None else seconds
    nbytes = min(COMPILE_BYTES, memory())
    limits = f"ulimit -c 0; ulimit -t {int(seconds) + 1}; ulimit -v {nbytes >> 10}; ulimit -f {FILE_BYTES >> 9}"
    first = "{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null"  # to go where memory ends, and not the referee
    environment = {**environment, "TMPDIR": str(folder)}
    try:
        with (
            (folder / "log").open("wb") as log,
            guarded(
                argv, limits=f"{limits}; {first}; ", cwd=folder, env=environment, stdout=log, stderr=log
            ) as process,
        ):
            code: int | None = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    with (folder / "log").open("rb") as written:
        said = written.read(_LOG_BYTES).decode(errors="replace")
    if code and disk_was_full(said, folder):
        raise ToolchainError(f"{argv[0]} can't write to {folder}: the disk is full. Free some space, then repeat.")
    if code is None:
        return Ended(None, said, f"The compiler did not finish within {seconds:g} s and was stopped.", "timeout")
    # What a compiler says of itself; a kernel's own #error may say anything.
    own = "\n".join(line for line in said.splitlines() if not _OF_THE_SOURCE.match(line)) if code else ""
    if code == -signal.SIGXFSZ or _LARGE_FILE.search(own):
        limit = f"The compiler wrote a file of more than {FILE_BYTES >> 20} MiB and was stopped."
        return Ended(code, said, limit, "compile")
    if _NO_MEMORY.search(own) or (code and _NO_MEMORY_AT.search(said)):
        limit = f"The compiler needed more than {nbytes / 2**30:.3g} GiB of memory and was stopped."
        return Ended(code, said, limit, "out_of_memory")
    return Ended(code, said)
