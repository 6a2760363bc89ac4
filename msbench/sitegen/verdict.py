"""Sentences made from figures: what a reader should take home before any table."""

from __future__ import annotations

from collections.abc import Sequence

from msbench.model import Outcome, Status
from msbench.sitegen import format as fmt
from msbench.sitegen.entries import Run, Version, profiles_of
from msbench.sitegen.facts import Site
from msbench.store.figures import Ratio

SAME = 0.01
"""Ratios this close to 1 are called the same: measurements stop at an interval of ±1 %."""


def compared(ratio: Ratio, whom: str) -> str:
    """``3.10× as fast as its parent``; a ratio that can't be told from 1 is called so."""
    if abs(ratio.value - 1) <= SAME:
        return f"as fast as {whom} ({fmt.ratio(ratio.value)})"
    if ratio.low <= 1 <= ratio.high:
        ends = fmt.interval(ratio.low, ratio.high)
        return f"not clearly faster or slower than {whom} ({fmt.ratio(ratio.value)}, interval {ends})"
    if ratio.value < 1:
        return f"slower than {whom} ({fmt.ratio(ratio.value)} its speed)"
    return f"{fmt.ratio(ratio.value)} as fast as {whom}"


def task(site: Site, task_id: str) -> str:
    """How far a task has come."""
    best, library, naive = site.best(task_id), site.library(task_id), site.naive(task_id)
    shown = best or (library if library and library.measured else None)
    if shown is None:
        if naive is not None and naive.measured:
            return f"Only the naive kernel has been timed so far; {_roofline(naive)}."
        return "Nothing has been timed on a GPU yet."
    who = f"The best version, {shown.name}, is " if best else f"The library call ({shown.name}) is "
    parts = [compared(shown.over_naive, "the naive kernel")] if shown.over_naive else []
    if best and best.over_library:
        parts += over_libraries(site, best, best.over_library, library)
    score = f"{joined(parts)}, over {counted(len(shown.cases), 'case')}"
    sentence = who + (score if parts else "timed, but not on every case, so it has no score")
    return f"{sentence}; {_roofline(shown)}." if shown.of_roofline else f"{sentence}."


def over_libraries(site: Site, best: Version, over: Ratio, library: Version | None) -> list[str]:
    """``over`` is against those that were timed beside it, among which ``library``, the fastest of all, may not have been."""
    aside = site.compared(best, library) if library else None
    if library is None or aside is None or aside.direct or aside.overall is None:
        slow = library and library.over_naive and library.over_naive.high < 1
        return [compared(over, f"the fastest library call{', which is slower than the naive kernel' if slow else ''}")]
    return [
        compared(over, "the fastest library call beside it"),
        compared(aside.overall, f"{library.name}, timed on another occasion"),
    ]


def _roofline(version: Version) -> str:
    if version.of_roofline is None:
        return "the device's ceilings were not measured"
    return f"it reaches {fmt.percent(version.of_roofline)} of the roofline"


def version(site: Site, v: Version) -> str:
    """Why a version matters, or what was wrong with it."""
    if v.evaluation is None:
        return "Not evaluated yet."
    if v.failed or v.evaluation.status == Status.UNSUPPORTED:
        reason = (v.evaluation.message or "").rstrip(".")
        state = v.state[0].upper() + v.state[1:]
        return f"{state}: {reason}." if reason else f"{state}."
    if not v.measured:
        return _checked(v)
    before = site.predecessor(v)
    over = site.over(v, before) if before else None
    parts = []
    if before and over and before.row.origin != "naive":
        whom = "its parent" if before == site.parent(v) else f"its last working ancestor, {before.name}"
        parts.append(compared(over, whom))
    if v.over_naive and v.row.origin != "naive":
        parts.append(compared(v.over_naive, "the naive kernel"))
    if v.over_library and v.row.origin != "library":
        parts.append(compared(v.over_library, "the fastest library call"))
    clauses = [joined(parts)] if parts else []
    if v.row.origin == "naive":
        clauses = ["the plain kernel that every other version of this task is compared with"]
    elif not parts:
        clauses = ["timed, but not on every case, so it has no score"]
    if v.of_roofline is not None:
        clauses.append(f"reaches {fmt.percent(v.of_roofline)} of the roofline")
    clauses += bottleneck(v, before)
    sentence = "; ".join(clauses) + "."
    return sentence[0].upper() + sentence[1:]


def _checked(v: Version) -> str:
    cases = len({c.case_id for c in v.checks})
    assert v.evaluation is not None and v.device is not None
    if v.evaluation.executor == "recorded":
        return "Answered from a recording; nothing was measured here."
    done = f"Passed {counted(len(v.checks), 'check')} on {counted(cases, 'case')}"
    where = f"the {v.evaluation.executor} executor"
    return (
        f"{done} on {where}; it was not timed, so no speed is claimed." if v.checks else f"Ran on {where}; not timed."
    )


def bottleneck(v: Version, before: Version | None) -> list[str]:
    """Whether the bottleneck moved; empty without a profile."""
    pair = profiles_of(before, v) if before else None
    if pair and pair[0].bottleneck and pair[1].bottleneck:
        was, now = pair[0].bottleneck, pair[1].bottleneck
        return [f"its bottleneck is still {now}" if was == now else f"its bottleneck moved from {was} to {now}"]
    return [f"it is bound by {v.profile.bottleneck}"] if v.profile and v.profile.bottleneck else []


def run(site: Site, r: Run) -> str:
    """What a run came to."""
    tried = [s.outcome for s in r.steps if s.outcome != Outcome.BASELINE]
    improved, equal, slower, checked, failed = (
        tried.count(outcome)
        for outcome in (Outcome.IMPROVED, Outcome.EQUAL, Outcome.SLOWER, Outcome.CHECKED, Outcome.FAILED)
    )
    wasted = len(tried) - improved - equal - slower - checked - failed
    told = [
        *([f"{improved} made it faster"] if improved else []),
        *([f"{equal} changed nothing"] if equal else []),
        *([f"{slower} made it slower"] if slower else []),
        *([f"{checked} passed without being timed"] if checked else []),
        *([f"{failed} failed"] if failed else []),
        *([f"{wasted} brought no new kernel"] if wasted else []),
    ]
    start = f"In {counted(len(tried), 'round')}, {joined(told)}." if told else "No round was finished."
    gain = gained(site, r)
    if gain is None:
        return start
    baseline = r.baseline
    origin = site.versions.get(baseline.version_id or "") if baseline else None
    whom = f"where it started ({origin.name})" if origin else "where it started"
    return f"{start} The best is {compared(gain, whom)}."


def gained(site: Site, r: Run) -> Ratio | None:
    """How many times as fast a run's best version is as the one it started from; None where either has no times."""
    best = site.versions.get(r.row.best_version_id or "")
    start = site.versions.get((r.baseline.version_id or "") if r.baseline else "")
    if best is None or start is None or best.id == start.id:
        return None
    return site.over(best, start)


def joined(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def counted(number: int, thing: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{fmt.count(number)} {thing}{'' if number == 1 else 's'}"
