"""Four agents in five rounds, after Astra (Wei et al. 2025): testing, profiling, planning, coding; each round goes on from the last.

See docs/strategies.md for what the source says, and what is done here.
"""

from __future__ import annotations

from typing import Any

from msbench.agents import (
    Briefing,
    Draft,
    History,
    Proposal,
    Talk,
    conversation,
    json_objects,
    kernel_from,
)
from msbench.errors import UnknownNameError
from msbench.operators import select_cases

ROUNDS = 5
MOST_TESTS = 6


class Astra:
    """See the module's docstring."""

    name = "astra"

    def ask(self, history: History) -> Proposal | None:
        """From the last version, whatever became of it: nothing is taken back."""
        if len(history.attempts) > ROUNDS:
            return None
        last = next(attempt for attempt in reversed(history.attempts) if attempt.version)
        assert last.version is not None
        return Proposal(last.version, "optimize")

    def draft(self, proposal: Proposal, briefing: Briefing, talk: Talk) -> Draft:
        """Tests once; then a profile in words, suggestions, and a kernel, on which the tests are run."""
        notes = self._tests(briefing, talk)
        tested = next((a.notes["tested"] for a in reversed(briefing.attempts) if "tested" in a.notes), "")
        profile = talk("profiler", conversation("astra_profiler", briefing)).text.strip()
        suggestions = talk(
            "planner", conversation("astra_planner", briefing, profile=profile, tested=tested)
        ).text.strip()
        opening = conversation("coder", briefing, plan=suggestions, hypothesis="")
        source, problem = kernel_from("coder", opening, briefing, talk)
        if source is not None and notes["tests"]:
            trial = talk.try_out(source, "+".join(notes["tests"]))
            notes["tested"] = "Its tests pass." if trial.passed else f"A test fails: {trial.failure}"
        return Draft(source, suggestions, problem=problem, notes=notes)

    def _tests(self, briefing: Briefing, talk: Talk) -> dict[str, Any]:
        """The testing agent's cases: those of the first round, or those that it names now."""
        known = next((a.notes["tests"] for a in briefing.attempts if "tests" in a.notes), None)
        if known is not None:
            return {"tests": known}
        said = talk("tester", conversation("astra_tester", briefing)).text
        named = [one for found in json_objects(said) if isinstance(found, dict) for one in found.get("tests") or ()]
        return {"tests": [one for one in named if isinstance(one, str) and _is_case(one, briefing)][:MOST_TESTS]}


def _is_case(text: str, briefing: Briefing) -> bool:
    """Whether it names one case of the operator, within the declared ranges."""
    try:
        return "=" in text and len(select_cases(briefing.operator, text)) == 1
    except UnknownNameError:
        return False


def create() -> Astra:
    """The strategy."""
    return Astra()
