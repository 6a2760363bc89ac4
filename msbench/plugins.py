"""Plugins by file name: a module's name is its CLI name and its name in the database."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from msbench.errors import UnknownNameError


def names(package: str) -> tuple[str, ...]:
    """The plugins of ``package`` (say ``"msbench.agents"``): its public modules, sorted."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return tuple(sorted(m.name for m in found if not m.name.startswith("_")))


def load(package: str, name: str, kind: str) -> ModuleType:
    """Import plugin ``name`` of ``package``; ``kind`` is the word for one of these, say ``"strategy"``.

    Raises:
        UnknownNameError: there is no such file; the message lists those there are.
    """
    known = names(package)
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return importlib.import_module(f"{package}.{name}")
