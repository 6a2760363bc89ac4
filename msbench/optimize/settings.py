"""What a run was started with, as its row keeps it: enough to resume it from the database alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from msbench.harness.evaluate import Checks, Plan
from msbench.spec import Case, Split


@dataclass(frozen=True)
class Settings:
    """``rounds`` counts proposals, repairs not; ``max_tokens`` is the longest answer asked for (None: any)."""

    plan: Plan
    rounds: int
    max_tokens: int | None

    def stored(self) -> dict[str, Any]:
        """As JSON can hold it."""
        plan = {**asdict(self.plan), "checks": self.plan.checks.value}
        for field in ("cases", "profile_cases"):
            plan[field] = [_case_stored(case) for case in getattr(self.plan, field)]
        return {"plan": plan, "rounds": self.rounds, "max_tokens": self.max_tokens}

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Settings:
        """The inverse of :meth:`stored`."""
        given = dict(stored["plan"])
        given["checks"] = Checks(given["checks"])
        for field in ("cases", "profile_cases"):
            given[field] = tuple(_case(one) for one in given[field])
        return cls(Plan(**given), stored["rounds"], stored["max_tokens"])


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
