"""How we know: the trials of the evaluator itself, and their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msbench.figures.proofs import LONG_NS, Proof, proofs
from msbench.model import Study, Trial
from msbench.sitegen import format as fmt
from msbench.sitegen import sources, trials
from msbench.sitegen.facts import Site
from msbench.sitegen.margins import SHIFT_NS, margins
from msbench.sitegen.page import Page
from msbench.sitegen.plots import trial_charts

NAVIGATION = (("How we know", "how.html"),)

COMMANDS: Mapping[Study, str] = {
    Study.EXPLOITS: "msbench exploits",
    Study.MUTANTS: "msbench mutants --record",
    Study.SAME: "msbench study",
    Study.SLOWDOWN: "msbench study",
    Study.FAULTS: "python -m tests.faults.study",
    Study.THROUGHPUT: "msbench bench --profile-harness",
}
"""What records a study that a database lacks."""

TIMED = (Study.SAME, Study.SLOWDOWN, Study.THROUGHPUT)
"""Studies whose recordings on a CPU are ignored: its times are never shown."""

MISTAKES = 12
"""How many kinds of mistake the table shows; those that were not rejected come before the others."""


@dataclass(frozen=True)
class Recording:
    """A proof, with the sentence that says where it comes from."""

    proof: Proof
    label: str

    @property
    def where(self) -> str:
        """The device, for a column's head."""
        return self.proof.device.name


def pages(site: Site) -> Iterator[Page]:
    """The one page."""
    found = {study: recordings(site, study) for study in Study}
    exploits = found[Study.EXPLOITS]
    same, slowed = (trials.pairs(_of_one(found[study])) for study in (Study.SAME, Study.SLOWDOWN))
    verdicts = trials.verdicts(_of_one(found[Study.THROUGHPUT]))
    shown_paces = paces(site)
    itself = trial_charts.against_itself("two-copies", same, slowed)
    time = trial_charts.where_time_goes("where-time-goes", verdicts)
    context = {
        "recordings": found,
        "commands": COMMANDS,
        "headlines": headlines(found, shown_paces),
        "tricks": trials.tricks([one.proof for one in exploits]),
        "exploits": [(one, trials.refusals(one.proof)) for one in exploits],
        "later": later(exploits),
        "mutants": [(one, trials.mistakes(one.proof.trials)) for one in found[Study.MUTANTS]],
        "shown_mistakes": MISTAKES,
        "agreement": trials.agreement(same),
        "limits": trials.Limits(),
        "slowed": slowed,
        "slowed_by_length": [
            [pair for pair in slowed if (pair.duration_ns >= LONG_NS) is longer] for longer in (True, False)
        ],
        "long_ns": LONG_NS,
        "unmeasured": sum(len(_of_one(found[s])) for s in (Study.SAME, Study.SLOWDOWN)) - len(same) - len(slowed),
        "disturbed": sum(pair.disturbed for pair in (*same, *slowed)),
        "itself": itself,
        "studied": list(
            {(r.label, r.proof.commands): r for r in (*found[Study.SAME], *found[Study.SLOWDOWN])}.values()
        ),
        "faults": [(one, trials.kills(one.proof.trials), others(one.proof)) for one in found[Study.FAULTS]],
        "paces": [(pace, fmt.day(pace.created_at)) for pace in shown_paces],
        "verdicts": verdicts,
        "bars": trial_charts.BARS,
        "time": time,
        "margins": margins(site),
        "measured": sources.label(site, site.versions.values()),
        "most_shift_ns": SHIFT_NS,
    }
    yield Page(
        "how.html",
        "how.html",
        "How we know",
        "Attempts to cheat, confuse and break the evaluator behind these figures, and their results.",
        context,
        charts=itself is not None or time is not None,
    )


def recordings(site: Site, study: Study) -> list[Recording]:
    """The newest recording on a GPU and the newest on a CPU; of kills all on that GPU and on that CPU."""
    chosen: dict[str, str] = {}
    found = []
    for proof in proofs(site.store, study):
        device = proof.device
        if device.kind != "cuda" and study in TIMED:
            continue
        if chosen.setdefault(device.kind, device.id) == device.id:
            found.append(Recording(proof, label(site, proof)))
    return found


def label(site: Site, proof: Proof) -> str:
    """Device, day and the evaluator's version, and the day of the newest figures here if that is another."""
    driver = f" (driver {proof.device.driver})" if proof.device.driver else ""
    said = f"Recorded on {proof.device.name}{driver} on {fmt.day(proof.created_at)}, harness {proof.harness[:12]}"
    newest = max((e.started_at for e in site.evaluations.values() if not e.recorded_from), default="")
    if newest and fmt.day(newest) != fmt.day(proof.created_at):
        said += f"; the newest evaluation here is of {fmt.day(newest)}"
    return f"{said}."


