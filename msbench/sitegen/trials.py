"""The evaluator's own trials, summed up for the page that shows them. Details come from any database: none is relied on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msbench.commands import without_executor, without_seed
from msbench.figures.proofs import Proof
from msbench.model import Fault, Trial


def number(details: Mapping[str, object], name: str) -> float | None:
    """A finite number of a trial's details; None where there is none of that name."""
    value = details.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def word(details: Mapping[str, object], name: str) -> str:
    """A text of a trial's details; empty where there is none of that name."""
    value = details.get(name)
    return value if isinstance(value, str) else ""


# ------------------------------------------------------------------ kernels that cheat


@dataclass(frozen=True)
class Answer:
    """What the evaluator said to a kernel on one device."""

    tone: str
    verdict: str
    said: str


@dataclass(frozen=True)
class Trick:
    """One cheating kernel, or an honest one beside them; ``answers`` has one entry a device, None where it was not tried."""

    name: str
    says: str
    expected: str
    honest: bool
    answers: tuple[Answer | None, ...]


def honest(trial: Trial) -> bool:
    """Whether a kernel of the corpus does nothing wrong, and so has to pass."""
    return trial.details.get("honest") is True


def harmless(trial: Trial) -> str:
    """Why a trick gains nothing, so that it computes what it should and passes; empty for any other kernel."""
    return word(trial.details, "harmless")


def fault(trial: Trial) -> str:
    """What kind of fault the evaluator found in a kernel; empty where it passed."""
    found = word(trial.details, "fault") or trial.outcome.partition(":")[0]
    return found if found in set(Fault) else ""


def answer(trial: Trial) -> Answer:
    """``refused: mismatch``, or what happened in its place."""
    kind = fault(trial).replace("_", " ")
    if kind:
        passes = honest(trial) or harmless(trial)
        verdict = f"refused: {kind}" if trial.held or passes else f"refused, but not for its trick: {kind}"
    elif harmless(trial) and trial.held:
        return Answer("good", "right results, nothing gained", harmless(trial))
    else:
        verdict = "passed" if honest(trial) and trial.held else "got through"
    said = word(trial.details, "message") or trial.outcome
    return Answer("good" if trial.held else "bad", verdict, "" if said == verdict else said)


def tricks(proofs: Sequence[Proof]) -> list[Trick]:
    """Every kernel that was tried on any of the devices: what did not hold first, honest kernels last."""
    found: dict[str, list[Trial | None]] = {}
    for place, proof in enumerate(proofs):
        for trial in proof.trials:
            found.setdefault(trial.subject, [None] * len(proofs))[place] = trial

    rows = []
    for subject, trials in found.items():
        tried = [trial for trial in trials if trial]
        details = tried[0].details
        says = word(details, "trick") or word(details, "description") or subject.replace("_", " ")
        answers = tuple(answer(trial) if trial else None for trial in trials)
        row = Trick(subject, says, tried[0].expected, honest(tried[0]), answers)
        rows.append((all(trial.held for trial in tried), row))
    rows.sort(key=lambda one: (one[0], one[1].honest, one[1].expected, one[1].name))
    return [row for _, row in rows]


@dataclass(frozen=True)
class Refusals:
    """How many of the cheating kernels were ``refused`` for their trick, as what, and how many honest ones ``passed``.

    ``idle``: how many of the other tricks, which gain nothing, computed what they should.
    """

    refused: int
    tricks: int
    idle: int
    passed: int
    honest: int
    kinds: tuple[tuple[str, int], ...]


def refusals(proof: Proof) -> Refusals:
    """Sums up a corpus; the most frequent kinds of fault come first."""
    fair = [trial for trial in proof.trials if honest(trial)]
    idle = [trial for trial in proof.trials if harmless(trial)]
    cheating = [trial for trial in proof.trials if not honest(trial) and not harmless(trial)]
    refused = [trial for trial in cheating if trial.held]
    kinds = Counter(fault(trial).replace("_", " ") for trial in refused)
    order = sorted(kinds.items(), key=lambda one: (-one[1], one[0]))
    return Refusals(
        len(refused), len(cheating), sum(t.held for t in idle), sum(t.held for t in fair), len(fair), tuple(order)
    )


