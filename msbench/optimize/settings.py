"""What a run was started with, as its row keeps it: enough to resume it from the database alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from msbench.harness.evaluate import Checks, Plan
from msbench.model import ProfileView
from msbench.spec import Case, Split


@dataclass(frozen=True)
class Settings:
    """``rounds`` counts proposals, repairs not; ``max_tokens`` is the longest answer asked for (None: any).

    ``start``: the version that the run goes on from. ``knowledge``: what prompts tell of other tasks; it is kept, since
    the databases go on to grow and prompts must not.
    """

    plan: Plan
    rounds: int
    max_tokens: int | None
    start: str | None = None
    profile_view: ProfileView = ProfileView.FILTERED
    knowledge: tuple[str, ...] = ()

    def stored(self) -> dict[str, Any]:
        """As JSON can hold it."""
        plan = {**asdict(self.plan), "checks": self.plan.checks.value}
        for field in ("cases", "profile_cases"):
            plan[field] = [_case_stored(case) for case in getattr(self.plan, field)]
        return {
            "plan": plan,
            "rounds": self.rounds,
            "max_tokens": self.max_tokens,
            "start": self.start,
            "profile_view": self.profile_view.value,
            "knowledge": list(self.knowledge),
        }

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Settings:
        """The inverse of :meth:`stored`; what older runs did not store has its default."""
        given = dict(stored["plan"])
        given["checks"] = Checks(given["checks"])
        given.pop("settle", None)  # of older runs, all of which had the default
        for field in ("cases", "profile_cases"):
            given[field] = tuple(_case(one) for one in given[field])
        return cls(
            Plan(**given),
            stored["rounds"],
            stored["max_tokens"],
            stored.get("start"),
            ProfileView(stored.get("profile_view", ProfileView.FILTERED)),
            tuple(stored.get("knowledge", ())),
        )


def _case_stored(case: Case) -> dict[str, Any]:
    return {
        "dims": [list(pair) for pair in case.dims],
        "split": case.split.value,
        "distribution": case.distribution,
        "scalars": [list(pair) for pair in case.scalars],
    }


def _case(stored: dict[str, Any]) -> Case:
    return Case(
        dims=tuple((str(name), int(size)) for name, size in stored["dims"]),
        split=Split(stored["split"]),
        distribution=stored["distribution"],
        scalars=tuple((str(name), value) for name, value in stored["scalars"]),
    )
