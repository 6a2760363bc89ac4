"""The report of an audit: one row a file, what was wrong where, totals at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msbench.audit.verdict import Speed, Tally, Verdict
from msbench.statistics import geometric_mean

_HEADINGS = ("file", "task", "builds alone", "paper sizes", "unseen sizes", "other inputs", "against ours", "library")
_KEPT_REASONS = 3


def report(title: str, made: str, verdicts: Sequence[Verdict]) -> str:
    """Markdown. ``made``: by which command, where and when, in one sentence."""
    lines = [
        f"# {title}",
        "",
        made,
        "",
        "Right: on how many of the sizes that were tried. Against: how many times as fast as our version, and as the fastest "
        "library baseline, the geometric mean over the paper's sizes with its 95 % interval; all are timed as whole calls, "
        "from an idle device to an idle device.",
        "",
        f"| {' | '.join(_HEADINGS)} |",
        f"|{'---|' * 3}{'---:|' * (len(_HEADINGS) - 3)}",
        *(f"| {' | '.join(_cells(verdict))} |" for verdict in verdicts),
        "",
        *_notes(verdicts),
        "## Totals",
        "",
        *(f"- {line}" for line in totals(verdicts)),
    ]
    return "\n".join(lines) + "\n"


def totals(verdicts: Sequence[Verdict]) -> list[str]:
    """The audit in a few lines."""
    kernels = [v for v in verdicts if v.symbol is not None]
    judged = [v for v in kernels if not v.problem]
    lines = [f"{_count(len(verdicts), 'file')}, of which {len(kernels)} have a function of the convention"]
    if len(judged) < len(kernels):
        lines.append(f"{len(kernels) - len(judged)} of {len(kernels)} could not be judged, for the reasons above")

    def of(what: str, among: Sequence[Verdict], holds: Callable[[Verdict], bool]) -> None:
        lines.append(f"{sum(map(holds, among))} of {len(among)} {what}")

    of("build alone", judged, lambda v: bool(v.built))
    built = [v for v in judged if v.built]
    of("are right on all the paper's sizes", [v for v in built if v.paper.tried], lambda v: v.paper.right)
    of("are right on all unseen sizes", [v for v in built if v.unseen.tried], lambda v: v.unseen.right)
    of("are right on inputs of all other distributions", [v for v in built if v.inputs.tried], lambda v: v.inputs.right)
    of("build alone and are right on all sizes, the paper's and unseen ones", judged, lambda v: v.held)
    lines += _speeds("our version", [v.ours for v in judged if v.ours])
    lines += _speeds("the fastest library baseline", [v.library for v in judged if v.library])
    return lines


def _speeds(rival: str, found: Sequence[Speed]) -> Iterator[str]:
    if found:
        mean = geometric_mean([speed.ratio for speed in found])
        faster = sum(speed.low > 1 for speed in found)
        yield (
            f"{_count(len(found), 'file')} timed against {rival}: {mean:.2f}× as fast in the geometric mean, "
            f"{faster} of them faster beyond the interval"
        )


def _cells(verdict: Verdict) -> Iterator[str]:
    yield f"`{verdict.file}`".replace("|", r"\|")
    yield verdict.task or "–"
    if verdict.problem or not verdict.built:
        yield "no" if verdict.built is False else "–"
        yield from ("–",) * 5
        return
    yield "yes"
    yield from (_tally(one) for one in (verdict.paper, verdict.unseen, verdict.inputs))
    yield from (_speed(one) for one in (verdict.ours, verdict.library))


def _tally(tally: Tally) -> str:
    return str(tally) + (f" ({tally.left_out} left out)" if tally.left_out else "")


def _speed(speed: Speed | None) -> str:
    return "–" if speed is None else f"{speed.ratio:.2f}× ({speed.low:.2f}–{speed.high:.2f}) {speed.rival}"


def _notes(verdicts: Sequence[Verdict]) -> Iterator[str]:
    noted = [(verdict, list(_reasons(verdict))) for verdict in verdicts]
    if any(reasons for _, reasons in noted):
        yield from ("## File by file", "")
    for verdict, reasons in noted:
        if reasons:
            yield from (f"`{verdict.file}`", "", *(f"- {_plain(reason)}" for reason in reasons), "")


def _reasons(verdict: Verdict) -> Iterator[str]:
    if verdict.problem:
        yield verdict.problem
    if verdict.message:
        yield f"does not build alone: {verdict.message}"
    for kind, tally in (
        ("paper size", verdict.paper),
        ("unseen size", verdict.unseen),
        ("other input", verdict.inputs),
    ):
        reasons = list(tally.wrong.values())
        yield from (f"{kind}: {reason}" for reason in reasons[:_KEPT_REASONS])
        if len(reasons) > _KEPT_REASONS:
            yield f"and {_count(len(reasons) - _KEPT_REASONS, f'further {kind}')}"
    yield from verdict.remarks
    if verdict.untimed:
        yield f"not timed: {verdict.untimed}"


def _plain(text: str) -> str:
    """One line, with nothing that Markdown takes for its own."""
    return " ".join(text.split()).replace("<", "&lt;")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
