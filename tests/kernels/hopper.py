"""The shared headers with Hopper's instructions in software, for the emulator."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from msbench import resources

SAME = {
    "cvt.rn.bf16x2.f32": "const __nv_bfloat162 two = __floats2bfloat162_rn(a, b); parts[p][i] = reinterpret_cast<const unsigned&>(two);",
    "red.relaxed.gpu.global.add.v2.f32": "atomicAdd(to + column, x), atomicAdd(to + column + 1, y);",
}
"""Instructions that the emulator lacks, and what does the same."""


def soft_headers(folder: Path) -> Path:
    """Fills ``folder`` with the shared headers, those of ``soft_hopper/`` in the place of the ones that they are named after."""
    for header in resources.include_dir().glob("*.cuh"):
        text = header.read_text("utf-8")
        for instruction, instead in SAME.items():
            text = re.sub(rf'asm[ \w]*\("{re.escape(instruction)}.*$', instead, text, flags=re.MULTILINE)
        (folder / header.name).write_text(text, "utf-8")
    for header in (Path(__file__).parent / "soft_hopper").iterdir():
        shutil.copyfile(header, folder / header.name)
    return folder
