"""The planner's answer is read as models write it, and never stops a run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.agents._plan import Plan, parse_plan

ASKED = {"bottleneck": "memory", "plan": "Load 16 bytes.", "hypothesis": "Fewer loads.", "predicted_speedup": 1.5}
WANTED = Plan("Load 16 bytes.", "Fewer loads.", "memory", 1.5)


@pytest.mark.parametrize(
    "reply",
    [
        "Some thoughts.\n\n```json\n" + json.dumps(ASKED, indent=2) + "\n```",
        json.dumps(ASKED),
        "<think>" + json.dumps({**ASKED, "plan": "no"}) + "</think>" + json.dumps(ASKED),
        "First idea: " + json.dumps({**ASKED, "plan": "no"}) + "\nBetter: " + json.dumps(ASKED),
        "```\n" + json.dumps(ASKED, indent=2).replace('"memory",', '"memory",  // surely') + "\n```",
        json.dumps(ASKED)[:-1] + ",}",
        repr(ASKED),
        "The set {1, 2} first. " + json.dumps(ASKED),
    ],
)
def test_the_object_is_found(reply: str) -> None:
    assert parse_plan(reply) == WANTED


@pytest.mark.parametrize(
    ("said", "factor"),
    [
        (2, 2.0), ("1.8x", 1.8), ("about 2-3x", 2.0), ("~1.25×", 1.25), ("20 %", 1.2), ("35%", 1.35), (0.9, 0.9),
        (None, None), ("much", None), (0, None), (-1, None), (True, None), ([2], None), ("1e400", 1.0), (1e300, None),
    ],
)  # fmt: skip
def test_predictions_in_any_spelling(said: object, factor: float | None) -> None:
    assert parse_plan(json.dumps({"plan": "p", "predicted_speedup": said})).predicted_speedup == factor


def test_missing_fields_stay_empty() -> None:
    assert parse_plan('{"plan": ["a", "b"]}') == Plan("- a\n- b")
    assert parse_plan('Use shared memory.\n\n```json\n{"hypothesis": "h"}\n```') == Plan("Use shared memory.", "h")
    assert parse_plan("Use shared memory.") == Plan("Use shared memory.")


@given(st.text() | st.recursive(st.none() | st.text() | st.floats(), lambda s: st.dictionaries(st.sampled_from(list(ASKED)), s) | st.lists(s)).map(json.dumps))  # fmt: skip
def test_it_never_fails(reply: str) -> None:
    plan = parse_plan(reply)
    assert plan.predicted_speedup is None or plan.predicted_speedup > 0


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ({"N=64": 1.5, "N = 128": "2x"}, {"N=64": 1.5, "N=128": 2.0}),
        ({"N=64": "who knows", "N=128": 1.1}, {"N=128": 1.1}),
        ([1.5], {}),
        (None, {}),
    ],
)
def test_predictions_for_single_cases_are_read_as_far_as_they_are_factors(
    said: object, understood: dict[str, float]
) -> None:
    reply = f"It gains.\n\n```json\n{json.dumps({**ASKED, 'predicted_cases': said})}\n```"
    assert parse_plan(reply).predicted_cases == understood
    sloppy = parse_plan('{"plan": "p", "predicted_cases": {"N=64": 1.5,},}  // so')
    assert sloppy.predicted_cases == {"N=64": 1.5} and sloppy.plan == "p"
