"""A run's page: the story of one optimization, its failed and slower rounds included."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from markupsafe import Markup

from msbench.model import Outcome
from msbench.sitegen import format as fmt
from msbench.sitegen import highlight, rivalry, sources, verdict
from msbench.sitegen.diff import diff
from msbench.sitegen.entries import SHORT, Run, Version
from msbench.sitegen.facts import Site
from msbench.sitegen.page import File, Page
from msbench.sitegen.plots import summary_charts
from msbench.sitegen.plots.plot import Chart
from msbench.sitegen.told import Told, told
from msbench.sitegen.transcript import Sections, bodies, exchanges
from msbench.store.tables import StepRow


def pages(site: Site) -> Iterator[Page | File]:
    """One page a run, and one a conversation; what the prompts of several have in common is a file."""
    quoted = repeated(site)
    yield from (File(path, f"{code}\n") for code, path in quoted.items())
    for one in site.runs.values():
        yield from pages_of(site.on(one.row.device_id), one.row.id, quoted)


def pages_of(site: Site, run_id: str, quoted: Mapping[str, str]) -> Iterator[Page]:
    """A run's pages, with the times of its own device. ``quoted``: see ``repeated``."""
    run = site.runs[run_id]
    judged = [told(site, run, s) for s in run.steps]
    chart = progress(judged)
    title = f"Run {run.row.id[:8]}, {run.task.title} {run.task.precision}"
    says = verdict.run(site, run)
    context = {
        "run": run,
        "verdict": says,
        "steps": [step(site, run, one) for one in judged],
        "gains": attribution(site, run),
        "author": site.author(run),
        "chart": chart,
        "best": site.versions.get(run.row.best_version_id or ""),
        "label": sources.measured(site, (one.measured_at for one in judged)),
        "original": site.runs.get(run.row.replay_of or ""),
        "replays": [r for r in site.runs.values() if r.row.replay_of == run.row.id],
        "spend": _amounts(run.row.spend),
        "budget": _amounts(run.row.budget),
        "replay": replay(run),
        "rivalry": rivalry.of_run(site, run),
    }
    yield Page(run.href, "run.html", title, says, context, charts=chart is not None)
    yield from conversations(site, run, quoted)


def repeated(site: Site) -> dict[str, str]:
    """Code and sections that several runs' prompts have, and that are no version's source, with the path of the file that holds each."""
    own = {version.row.source.strip() for version in site.versions.values()}
    runs: dict[str, set[str]] = {}
    for run_id, number in site.conversations:
        for message in (m for call in site.calls(run_id, number) for m in call.prompt):
            for text in (*highlight.blocks(message.content), *bodies(message.content)):
                if len(text) >= _WORTH_A_FILE and text not in own:
                    runs.setdefault(text, set()).add(run_id)
    return {
        text: f"source/quoted-{sha256(text.encode()).hexdigest()[:SHORT]}.txt"
        for text, which in sorted(runs.items())
        if len(which) > 1
    }


def conversations(site: Site, run: Run, quoted: Mapping[str, str]) -> Iterator[Page]:
    """A page for what was asked and answered in each step. What an earlier step's page shows is not shown again.

    ``quoted``: see ``repeated``.
    """
    seen: set[tuple[str, str]] = set()
    sections: Sections = {}
    elsewhere = {
        code: Markup('<a href="../{}">The same as in other runs’ prompts</a>').format(path)
        for code, path in quoted.items()
    } | {
        version.row.source.strip(): Markup('The source of <a href="../{}">{}</a>').format(version.href, version.name)
        for version in site.versions.values()
        if version.task.id == run.task.id
    }
    for row in run.steps:
        href = site.conversations.get((run.row.id, row.number), "")
        if href.startswith(run.href.removesuffix(".html")):
            calls = exchanges(site.calls(run.row.id, row.number), seen, elsewhere, sections)
            title = f"Step {row.number} of run {run.row.id[:8]}: the conversation"
            says = f"Prompts and answers of step {row.number} of a run that optimized {run.task.title} in {run.task.precision}."
            context = {
                "run": run,
                "row": row,
                "calls": calls,
                "author": site.author(run),
                "version": site.versions.get(row.version_id or ""),
            }
            yield Page(href, "conversation.html", title, says, context)


def replay(run: Run) -> str:
    """What gives a run's answers again, without a model and without anybody to ask."""
    recording = run.row.replay_of or run.row.id
    return shlex.join(["msbench", "optimize", run.task.id, "--provider", "replay", "--recording", recording])


def progress(judged: Sequence[Told]) -> Chart | None:
    """Speed-up by step; None where nothing was timed."""
    return summary_charts.progress("progress", rivalry.steps(judged))


def step(site: Site, run: Run, judged: Told) -> dict[str, Any]:
    """One step of the story."""
    row = judged.row
    version = site.versions.get(row.version_id or "")
    parent = site.versions.get(row.parent_version_id or "")
    changed = diff(parent.row.source, version.row.source) if version and parent and row.outcome in _NEW else None
    return {
        "row": row,
        "judged": judged,
        "version": version,
        "parent": parent,
        "tone": _TONES.get(Outcome(row.outcome), ""),
        "kind": row.outcome if row.outcome in ("improved", "equal", "slower", "failed") else "",
        "problem": _problem(version, row),
        # A lesson of a step with times is made of these figures, without intervals, for the prompts that follow.
        "lesson": "" if judged.over_naive else row.lesson,
        "changed": changed,
        "conversation": site.conversations.get((run.row.id, row.number)),
    }


def attribution(site: Site, run: Run) -> list[dict[str, Any]]:
    """What each step on the way to the best version gained over the last working version before it, the first step first.

    Empty unless the best version came in two steps or more: one step's gain is said already.
    """
    by_version = {s.version_id: s for s in reversed(run.steps) if s.version_id and s.outcome in _NEW}
    found: list[dict[str, Any]] = []
    version = site.versions.get(run.row.best_version_id or "")
    while version and (row := by_version.pop(version.id, None)):
        before = site.predecessor(version)
        found.append({"row": row, "version": version, "over": site.over(version, before) if before else None})
        version = before
    return found[::-1] if len(found) > 1 else []


_WORTH_A_FILE = 900  # characters

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
        "unknown": (" calls whose cost is unknown", fmt.count),
    }
    found = []
    for name, value in sorted(values.items()):
        if not value:
            continue
        words, show = known.get(name, (f" {name.replace('_', ' ')}", fmt.count))
        found.append(f"{show(value)}{words}" if isinstance(value, int | float) else f"{name}: {value}")
    return found
