"""Writes docs/study.md and its plots from the newest recordings in a database."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean, median

from msbench.errors import MsbenchError
from msbench.figures.proofs import LONG_NS, Proof, proofs
from msbench.model import Study, Trial
from msbench.store.store import Store
from msbench.study.plot import Bar, intervals
from msbench.study.record import judge

KINDS = (Study.SAME, Study.SLOWDOWN)

_TITLES = {
    Study.SAME: "A kernel against itself",
    Study.SLOWDOWN: "A kernel against itself, slowed down by 3 %",
}
_WHAT = {
    Study.SAME: "Copies of one kernel, measured as versions of one group. The true ratio is 1.",
    Study.SLOWDOWN: "After both kernels one thread waits; after the slower one for more clock cycles, by 3 % of the whole time. "
    "The black line is the true ratio: 1 + cycles / clock / time.",
}


def write(store: Store, folder: Path) -> list[Path]:
    """Write ``study.md`` and one SVG for each study that is recorded; the files' paths.

    Raises:
        MsbenchError: no study is recorded, or a file can't be written.
    """
    found = [newest[0] for kind in KINDS if (newest := proofs(store, kind))]
    if not found:
        raise MsbenchError("The database holds no study. Record one on a GPU with `msbench study`.")
    files = {folder / "study.md": _page(found)}
    files |= {folder / _plot_name(proof): _plot(proof) for proof in found if _measured(proof)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MsbenchError(f"{error.filename} can't be written: {error.strerror}.") from error
    return list(files)


def _page(found: Sequence[Proof]) -> str:
    lines = [
        "# How far figures can be trusted",
        "",
        "[How figures are made](method.md#how-well-that-works) describes the two studies. "
        "This page is written by `msbench study --report docs`.",
    ]
    for proof in found:
        sentence = judge(proof.study, proof.trials).sentence
        commands = " and ".join(f"`{command}`" for command in proof.commands)
        lines += [
            "",
            f"## {_TITLES[proof.study]}",
            "",
            f"{_WHAT[proof.study]} {proof.device.name}, driver {proof.device.driver}, {proof.created_at[:10]}, harness {proof.harness[:12]}, by {commands}.",
            "",
            f"**{sentence}**",
        ]
        if proof.study is Study.SLOWDOWN and _measured(proof):
            lines += ["", _truth(_measured(proof))]
        if _measured(proof):
            lines += ["", f"![{_TITLES[proof.study]}]({_plot_name(proof)})", "", *_table(proof)]
        failures = [f"- {one.subject}: {one.outcome}" for one in proof.trials if "median" not in one.details]
        lines += ["", "Pairs that could not be measured:", "", *failures] if failures else []
    return "\n".join(lines) + "\n"


def _truth(slowed: Sequence[Trial]) -> str:
    """In how many pairs the interval contains the true slowdown, apart for calls that are short beside what a wait is known to."""
    said = []
    for of, alike in (
        (f"calls of at least {LONG_NS / 1e3:.0f} µs", [one for one in slowed if one.details["duration_ns"] >= LONG_NS]),
        ("shorter calls", [one for one in slowed if one.details["duration_ns"] < LONG_NS]),
    ):
        if alike:
            held = sum(one.details["low"] <= one.details["factor"] <= one.details["high"] for one in alike)
            said.append(f"{held} of {len(alike)} for {of}")
    return (
        f"The interval contains the true ratio in {', and '.join(said)}. The wait is known only to some tens of nanoseconds, "
        "which matters for short calls."
    )


def _table(proof: Proof) -> list[str]:
    """One row a subject, the fastest kernel first."""
    lines = [
        "| task | case | time | pairs passed | ratios | true ratio | half of the interval | sessions | between them |",
        "|---|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for (task, case), group in groupby(_measured(proof), key=lambda one: (one.details["task"], one.details["case"])):
        pairs = [one.details for one in group]
        held = sum(one.held for one in proof.trials if (one.details["task"], one.details["case"]) == (task, case))
        ratios = sorted(one["median"] for one in pairs)
        between = [one["between"] for one in pairs if one["between"] is not None]
        cells = (
            task,
            case,
            _time(pairs[0]["duration_ns"]),
            f"{held} of {len(pairs)}",
            f"{ratios[0]:.4f} to {ratios[-1]:.4f}",
            f"{fmean(one['factor'] for one in pairs):.4f}",
            f"{median((one['high'] - one['low']) / 2 for one in pairs):.2%}",
            f"{pairs[0]['sittings']}",
            f"{median(between):.2%}" if between else "–",
        )
        lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
    disturbed = sorted({one.details["disturbed"] for one in _measured(proof) if one.details["disturbed"]})
    if disturbed:
        lines += ["", f"Disturbances detected: {'; '.join(disturbed)}."]
    return lines


def _measured(proof: Proof) -> list[Trial]:
    """The pairs with figures; those of one subject together, the fastest subject first."""
    known = [one for one in proof.trials if "median" in one.details]
    fastest: dict[tuple[str, str], float] = {}
    for one in known:
        key = one.details["task"], one.details["case"]
        fastest[key] = min(fastest.get(key, float("inf")), one.details["duration_ns"])
    return sorted(known, key=lambda one: (fastest[one.details["task"], one.details["case"]], one.subject))


def _plot(proof: Proof) -> str:
    labels: dict[tuple[str, str], str] = {}
    for one in _measured(proof):
        labels.setdefault(
            (one.details["task"], one.details["case"]), f"{one.details['task']}, {_time(one.details['duration_ns'])}"
        )
    bars = [
        Bar(
            label=labels[one.details["task"], one.details["case"]],
            median=one.details["median"],
            low=one.details["low"],
            high=one.details["high"],
            truth=one.details["factor"],
            held=one.held,
        )
        for one in _measured(proof)
    ]
    return intervals(f"{_TITLES[proof.study]}: ratio and its 95 % interval", bars)


def _plot_name(proof: Proof) -> str:
    return f"study-{proof.study}.svg"


def _time(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.3g} µs" if nanoseconds < 1e6 else f"{nanoseconds / 1e6:.3g} ms"