# ------------------------------------------------------------------ kernels that are wrong


@dataclass(frozen=True)
class Mistake:
    """One way to be wrong, in several kernels: all ``cases`` on which they are, and on how many they were rejected.

    ``narrowest`` is the smallest error by which one was, over the bound; None where no rejection has such a ratio.
    """

    name: str
    kernels: int
    held: int
    cases: int
    rejected: int
    narrowest: float | None


def mistakes(trials: Iterable[Trial]) -> list[Mistake]:
    """The mutants by what is wrong with them: those that were not rejected first, then the most frequent."""
    by_name: dict[str, list[Trial]] = {}
    for trial in trials:
        by_name.setdefault(word(trial.details, "mutant") or trial.subject, []).append(trial)
    found = []
    for name, alike in by_name.items():
        ratios = [ratio for trial in alike if (ratio := number(trial.details, "narrowest")) is not None]
        cases, rejected = (
            round(sum(number(trial.details, of) or 0 for trial in alike)) for of in ("cases", "rejected")
        )
        held = sum(trial.held for trial in alike)
        found.append(Mistake(name, len(alike), held, cases, rejected, min(ratios, default=None)))
    return sorted(found, key=lambda one: (one.held == one.kernels, -one.kernels, one.name))


# ------------------------------------------------------------------ a kernel against itself


@dataclass(frozen=True)
class Pair:
    """Two copies of a kernel that were timed against each other: their ratio with its 95 % interval.

    ``disturbed`` where clocks, heat or another program may have had a part in it.
    """

    subject: str
    task: str
    case: str
    duration_ns: float
    factor: float
    median: float
    low: float
    high: float
    held: bool
    disturbed: bool
    measured_at: str

    @property
    def covers(self) -> bool:
        """Whether the interval contains 1, so that no difference is shown."""
        return self.low <= 1 <= self.high

    @property
    def true(self) -> bool:
        """Whether the interval contains the ratio that is known from the clock cycles waited."""
        return self.low <= self.factor <= self.high


def pairs(trials: Iterable[Trial]) -> list[Pair]:
    """The pairs of trials whose details have all figures, the shortest calls first."""
    found = []
    for trial in trials:
        ratio, low, high = (number(trial.details, name) for name in ("median", "low", "high"))
        duration, factor = number(trial.details, "duration_ns"), number(trial.details, "factor")
        if ratio is None or low is None or high is None or not duration or duration < 0:
            continue
        task, case = word(trial.details, "task"), word(trial.details, "case")
        disturbed = bool(word(trial.details, "disturbed"))
        found.append(
            Pair(
                trial.subject,
                task,
                case,
                duration,
                factor or 1.0,
                ratio,
                low,
                high,
                trial.held,
                disturbed,
                trial.created_at,
            )
        )
    return sorted(found, key=lambda pair: (pair.duration_ns, pair.subject))


@dataclass(frozen=True)
class Limits:
    """What is asked of the evaluator: intervals that hold 1, medians off by no more, slowdowns found."""

    COVERAGE: float = 0.93
    OFF: float = 0.01
    FOUND: float = 0.95


@dataclass(frozen=True)
class Agreement:
    """How well the evaluator agrees with itself: ``covered`` of ``pairs`` intervals hold 1."""

    pairs: int
    tasks: int
    covered: int
    furthest: Pair

    @property
    def coverage(self) -> float:
        """A fraction."""
        return self.covered / self.pairs

    @property
    def off(self) -> float:
        """How far a median is from 1 at most."""
        return abs(self.furthest.median - 1)


def agreement(same: Sequence[Pair]) -> Agreement | None:
    """Sums up identical pairs; None of none."""
    if not same:
        return None
    furthest = max(same, key=lambda pair: (abs(pair.median - 1), pair.subject))
    return Agreement(len(same), len({pair.task for pair in same}), sum(pair.covers for pair in same), furthest)


