"""Sentences made from figures: the main result, before any table."""

from __future__ import annotations

from collections.abc import Sequence

from msbench.figures.ratios import Ratio
from msbench.figures.twins import DIFFERENT
from msbench.model import Outcome, Status
from msbench.sitegen import format as fmt
from msbench.sitegen.entries import Run, Version, profiles_of
from msbench.sitegen.facts import Site
from msbench.sitegen.told import told

SAME = 0.01
"""Ratios this close to 1 are called the same: measurements stop at an interval of ±1 %."""


def compared(ratio: Ratio, whom: str) -> str:
    """``3.10× (3.05 to 3.15) as fast as its parent``; a ratio that can't be told from 1 is called so."""
    said = fmt.ranged(ratio)
    if abs(ratio.value - 1) <= SAME:
        return f"as fast as {whom}, {said}"
    if ratio.low <= 1 <= ratio.high:
        return f"not clearly faster or slower than {whom}, {said}"
    if ratio.value < 1:
        return f"slower than {whom}, {said} its speed"
    return f"{said} as fast as {whom}"


def rival(site: Site, task_id: str) -> str:
    """What takes the part of a vendor's library: its fastest call, or the reference implementation where there is none."""
    library = site.library(task_id)
    return "the reference implementation" if library and library.is_reference else "the fastest library call"


def task(site: Site, task_id: str) -> str:
    """How far a task has come."""
    best, library, naive = site.best(task_id), site.library(task_id), site.naive(task_id)
    shown = best or (library if library and library.measured else None)
    if shown is None:
        if naive is not None and naive.measured:
            return f"Only the naive kernel has been timed so far; {_roofline(site, naive)}."
        return "Nothing has been timed on a GPU yet."
    if best:
        who = f"The best version, {shown.name}, is "
    elif shown.is_reference:
        who = f"The reference implementation ({shown.name}) is "
    else:
        who = f"The library call ({shown.name}) is "
    parts = [compared(shown.over_naive, "the naive kernel")] if shown.over_naive else []
    if best and best.over_library:
        slow = library and library.over_naive and library.over_naive.high < 1
        parts.append(
            compared(
                best.over_library, rival(site, task_id) + (", which is slower than the naive kernel" if slow else "")
            )
        )
    score = f"{joined(parts)}, over {counted(len(shown.cases), 'case')}"
    sentence = who + (score if parts else "timed, but not on every case, so it has no score")
    return f"{sentence}; {_roofline(site, shown)}."


def _roofline(site: Site, version: Version) -> str:
    found = reached(site, version)
    return "it " + joined(found) if found else "the device's ceilings were not measured"


def reached(site: Site, version: Version) -> list[str]:
    """``reaches 87 % (86 to 88) of the roofline``, and of the cases that are nothing but a launch how near they come to an
    empty one."""
    found = []
    roofline, launch = site.reached(version)
    if roofline is not None:
        found.append(f"reaches {fmt.percent_ranged(roofline)} of the roofline")
    if launch is not None:
        small = sum(c.bound is not None and c.bound.term == "launch" for c in version.cases)
        found.append(f"takes {fmt.ranged(fmt.inverse(launch))} an empty call on {counted(small, 'launch-bound case')}")
    return found


def version(site: Site, v: Version) -> str:
    """A version's result, or what was wrong with it."""
    if v.evaluation is None:
        return "Not evaluated yet."
    if v.failed or v.evaluation.status == Status.UNSUPPORTED:
        reason = (v.evaluation.message or "").rstrip(".")
        state = v.state[0].upper() + v.state[1:]
        return (f"{state}: {reason}." if reason else f"{state}.") + passed_since(site, v)
    if not v.measured:
        return _checked(v)
    before = site.predecessor(v)
    found = site.compared(v, before) if before else None
    parts = []
    if before and found and found.overall and before.row.origin != "naive":
        whom = "its parent" if before == site.parent(v) else f"its last working ancestor, {before.name}"
        apart = fmt.day(found.measured_at) != fmt.day(v.measured_at)
        parts.append(compared(found.overall, whom) + (f" (on {fmt.day(found.measured_at)})" if apart else ""))
    if v.over_naive and v.row.origin != "naive":
        parts.append(compared(v.over_naive, "the naive kernel"))
    if v.over_library and v.row.origin != "library":
        parts.append(compared(v.over_library, rival(site, v.task.id)))
    clauses = [joined(parts)] if parts else []
    if v.row.origin == "naive":
        clauses = ["the plain kernel, the reference for every other version of this task"]
    elif not parts:
        clauses = ["timed, but not on every case, so it has no score"]
    clauses += [joined(reached(site, v))] if reached(site, v) else []
    clauses += bottleneck(site, v, before)
    sentence = "; ".join(clauses) + "."
    return sentence[0].upper() + sentence[1:]


