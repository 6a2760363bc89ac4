"""Greedy hill climbing with a planner, a coder and a debugger.

profile -> classify the bottleneck -> show the agents only the counters that bear on it -> plan -> code -> debug what
failed -> keep the best. When two rounds in a row brought nothing, the next one must try a different direction.
"""

from __future__ import annotations

import random

from msbench.agents import (
    DEBUG,
    Attempt,
    Briefing,
    Draft,
    History,
    Proposal,
    Talk,
    conversation,
    kernel_from,
    parse_plan,
)
from msbench.model import Outcome

DEBUG_ATTEMPTS = 2
"""How often one draft is repaired before the search goes on from the best version instead."""

PATIENCE = 2
"""Rounds without improvement before a different direction is asked for."""

DIRECTIONS = {
    "memory": (
        "Move fewer bytes: fuse passes so that each input is read once, keep what is used twice on chip.",
        "Keep more bytes in flight: wider loads (16 bytes a thread), several loads before the first use, more blocks.",
        "Make every sector count: coalesced addresses, a layout through shared memory without bank conflicts.",
        "Use the L2: order the blocks so that what one read is there for the next; mark streams with __ldcs, __stcs.",
    ),
    "compute": (
        "Use the tensor cores, if the accuracy allows it, with fragments fed from shared memory.",
        "Give each thread a larger tile of results in registers, so that one load feeds more arithmetic.",
        "Overlap loads with arithmetic: double-buffered shared memory, cp.async.",
        "Do less work: hoist invariants, cheaper equivalent formulas, no divisions or branches in the inner loop.",
    ),
    "latency": (
        "Spread the work over the whole GPU: split a long dimension over several blocks, and combine their results.",
        "Fewer launches and fewer barriers: one kernel instead of two, warp shuffles instead of shared memory trees.",
        "More independent work a thread: unroll, several rows or elements at once, loads issued ahead of their use.",
        "Less start-up cost: smaller blocks for small sizes, no workspace, no shared memory that limits occupancy.",
    ),
}
"""What usually helps, by bottleneck: shown when the search is stuck, in an order that the seed draws."""


class CudaMaster:
    """See the module's docstring."""

    name = "cudamaster"

    def ask(self, history: History) -> Proposal:
        """Repair the last draft if it failed and has attempts left; else go on from the best version."""
        last = history.attempts[-1]
        if last.outcome is Outcome.FAILED and last.version and _repairs(history, last) < DEBUG_ATTEMPTS:
            return Proposal(last.version, DEBUG)
        best = history.best
        assert best.version is not None  # the baseline at least
        rounds = [a for a in history.attempts if a.number > best.number and a.action != DEBUG]
        if len(rounds) < PATIENCE:
            return Proposal(best.version, "optimize")
        return Proposal(best.version, "explore", _direction(history, best))

    def draft(self, proposal: Proposal, briefing: Briefing, talk: Talk) -> Draft:
        """One conversation with the debugger, or one with the planner and one with the coder."""
        if proposal.action == DEBUG:
            return self._debug(briefing, talk)
        opening = conversation("planner", briefing, guidance=proposal.guidance)
        plan = parse_plan(talk("planner", opening).text)
        source, problem = kernel_from(
            "coder", conversation("coder", briefing, plan=plan.plan, hypothesis=plan.hypothesis), briefing, talk
        )
        notes = {"diagnosis": plan.bottleneck} if plan.bottleneck else {}
        return Draft(source, plan.plan, plan.hypothesis, plan.predicted_speedup, problem, notes, plan.predicted_cases)

    def _debug(self, briefing: Briefing, talk: Talk) -> Draft:
        failed = next(a for a in reversed(briefing.attempts) if a.version == briefing.parent.id)
        log = briefing.parent.failure.log if briefing.parent.failure else ""
        opening = conversation("debugger", briefing, plan=failed.plan, log=_excerpt(log))
        source, problem = kernel_from("debugger", opening, briefing, talk)
        return Draft(source, failed.plan, failed.hypothesis, failed.predicted_speedup, problem)


def create() -> CudaMaster:
    """The strategy."""
    return CudaMaster()


def _repairs(history: History, failed: Attempt) -> int:
    """How many repairs in a row led to ``failed``."""
    count, step = 0, failed
    while step.action == DEBUG and step.parent:
        count += 1
        parent = history.of_version(step.parent)
        if parent is None:
            break
        step = parent
    return count


def _direction(history: History, best: Attempt) -> str:
    """A direction for ``best``'s bottleneck that this run was not yet sent in, in the seed's order."""
    directions = list(DIRECTIONS.get(best.bottleneck) or [d for some in DIRECTIONS.values() for d in some])
    random.Random(history.seed).shuffle(directions)
    explored = sum(a.action == "explore" for a in history.attempts)
    return (
        "The last rounds brought no improvement. Leave that line of thought, and start with this question: "
        + directions[explored % len(directions)]
    )


def _excerpt(log: str, longest: int = 4000) -> str:
    """The beginning and the end of a long log."""
    if len(log) <= longest:
        return log
    return f"{log[: longest * 3 // 4]}\n[... {len(log) - longest} characters left out ...]\n{log[-longest // 4 :]}"