# ------------------------------------------------------------------ faults


@dataclass(frozen=True)
class Kills:
    """One command that was killed again and again; ``afterwards`` is what was found then, with counts, or an example."""

    command: str
    tried: int
    held: int
    afterwards: str


def killed(trial: Trial) -> bool:
    """Whether the trial killed msbench, rather than took away what it stands on: its subject says so."""
    return "kill" in trial.subject


def kills(trials: Iterable[Trial]) -> list[Kills]:
    """The kills by command, those with failures first."""
    by_command: dict[str, list[Trial]] = {}
    for trial in trials:
        if killed(trial):
            by_command.setdefault(word(trial.details, "command"), []).append(trial)
    found = [
        Kills(command, len(tried), sum(trial.held for trial in tried), _afterwards(tried))
        for command, tried in sorted(by_command.items())
    ]
    return sorted(found, key=lambda kills: kills.held == kills.tried)


def reason(trial: Trial) -> str:
    """What came out, without its particulars: ``temporary files left behind`` of ``temporary files left behind: a, b``."""
    return trial.outcome.partition(": ")[0]


def _afterwards(tried: Sequence[Trial]) -> str:
    counts = Counter(trial.outcome if trial.held else reason(trial) for trial in tried).most_common()
    if len(counts) == 1:
        return counts[0][0]
    if len(counts) > 3:
        example = next((trial for trial in tried if trial.held), tried[0])
        return f"for example: {example.outcome}"
    return "; ".join(f"{outcome} ({count})" for outcome, count in counts)


# ------------------------------------------------------------------ throughput


REST = "everything else"
"""The part of a verdict's time that no span names."""


@dataclass(frozen=True)
class Verdict:
    """How long one candidate took from source to stored verdict, and the parts of it, in seconds."""

    subject: str
    cases: int | None
    seconds: float
    spans: Mapping[str, float]
    measured_at: str


def verdicts(trials: Iterable[Trial]) -> list[Verdict]:
    """The trials that have a time, the quickest first."""
    found = []
    for trial in trials:
        seconds, cases = number(trial.details, "seconds"), number(trial.details, "cases")
        if seconds is None or seconds <= 0:
            continue
        raw = trial.details.get("spans")
        named = raw if isinstance(raw, Mapping) else {}
        spans = {str(name): span for name in named if (span := number(named, name)) is not None and span > 0}
        rest = seconds - sum(spans.values())
        if spans and rest > 0.005 * seconds:
            spans[REST] = spans.get(REST, 0.0) + rest
        name = word(trial.details, "task") or trial.subject
        found.append(Verdict(name, None if cases is None else round(cases), seconds, spans, trial.created_at))
    return sorted(found, key=lambda one: (one.seconds, one.subject))


@dataclass(frozen=True)
class Pace:
    """``median_s`` from source to stored verdict, nine of ten within ``p90_s``; ``per_hour`` candidates on one GPU."""

    command: str
    created_at: str
    median_s: float
    p90_s: float
    per_hour: float
    candidates: int
    expected: str
    held: bool


def paces(trials: Iterable[Trial]) -> list[Pace]:
    """What trials of whole streams on GPUs say, in which compilations overlap: the newest of each command, the newest first.

    Commands that differ in their seed are one, and so are those that name the executor and those that need not.
    """
    found: dict[str, Pace] = {}
    for trial in sorted(trials, key=lambda one: one.created_at, reverse=True):
        names = ("median_s", "p90_s", "candidates_per_hour", "candidates")
        median_s, p90_s, per_hour, candidates = (number(trial.details, name) for name in names)
        if median_s is None or p90_s is None or per_hour is None or candidates is None:
            continue
        count, command, at = round(candidates), trial.command, trial.created_at
        found.setdefault(
            without_executor(without_seed(command)),
            Pace(command, at, median_s, p90_s, per_hour, count, trial.expected, trial.held),
        )
    return list(found.values())
