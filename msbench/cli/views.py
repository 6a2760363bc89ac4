"""The command that compares what agents see of profiles: ablation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from msbench import databases
from msbench.cli._app import app
from msbench.cli._options import Db, out
from msbench.cli._tables import Part

if TYPE_CHECKING:
    from msbench.figures.ablation import Arm, Contrast


@app.command()
def ablation(
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write the tables to this file.", show_default=False)
    ] = None,
    db: Db = None,
) -> None:
    """Compare runs that differ only in what agents saw of profiles (optimize --profile-view).

    For each task the newest finished runs that are alike in all else: strategy, model, rounds, cases and device.

    Example: `msbench ablation --markdown docs/ablation.md`
    """
    from msbench.figures.ablation import arms, contrasts

    with databases.sound(db, "No runs are compared from") as store:
        found = arms(store)
    compared = contrasts(found)
    if not compared:
        out.print(
            "No two tasks have finished runs that differ only in --profile-view: run msbench optimize with filtered, full and none."
        )
        return
    parts = [_verdicts(compared), _drafts(found)]
    days = sorted(arm.day for arm in found)
    told = f"Measured on {', '.join(sorted({arm.device for arm in found}))}, {days[0]}{f' to {days[-1]}' if days[-1] != days[0] else ''}."
    for part in parts:
        out.print(part.table())
    out.print(told)
    if markdown:
        text = "\n".join(
            ["# What profiles are worth to agents\n", _SAYS, f"{told}\n", *(part.markdown() for part in parts)]
        )
        markdown.write_text(text, encoding="utf-8")


_SAYS = """\
Made by `msbench ablation --markdown docs/ablation.md`. Runs of a task differ only in what their prompts show of the profile: what bears on
the bottleneck (filtered), every counter (full), or nothing (none). Each draft is worth its speed-up over the naive kernel, the
geometric mean over the task's cases; one that failed is worth 1. Views are compared by the mean over tasks of the
logarithm, averaged over a task's drafts, with the 95 % interval of Student's t over tasks.
"""


def _verdicts(compared: list[Contrast]) -> Part:
    rows = [
        (
            f"{one.view} over {one.other}",
            str(one.tasks),
            f"{one.ratio:.3f}",
            f"{one.low:.3f} to {one.high:.3f}",
            ("faster" if one.ratio > 1 else "slower") if one.differs else "no difference found",
        )
        for one in compared
    ]
    return Part("Compared", ("view", "tasks", "times as fast", "95 % interval", "verdict"), rows)


def _drafts(found: list[Arm]) -> Part:
    rows = [
        (
            arm.task_id,
            arm.view,
            ", ".join("failed" if one is None else f"{one:.3f}" for one in arm.drafts),
            f"{arm.mean:.3f}",
            f"{arm.best:.3f}",
            arm.run_id[:12],
        )
        for arm in found
    ]
    return Part("By task", ("task", "view", "drafts over naive", "mean", "best", "run"), rows)
