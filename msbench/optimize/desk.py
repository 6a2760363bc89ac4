"""What a strategy's draft works with: the language model, the known versions, and the engine's tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import RLock

from msbench import operators
from msbench.agents import Trial, VersionBrief
from msbench.conversation import Message, Reply
from msbench.errors import ProviderUnavailable, RecordingDiffers, RecordingEnded, ReplyError, WaitingForAnswer
from msbench.harness.evaluate import Progress
from msbench.optimize.briefings import Briefings
from msbench.optimize.budget import Ledger
from msbench.optimize.comparison import overall, paired, times_ns
from msbench.optimize.evaluating import Evaluating
from msbench.optimize.journal import Journal
from msbench.optimize.judge import USABLE, failure_text
from msbench.providers import Provider
from msbench.providers._stored import stored_reply
from msbench.spec import Operator


class Desk:
    """The desk of one step (``agents.Talk``); ``index`` is its place among those that are drafted at the same time."""

    def __init__(
        self, number: int, index: int, before: int, operator: Operator, provider: Provider, journal: Journal, ledger: Ledger,
        evaluating: Evaluating, briefings: Briefings, lock: RLock, max_tokens: int | None, progress: Progress | None,
        tell: Callable[[str, str, int], None],
    ) -> None:  # fmt: skip
        self._number = number
        self._index = index
        self._before = before  # how many calls the run had before these drafts
        self._said = 0
        self._stored = journal.answers(number)
        self._operator = operator
        self._provider = provider
        self._journal = journal
        self._ledger = ledger
        self._evaluating = evaluating
        self._briefings = briefings
        self._lock = lock
        self._max_tokens = max_tokens
        self._progress = progress
        self._tell = tell

    def __call__(self, agent: str, messages: Sequence[Message]) -> Reply:
        """Ask; a call that is stored is not asked again."""
        self._said += 1
        if self._stored and self._stored[0].row.agent == agent:
            call = self._stored.pop(0)
            return stored_reply(call.row, call.reply)
        place = f"{self._before + self._said:03d}{chr(ord('a') + self._index) if self._index else ''}"
        with self._lock:
            limits = self._ledger.reserve_call(messages, self._max_tokens, self._provider, self._number, agent)
            self._tell("asked", agent, self._number)
            invitation = self._provider.invitation(agent, place)
            if invitation:
                self._tell("invited", invitation, self._number)
            if self._progress:
                self._progress.started(f"step {self._number}: waiting for the {agent}")
        begun = time.monotonic()
        try:
            reply = self._provider.answer(place, agent, messages, limits)
        except ReplyError as error:
            limits.attempts.settle(error.reply, str(error))
            self._journal.add_call(self._number, agent, messages, error, time.monotonic() - begun)
            raise
        except (RecordingEnded, WaitingForAnswer, RecordingDiffers):
            limits.attempts.settle(sent=False)
            raise
        except ProviderUnavailable as error:
            limits.attempts.settle(note=str(error))
            self._ledger.seconds_left()  # where the time is up, that is why
            raise
        limits.attempts.settle(reply)
        self._journal.add_call(self._number, agent, messages, reply, time.monotonic() - begun)
        with self._lock:
            self._tell("answered", agent, self._number)
        return reply

    def version(self, version_id: str) -> VersionBrief:
        """See ``agents.Talk``."""
        return self._briefings.version(self._journal.history(), self._journal.version(version_id))

    def try_out(self, source: str, cases: str = "", *, against: str | None = None, profile: bool = False) -> Trial:
        """See ``agents.Talk``."""
        chosen = operators.select_cases(self._operator, cases) if cases else ()
        beside = self._journal.version(against) if against else None
        results = self._evaluating.tried(self._number, source, chosen, beside, profile)
        own, measured = results[-1], [m.case for m in results[-1].measurements]
        logs = paired(results[0], own, measured) if len(results) > 1 else {}
        seen = [one for one in own.profiles if not one.failure]
        return Trial(
            passed=own.status in USABLE,
            failure="" if own.status in USABLE else failure_text(self._evaluating.told(own, chosen)),
            speedup=overall(logs).value if logs else None,
            times_ns=times_ns(own, measured),
            metrics=seen[-1].metrics if seen else {},
            bottleneck=seen[-1].bottleneck if seen else "",
        )
