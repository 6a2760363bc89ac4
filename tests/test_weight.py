"""What is committed stays light: hosts warn from 50 MB a file, and whoever clones has to fetch all of it.

All 100 tasks are in it, each with a version of ours.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
KIB, MIB = 2**10, 2**20


def size(folder: Path) -> int:
    """Of all files in it, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_published_database_is_small() -> None:
    assert (CHECKOUT / "db" / "published.sqlite").stat().st_size <= 15 * MIB


def test_the_published_site_is_small() -> None:
    assert size(CHECKOUT / "site") <= 21 * MIB


def test_every_version_has_a_small_page() -> None:
    pages = (CHECKOUT / "site" / "version").glob("*.html")
    assert {page.name: page.stat().st_size for page in pages if page.stat().st_size > 60 * KIB} == {}


def test_the_whole_tree_is_small() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git checkout")
    files = [CHECKOUT / name for name in listed.stdout.split("\0") if name]
    assert sum(path.stat().st_size for path in files if path.is_file()) <= 40 * MIB
