"""Independent attempts at the naive kernel, of which the best counts: what any search has to beat.

See docs/strategies.md for what the literature says, and what is done here.
"""

from __future__ import annotations

from collections.abc import Sequence

from msbench.agents import Briefing, Draft, History, Proposal, Talk, conversation, kernel_from

TOGETHER = 4
"""So many attempts are drafted side by side and measured in one group: with what they are held against, 8 versions."""

_PLAN = (
    "Write the fastest kernel that you can. This is attempt {number} of several; none sees the others, so choose the "
    "approach that you think is best, and carry it out in full."
)


class BestOfN:
    """See the module's docstring; n is the number of rounds."""

    name = "best_of_n"

    def ask(self, history: History) -> Sequence[Proposal]:
        """The next attempts, each from the naive kernel."""
        naive = history.attempts[0].version
        assert naive is not None
        done = len(history.attempts) - 1
        number = min(TOGETHER, max(history.rounds_left, 0))
        return [Proposal(naive, "sample", str(done + k)) for k in range(1, number + 1)]

    def draft(self, proposal: Proposal, briefing: Briefing, talk: Talk) -> Draft:
        """One call, with no word of earlier attempts."""
        plan = _PLAN.format(number=proposal.guidance)
        source, problem = kernel_from(
            "coder", conversation("coder", briefing, plan=plan, hypothesis=""), briefing, talk
        )
        return Draft(source, plan, problem=problem)


def create() -> BestOfN:
    """The strategy."""
    return BestOfN()
