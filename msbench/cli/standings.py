"""The command that rates the kernels: standings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from msbench import databases
from msbench.cli._app import app
from msbench.cli._options import Db, Device, out
from msbench.cli._tables import Part
from msbench.report import nanoseconds

if TYPE_CHECKING:
    from msbench.figures.figures import Figures, TaskFigures
    from msbench.figures.standings import Lost, Short, Standing
    from msbench.store.store import Store


@app.command()
def standings(
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write the tables to this file.", show_default=False)
    ] = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Compare the best kernels with the bar and the roofline, overall and task by task.

    The bar is, for each case, the faster of the naive kernel and the libraries, measured in the same session.

    Example: `msbench standings --markdown docs/kernels.md`
    """
    from msbench.figures.figures import Figures
    from msbench.figures.standings import short_of
    from msbench.figures.standings import standings as rated

    store = databases.sound(db, "No standings are read from")
    figures = Figures(store, store.recorded_device(device).id if device else None)
    tasks = figures.tasks()
    found, lost = rated(tasks)
    aimed = _targets(store, figures, tasks)
    parts = [*_parts(found, lost, aimed), _short(short_of(store, tasks, found, aimed))]
    days = sorted(task.measured_at[:10] for task in tasks if task.best and task.measured_at)
    if figures.device is None or not days:
        out.print("None of our versions has been timed yet: run msbench bench --versions all.")
        return
    when = f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"
    where = f"Measured on {figures.device.name} {when}."
    for other in (one.name for one in store.recorded_devices() if one.kind == "cuda"):
        if other != figures.device.name:
            where += f" Recorded on {other}, too: `msbench standings --device {shlex.quote(other)}`."
    for part in parts:
        out.print(part.table())
    out.print(where)
    if markdown:
        text = "\n".join(
            ["# How far the kernels have come\n", _SAYS, f"{where}\n", *(part.markdown() for part in parts)]
        )
        markdown.write_text(text, encoding="utf-8")


_SAYS = """\
Made by `msbench standings --markdown docs/kernels.md`. Times are geometric means over a split's cases; the bound is the larger of bytes
over the device's measured bandwidth, operations over its measured rate, and an empty call. The bar is, for each case, the faster of
the naive kernel and the libraries, measured in the same session. Where a version's time on a large case, and no library's, differs by
more than 10 % between two distributions of inputs, the slower one counts. Targets (kernels/targets.csv) were set before the kernels were written,
from what instructions, trips to memory and launches cost on an H200; 34 of the 200 had been reached by a prototype, the others are modelled.
On another device a target is the H200's times the ratio of the bounds on the two. The first table ends with what its mean over the bar
would be if no task took longer than its target.
"""


def _targets(store: Store, figures: Figures, tasks: Sequence[TaskFigures]) -> Mapping[tuple[str, str], float]:
    """The targets on the device of these figures; none where nothing tells how it compares with theirs."""
    from msbench.figures.standings import elsewhere
    from msbench.operators.targets import DEVICE, targets

    if figures.device is not None and figures.device.name == DEVICE:
        return targets()
    theirs = next((device for device in store.recorded_devices() if device.name == DEVICE), None)
    ceilings = store.usual_ceilings(theirs.id) if theirs else None
    return elsewhere(targets(), tasks, ceilings) if ceilings else {}


def _short(missed: Sequence[Short]) -> Part:
    from msbench.figures.standings import SHORT
    from msbench.sitegen import metrics

    rows = [
        (
            one.task_id,
            one.split,
            f"{one.over_target:.2f}",
            f"{one.profile.bottleneck} ({one.case_name})" if one.profile else "not profiled",
            "; ".join(metrics.evidence(one.profile)) if one.profile else "",
        )
        for one in missed
    ]
    title = f"Short of the target by more than {SHORT - 1:.0%}"
    return Part(title, ("task", "split", "time over target", "bottleneck", "because"), rows)


def _parts(found: Sequence[Standing], lost: Sequence[Lost], aimed: Mapping[tuple[str, str], float]) -> list[Part]:
    from msbench.figures.standings import LOST, means

    overall = [
        (
            precision,
            split,
            str(mean.tasks),
            f"{mean.over_bar:.2f}",
            f"{mean.of_roofline:.2f}",
            "–" if mean.at_target is None else f"{mean.at_target:.2f}",
        )
        for (precision, split), mean in sorted(means(found, aimed).items())
    ]
    rows = [
        (
            one.task_id,
            one.split,
            str(one.cases),
            nanoseconds(one.bound_ns),
            nanoseconds(aimed.get((one.task_id, one.split))),
            nanoseconds(one.time_ns),
            f"{one.over_bar:.2f}",
            f"{one.of_roofline:.2f}",
            f"{one.worst:.2f} ({one.worst_case})",
        )
        for one in found
    ]
    cases = [
        (one.task_id, one.case_name, f"{one.ratio.value:.3f}", f"{one.ratio.low:.3f} to {one.ratio.high:.3f}")
        for one in lost
    ]
    return [
        Part(
            "Overall",
            ("precision", "split", "tasks", "over the bar", "of the roofline", "over the bar at all targets"),
            overall,
        ),
        Part(
            "By task",
            (
                "task",
                "split",
                "cases",
                "bound",
                "target",
                "time",
                "over the bar",
                "of the roofline",
                "slowest against the bar",
            ),
            rows,
        ),
        Part(f"Lost: the interval ends below {LOST}", ("task", "case", "over the bar", "95 % interval"), cases),
    ]
