"""What a bench was told to do, however its command was spelt: one that goes on looks for what was done by the same settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from typer.main import get_command

from msbench.errors import MsbenchError
from msbench.model import Origin

_ORIGINS = {"naive": Origin.NAIVE, "library": Origin.LIBRARY, "best": Origin.EXPERT}
_ELSEWHERE = ("tasks", "precision", "executor", "device", "ops_dir", "db", "resume", "batch", "profile_harness")
"""Parameters that say for which tasks, where, or what is shown; the device and the specs are compared by themselves."""

FEW_TASKS = 10
OF_FEW: Mapping[str, Any] = {"hot": True, "budget": 0.5}
OF_MORE: Mapping[str, Any] = {"hot": False, "budget": 0.1}
"""Defaults for few tasks, and for more: all of them are then measured within ten minutes. These are recorded as if they had been typed."""


@dataclass(frozen=True)
class Settings:
    """What a bench does with each task. ``others``: its further parameters by their names; ``seed`` among them, unless any will do."""

    origins: frozenset[Origin]
    cases: frozenset[str]
    others: frozenset[tuple[str, Any]]

    @classmethod
    def of(cls, given: Mapping[str, Any], any_seed: bool) -> Settings:
        """Those of the command's parameters. Raises MsbenchError where they contradict each other."""
        others = {key: value for key, value in given.items() if key not in _ELSEWHERE}
        others |= {key: value for key, value in OF_FEW.items() if others[key] is None}
        wanted = frozenset(origins(others.pop("versions"), others.pop("without")))
        cases = frozenset(others.pop("cases").split("+"))
        if any_seed:
            del others["seed"]
        return cls(wanted, cases, frozenset(others.items()))


@cache
def settings(command: str, any_seed: bool) -> Settings | None:
    """Those of a recorded command, defaults included; None where it is no bench, or one that is no longer understood.

    ``any_seed``: whatever its seed.
    """
    from msbench.cli._app import app

    try:
        program, name, *words = shlex.split(command)
        if (program, name) != ("msbench", "bench"):
            return None
        bench = get_command(app).commands[name]  # type: ignore[attr-defined]
        return Settings.of(bench.make_context(name, words).params, any_seed)
    except Exception:  # what typer's parser says of an option that is not there any more has no public name
        return None


def origins(versions: str, without: str) -> tuple[Origin, ...]:
    """Which versions --versions and --without ask for. Raises MsbenchError where a word means none, or none are left."""
    asked = {Origin.NAIVE, *_named(versions, "--versions")} - _named(without, "--without")
    if not asked:
        raise MsbenchError(f"--without {without} leaves nothing of --versions {versions}.")
    return tuple(origin for origin in _ORIGINS.values() if origin in asked)


def _named(text: str, option: str) -> set[Origin]:
    if text == "all":
        return set(_ORIGINS.values())
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in _ORIGINS:
            raise MsbenchError(f"{option} {word!r}: choose from {', '.join(_ORIGINS)} and all.")
    return {_ORIGINS[word] for word in words}
