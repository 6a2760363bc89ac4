"""Plugins by file name: a module's name is its CLI name and its name in the database.

Other packages bring theirs by entry points, whose group is the package here: ``[project.entry-points."msbench.agents"]``,
``greedy = "my_package.greedy"``. A name of msbench's own means its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import cast

from msbench.errors import UnknownNameError


def names(package: str) -> tuple[str, ...]:
    """The plugins of ``package`` (say ``"msbench.agents"``): its public modules, and those of entry points, sorted."""
    return tuple(sorted({*_own(package), *_others(package)}))


def load(package: str, name: str, kind: str) -> ModuleType:
    """Import plugin ``name`` of ``package``; ``kind`` is the word for one of these, say ``"strategy"``.

    Raises:
        UnknownNameError: there is no such plugin; the message lists those there are.
    """
    if name in _own(package):
        return importlib.import_module(f"{package}.{name}")
    others = _others(package)
    if name not in others:
        raise UnknownNameError(kind, name, names(package))
    return cast(ModuleType, others[name].load())


def _own(package: str) -> set[str]:
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return {m.name for m in found if not m.name.startswith("_")}


def _others(package: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=package)}
