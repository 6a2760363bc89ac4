"""Reads the planner's answer: a small JSON object in prose, as models really write it."""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import dataclass
from typing import Any

from msbench.agents._extract import json_objects, without_reasoning

_KEYS = ("plan", "hypothesis", "bottleneck", "predicted_speedup")
_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*(%)?")
_LONGEST = 4000


@dataclass(frozen=True)
class Plan:
    """What the planner means to do. ``predicted_speedup`` is over the parent (1.0: no change); None: not said."""

    plan: str
    hypothesis: str = ""
    bottleneck: str = ""
    predicted_speedup: float | None = None


def parse_plan(reply: str) -> Plan:
    """The plan in ``reply``. Never fails: without JSON the prose is the plan, and missing fields stay empty."""
    text, _ = without_reasoning(reply)
    for found in reversed([*json_objects(text), *_almost_json(text)]):
        if isinstance(found, dict) and any(key in found for key in _KEYS):
            prose = _text(found.get("plan")) or text.partition("{")[0].strip("`\n ").removesuffix("json").strip("`\n ")
            return Plan(
                plan=prose[:_LONGEST],
                hypothesis=_text(found.get("hypothesis"))[:_LONGEST],
                bottleneck=_text(found.get("bottleneck"))[:_LONGEST],
                predicted_speedup=_factor(found.get("predicted_speedup")),
            )
    return Plan(plan=text.strip()[:_LONGEST])


def _almost_json(text: str) -> list[Any]:
    """Objects with trailing commas, comments or Python's quotes: JSON in all but name."""
    found: list[Any] = []
    for match in re.finditer(r"\{[^{}]*\}", text):
        body = re.sub(r"(?m)(?<![:\w\"'])//.*$", "", match[0])
        for read in (lambda s: json.loads(re.sub(r",\s*([}\]])", r"\1", s), strict=False), ast.literal_eval):
            try:
                found.append(read(body))
                break
            except (ValueError, SyntaxError, RecursionError, MemoryError):
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
