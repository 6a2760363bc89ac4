"""Renders the prompts in ``prompts/*.md`` from a briefing. Equal briefings give equal text: no clocks, no run ids."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from msbench.agents._briefing import Briefing
from msbench.agents._hardware import architecture
from msbench.conversation import Message


def conversation(agent: str, briefing: Briefing, *, text: str | None = None, **particulars: Any) -> list[Message]:
    """The opening of a conversation: the system message, and ``prompts/<agent>.md``, or the template ``text``, filled in."""
    shared = {"b": briefing, "architecture": architecture(briefing.device)}
    template = f"{agent}.md" if text is None else _environment().from_string(text)
    return [
        Message("system", _render("system.md", **shared)),
        Message("user", _render(template, **shared, **particulars)),
    ]


def reformat_request(operator: str, problem: str) -> Message:
    """The request for the same kernel in the form that was asked for."""
    return Message("user", _render("reformat.md", operator=operator, problem=problem))


def _render(template: str | Template, **values: Any) -> str:
    return _environment().get_template(template).render(**values).strip() + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(
        time=_time, size=_size, rate=_rate, factor=_factor, interval=_interval, indented=_indented
    )
    return environment


def _scaled(value: float, units: tuple[str, ...], step: float = 1000.0) -> str:
    for unit in units[:-1]:
        if abs(value) < step:
            return f"{value:.3g} {unit}"
        value /= step
    return f"{value:.3g} {units[-1]}" if value < 999.5 else f"{value:.0f} {units[-1]}"


def _time(ns: float | None) -> str:
    return "-" if ns is None else _scaled(ns, ("ns", "us", "ms", "s"))


def _size(nbytes: float) -> str:
    return _scaled(nbytes, ("B", "KiB", "MiB", "GiB"), 1024.0)


def _rate(per_s: float, unit: str) -> str:
    return _scaled(per_s, ("", "k", "M", "G", "T")) + unit


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _interval(value: tuple[float, float, float] | None) -> str:
    return "-" if value is None else f"{value[0]:.3f}x [{value[1]:.3f}, {value[2]:.3f}]"


def _indented(text: str, width: int = 2) -> str:
    return text.strip().replace("\n", "\n" + " " * width)