def later(found: Sequence[Recording]) -> Recording | None:
    """The last recording, if the one before is from another version of the evaluator: it may find what the other missed."""
    in_turn = sorted(found, key=lambda one: one.proof.created_at)
    return in_turn[-1] if len({one.proof.harness for one in in_turn[-2:]}) == 2 else None


def paces(site: Site) -> list[trials.Pace]:
    """Of each command that timed verdicts on a GPU the newest recording."""
    gpus = {proof.device.id for proof in proofs(site.store, Study.THROUGHPUT) if proof.device.kind == "cuda"}
    return trials.paces(one for one in site.store.trials(Study.THROUGHPUT) if one.device_id in gpus)


def headlines(
    found: Mapping[Study, Sequence[Recording]], paces: Sequence[trials.Pace]
) -> list[tuple[str, str, str, str]]:
    """The figures at the top, as (value, its interval, its meaning, its day); an unrecorded study has none."""
    shown: list[tuple[str, str, str, str]] = []
    if found[Study.EXPLOITS]:
        best = found[Study.EXPLOITS][0]
        sums = trials.refusals(best.proof)
        what = f"cheating kernels refused on {best.where}"
        shown.append((*_proportion(sums.refused, sums.tricks), what, _day(found[Study.EXPLOITS][:1])))
    if found[Study.MUTANTS]:
        wrong = found[Study.MUTANTS][:1]
        what = f"wrong kernels rejected on {wrong[0].where} wherever they are wrong"
        shown.append((*_proportion(wrong[0].proof.held, wrong[0].proof.total), what, _day(wrong)))
    agreement = trials.agreement(trials.pairs(_of_one(found[Study.SAME])))
    if agreement:
        what = f"identical pairs found equal on {found[Study.SAME][0].where}"
        shown.append((*_proportion(agreement.covered, agreement.pairs), what, _day(found[Study.SAME][:1])))
    if found[Study.SLOWDOWN]:
        slowed = found[Study.SLOWDOWN][:1]
        what = f"injected slowdowns found on {slowed[0].where}"
        shown.append((*_proportion(slowed[0].proof.held, slowed[0].proof.total), what, _day(slowed)))
    for where in dict.fromkeys(one.where for one in found[Study.FAULTS]):
        there = [one for one in found[Study.FAULTS] if one.where == where]
        killed = [t for one in there for t in one.proof.trials if trials.killed(t)]
        if killed:
            left = sum(t.held for t in killed)
            shown.append((*_proportion(left, len(killed)), f"kills on {where} that left no trace", _day(there)))
    if paces:
        newest = paces[0]
        shown.append(
            (fmt.count(newest.per_hour), "", "candidates judged per hour on one GPU", fmt.day(newest.created_at))
        )
    return shown


def _day(recorded: Sequence[Recording]) -> str:
    """The day of some recordings; of several days the first and the last."""
    days = [fmt.day(instant) for instant in sorted(one.proof.created_at for one in recorded)]
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def _proportion(successes: int, trials: int) -> tuple[str, str]:
    """``39 of 40``, and how sure that is: ``86.8 to 99.9 %``; nothing of none."""
    return f"{successes} of {trials}", fmt.sure(successes, trials) if trials else ""


def _of_one(found: Sequence[Recording]) -> Sequence[Trial]:
    return found[0].proof.trials if found else ()


def others(proof: Proof) -> list[dict[str, object]]:
    """Everything but the kills that held: what did not hold comes first.

    One line each; kills of a command that did not hold for the same reason have one line together, with the first of them.
    """
    shown = [trial for trial in proof.trials if not (trials.killed(trial) and trial.held)]
    alike: dict[tuple[str, ...], list[Trial]] = {}
    for trial in sorted(shown, key=lambda trial: trial.held):
        command = trials.word(trial.details, "command")
        same = (command, trials.reason(trial)) if trials.killed(trial) else (trial.subject,)
        alike.setdefault(same, []).append(trial)
    return [
        {
            "trial": first,
            "count": 1 + len(more),
            "kind": "kill" if trials.killed(first) else trials.word(first.details, "kind") or first.subject,
            "command": trials.word(first.details, "command"),
            "point": trials.word(first.details, "point"),
        }
        for first, *more in alike.values()
    ]