def passed_since(site: Site, v: Version) -> str:
    """A sentence if a version that failed has passed elsewhere since: the headers that it includes are no part of it."""
    known = v.evaluation
    later = (e for e in v.evaluations if e.status == Status.PASSED and known and e.started_at > known.started_at)
    since = next((e for e in later if known and e.harness != known.harness), None)
    if since is None:
        return ""
    where, day = site.devices[since.device_id].name, fmt.day(since.started_at)
    return f" On {where} it passed on {day}, after its headers or the evaluator had changed."


def owed(v: Version) -> list[str]:
    """A sentence for each large case on which its time, and no library's, depends on the inputs: what counts is the slower one."""
    return [
        f"On {case.case.name} it takes {fmt.ratio(twin.median_ns / case.median_ns)} as long with {twin.case.distribution}"
        f" inputs as with {case.case.distribution} ones, and no library that was timed on both differs by more than"
        f" {fmt.percent(DIFFERENT - 1)}: in the standings its slower time counts."
        for case in v.cases
        for twin in case.twins
        if twin.alone and twin.median_ns and case.median_ns
    ]


def _checked(v: Version) -> str:
    cases = len({c.case_id for c in v.checks})
    assert v.evaluation is not None and v.device is not None
    if v.evaluation.executor == "recorded":
        return "Answered from a recording; nothing was measured here."
    done = f"Passed {counted(len(v.checks), 'check')} on {counted(cases, 'case')}"
    where = f"the {v.evaluation.executor} executor"
    times = "its times are not kept" if v.evaluation.executor == "cuda" else "it was not timed"
    return f"{done} on {where}; {times}, so no speed is claimed." if v.checks else f"Ran on {where}; {times}."


def bottleneck(site: Site, v: Version, before: Version | None) -> list[str]:
    """Whether the bottleneck moved, on the case on which that was seen; empty without a profile."""
    pair = profiles_of(before, v) if before else None
    if pair and pair[0].bottleneck and pair[1].bottleneck:
        was, now, case = pair[0].bottleneck, pair[1].bottleneck, site.cases[pair[1].case_id].name
        moved = f"is still {now}" if was == now else f"moved from {was} to {now}"
        return [f"on {case} its bottleneck {moved}"]
    if v.profile and v.profile.bottleneck:
        return [f"on {site.cases[v.profile.case_id].name} it is bound by {v.profile.bottleneck}"]
    return []


def run(site: Site, r: Run) -> str:
    """What a run came to."""
    tried = [s.outcome for s in r.steps if s.outcome != Outcome.BASELINE]
    improved, equal, slower, checked, failed = (
        tried.count(outcome)
        for outcome in (Outcome.IMPROVED, Outcome.EQUAL, Outcome.SLOWER, Outcome.CHECKED, Outcome.FAILED)
    )
    wasted = len(tried) - improved - equal - slower - checked - failed
    said = [
        *([f"{improved} made it faster"] if improved else []),
        *([f"{equal} changed nothing"] if equal else []),
        *([f"{slower} made it slower"] if slower else []),
        *([f"{checked} passed without being timed"] if checked else []),
        *([f"{failed} failed"] if failed else []),
        *([f"{wasted} produced no new kernel"] if wasted else []),
    ]
    start = f"In {counted(len(tried), 'round')}, {joined(said)}." if said else "No round was finished."
    gain = gained(site, r)
    if gain is None:
        return start
    baseline = r.baseline
    origin = site.versions.get(baseline.version_id or "") if baseline else None
    whom = f"where it started ({origin.name})" if origin else "where it started"
    return f"{start} The best is {compared(gain, whom)}."


def gained(site: Site, r: Run) -> Ratio | None:
    """How many times as fast a run's best version was as the one it started from, in the session of its step; None where either
    has no times."""
    best, start = site.versions.get(r.row.best_version_id or ""), r.baseline
    if best is None or start is None or best.id == start.version_id:
        return None
    found = [told(site, r, s).over_naive for s in r.steps if s.version_id == best.id and s.outcome == Outcome.IMPROVED]
    return found[-1] if found else None


def joined(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def counted(number: int, thing: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{fmt.count(number)} {thing}{'' if number == 1 else 's'}"
