"""Finds kernels/, site_templates/ and the published database, in a checkout and in an installed wheel."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from msbench.errors import MsbenchError

_PACKAGE = Path(__file__).resolve().parent


@cache
def _root() -> Path:
    packed = _PACKAGE / "_data"
    if packed.is_dir():
        return packed
    checkout = _PACKAGE.parent
    if (checkout / "kernels").is_dir():
        return checkout
    raise MsbenchError(
        f"msbench's data files are neither in {packed} nor in {checkout}: reinstall msbench, or run it from a checkout."
    )


def kernels_dir() -> Path:
    """The folder with one folder an operator, and ``include/``."""
    return _root() / "kernels"


def include_dir() -> Path:
    """The folder of ``msbench.cuh``."""
    return kernels_dir() / "include"


def templates_dir() -> Path:
    """The folder of the site's templates and static files."""
    return _root() / "site_templates"


def published_db() -> Path | None:
    """The database that msbench ships, recorded on an H200; None where there is none."""
    path = _root() / "db" / "published.sqlite"
    return path if path.is_file() else None


def cache_dir() -> Path:
    """Where builds are kept: ``MSBENCH_CACHE``, else ``msbench`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
    named = os.environ.get("MSBENCH_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "msbench"


def repository() -> str | None:
    """The address of the repository, if the installed package names it (``Repository`` in pyproject.toml's project.urls)."""
    try:
        urls = metadata("mskernelbench").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    named = dict(url.split(", ", 1) for url in urls)
    return named.get("Repository")
