"""Objects to look at, by the host's compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

from msbench.harness.screen.elf import ElfObject


def compiled(folder: Path, text: str) -> ElfObject:
    (folder / "x.cpp").write_text(text, encoding="utf-8")
    subprocess.run(["g++", "-O1", "-fPIC", "-c", "x.cpp", "-o", "x.o"], cwd=folder, check=True)
    return ElfObject(folder / "x.o")
