"""The memory that CuPy keeps for later, which no other process can take."""

from __future__ import annotations

from typing import Any

KEPT_BYTES = 2**30
"""So much is left to it: to give it back waits for the device, and to take it again too."""


def shrink(xp: Any, kept_bytes: int = KEPT_BYTES) -> None:
    """Give back what is free if it is more than ``kept_bytes``; nothing where ``xp`` is numpy."""
    pool_of = getattr(xp, "get_default_memory_pool", None)
    if pool_of is None:
        return
    pool = pool_of()
    if pool.free_bytes() > kept_bytes:
        pool.free_all_blocks()
