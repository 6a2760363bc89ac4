"""Reads the planner's answer: a small JSON object in prose, as models really write it."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msbench.agents._extract import json_objects, without_reasoning

_KEYS = ("plan", "hypothesis", "bottleneck", "predicted_speedup", "predicted_cases")
_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*(%)?")
_LONGEST = 4000
_LONGEST_OBJECT = 20_000


@dataclass(frozen=True)
class Plan:
    """What the planner means to do. ``predicted_speedup`` is over the parent (1.0: no change); None: not said.

    ``predicted_cases``: the same for single cases, by their names, as far as the planner made predictions for them.
    """

    plan: str
    hypothesis: str = ""
    bottleneck: str = ""
    predicted_speedup: float | None = None
    predicted_cases: Mapping[str, float] = field(default_factory=dict)


def parse_plan(reply: str) -> Plan:
    """The plan in ``reply``. Never fails: without JSON the prose is the plan, and missing fields stay empty."""
    text, _ = without_reasoning(reply)
    try:
        return _plan(text)
    except RecursionError:  # an object of a thousand levels
        return Plan(plan=text.strip()[:_LONGEST])


def _plan(text: str) -> Plan:
    for found in reversed([*json_objects(text), *_almost_json(text)]):
        if isinstance(found, dict) and any(key in found for key in _KEYS):
            prose = _text(found.get("plan")) or text.partition("{")[0].strip("`\n ").removesuffix("json").strip("`\n ")
            return Plan(
                plan=prose[:_LONGEST],
                hypothesis=_text(found.get("hypothesis"))[:_LONGEST],
                bottleneck=_text(found.get("bottleneck"))[:_LONGEST],
                predicted_speedup=_factor(found.get("predicted_speedup")),
                predicted_cases=_factors(found.get("predicted_cases")),
            )
    return Plan(plan=text.strip()[:_LONGEST])


def _almost_json(text: str) -> list[Any]:
    """Objects with trailing commas, comments or Python's quotes: JSON in all but name."""
    found: list[Any] = []
    for match in re.finditer(r"\{(?:[^{}]|\{[^{}]*+\})*+\}", text):
        if len(match[0]) > _LONGEST_OBJECT:
            continue
        body = re.sub(r"(?m)(?<![:\w\"'])//.*$", "", match[0])
        for read in (lambda s: json.loads(re.sub(r",\s*([}\]])", r"\1", s), strict=False), ast.literal_eval):
            try:
                found.append(read(body))
                break
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):  # TypeError: a set of sets
                continue
    return found


def _text(value: Any) -> str:
    """A field as prose: lists become lines, objects JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return "\n".join(f"- {_text(item)}" for item in value)
    return json.dumps(value, ensure_ascii=False)


def _factors(value: Any) -> dict[str, float]:
    """Factors by case; what is none is left out."""
    found = {name: _factor(one) for name, one in value.items()} if isinstance(value, dict) else {}
    return {str(name).replace(" ", ""): factor for name, factor in found.items() if factor is not None}


def _factor(value: Any) -> float | None:
    """``1.8``, ``"1.8x"``, ``"about 2-3x"`` (its cautious end) or ``"20 %"`` as a factor; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        match = _FACTOR.search(value)
        if not match:
            return None
        value = 1 + float(match[1]) / 100 if match[2] else float(match[1])
    if not isinstance(value, (int, float)):
        return None
    try:
        factor = float(value)
    except OverflowError:
        return None
    return factor if math.isfinite(factor) and 0 < factor < 1e6 else None
