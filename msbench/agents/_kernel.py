"""Asks an agent for a kernel, once more if the answer can't be used."""

from __future__ import annotations

from collections.abc import Sequence

from msbench.agents._briefing import Briefing
from msbench.agents._extract import extract_kernel
from msbench.agents._prompts import reformat_request
from msbench.agents._protocol import Talk
from msbench.conversation import Message
from msbench.errors import ReplyError
from msbench.model import Candidate


def kernel_from(agent: str, opening: Sequence[Message], briefing: Briefing, talk: Talk) -> tuple[str | None, str]:
    """The agent's kernel, after one request to reformat if need be; or None and the problem."""
    messages = list(opening)
    problem = ""
    for _ in range(2):
        reply = talk(agent, messages)
        try:
            return _own_work(extract_kernel(reply.text, briefing.operator.name, briefing.parent.source), briefing), ""
        except ReplyError as error:
            problem = str(error)
            again = reformat_request(briefing.operator.name, problem)
            messages = [*messages, Message("assistant", reply.text), again]
    return None, problem


def _own_work(source: str, briefing: Briefing) -> str:
    """``source``, unless it asks for a vendor library: that is a baseline, not a kernel."""
    link = Candidate(briefing.operator.name, briefing.precision, source).link
    if link:
        raise ReplyError(f"The kernel links {', '.join(link)}: write it without a vendor library.", "library")
    return source
