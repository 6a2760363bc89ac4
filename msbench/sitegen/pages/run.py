"""A run's page: the story of one optimization, its failed and slower rounds included."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

from msbench.model import Outcome
from msbench.sitegen import charts, sources, verdict
from msbench.sitegen import format as fmt
from msbench.sitegen.diff import diff
from msbench.sitegen.entries import Run, Version
from msbench.sitegen.facts import Site
from msbench.sitegen.page import Page
from msbench.sitegen.plot import Chart
from msbench.sitegen.transcript import exchanges
from msbench.store.tables import StepRow


def pages(site: Site) -> Iterator[Page]:
    """One page a run."""
    for run in site.runs.values():
        chart = progress(run)
        title = f"Run {run.row.id[:8]}, {run.task.title} {run.task.precision}"
        seen: set[tuple[str, str]] = set()
        says = verdict.run(site, run)
        context = {
            "run": run,
            "verdict": says,
            "steps": [step(site, run, s, seen) for s in run.steps],
            "chart": chart,
            "best": site.versions.get(run.row.best_version_id or ""),
            "label": sources.label(site, [site.versions.get(s.version_id or "") for s in run.steps]),
            "original": site.runs.get(run.row.replay_of or ""),
            "replays": [r for r in site.runs.values() if r.row.replay_of == run.row.id],
            "spend": _amounts(run.row.spend),
            "budget": _amounts(run.row.budget),
            "replay": replay(run),
        }
        yield Page(run.href, "run.html", title, says, context, charts=chart is not None)


def replay(run: Run) -> str:
    """What gives a run's answers again, without a model and without anybody to ask."""
    recording = run.row.replay_of or run.row.id
    return shlex.join(["msbench", "optimize", run.task.id, "--provider", "replay", "--recording", recording])


def progress(run: Run) -> Chart | None:
    """Speed-up by step; None where nothing was timed."""
    return charts.progress("progress", [(s.number, s.outcome, s.speedup) for s in run.steps])


def step(site: Site, run: Run, row: StepRow, seen: set[tuple[str, str]]) -> dict[str, Any]:
    """One step of the story. Its conversation is on its version's page, or here where no version came of it."""
    version = site.versions.get(row.version_id or "")
    parent = site.versions.get(row.parent_version_id or "")
    over = site.over(version, parent) if version and parent and version.id != parent.id else None
    elsewhere = version is not None and any(
        r.row.id == run.row.id and s.number == row.number for r, s in site.steps_of(version.id)[:1]
    )
    changed = diff(parent.row.source, version.row.source) if version and parent and row.outcome in _NEW else None
    return {
        "row": row,
        "version": version,
        "parent": parent,
        "over_parent": over,
        "tone": _TONES.get(Outcome(row.outcome), ""),
        "kind": row.outcome if row.outcome in ("improved", "equal", "slower", "failed") else "",
        "problem": _problem(version, row),
        "changed": changed,
        "elsewhere": elsewhere,
        "calls": () if elsewhere else exchanges(site.calls(run.row.id, row.number), seen),
    }


_NEW = (Outcome.IMPROVED, Outcome.EQUAL, Outcome.SLOWER, Outcome.CHECKED, Outcome.FAILED)
_TONES = {
    Outcome.IMPROVED: "good",
    Outcome.EQUAL: "warn",
    Outcome.SLOWER: "warn",
    Outcome.FAILED: "bad",
    Outcome.NO_KERNEL: "bad",
}


def _problem(version: Version | None, row: StepRow) -> str:
    """What failed, where the step's lesson does not say it already."""
    if row.outcome != Outcome.FAILED or version is None or version.evaluation is None:
        return ""
    message = version.evaluation.message or ""
    return "" if message and message in row.lesson else message


def _amounts(values: dict[str, Any]) -> list[str]:
    """A budget or a bill in words: what is not zero."""
    known: dict[str, tuple[str, Callable[[float], str]]] = {
        "cost_usd": ("", fmt.dollars),
        "gpu_seconds": (" on the GPU", fmt.seconds),
        "wall_seconds": (" in all", fmt.seconds),
    }
    found = []
    for name, value in sorted(values.items()):
        if not value:
            continue
        words, show = known.get(name, (f" {name.replace('_', ' ')}", fmt.count))
        found.append(f"{show(value)}{words}" if isinstance(value, int | float) else f"{name}: {value}")
    return found
