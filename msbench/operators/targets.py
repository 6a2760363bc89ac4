"""What each kernel was meant to reach: ``kernels/targets.csv``, set before it was written, from what an H200's parts cost."""

from __future__ import annotations

import csv
from functools import cache

from msbench import resources

FILE = "targets.csv"

DEVICE = "NVIDIA H200"
"""What they were set for."""


@cache
def targets() -> dict[tuple[str, str], float]:
    """Times in ns by task and split, ``("softmax/bf16", "paper")``: geometric means over the split's cases."""
    path = resources.kernels_dir() / FILE
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    columns = [name.split() for name in head[1:]]
    return {
        (f"{operator}/{precision}", split): float(microseconds) * 1e3
        for operator, *times in rows
        for (precision, split), microseconds in zip(columns, times, strict=True)
    }
