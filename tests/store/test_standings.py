"""How far kernels have come, from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench import operators
from msbench.cli import app
from msbench.figures import figures
from msbench.figures.figures import CaseFigures, TaskFigures
from msbench.figures.standings import Standing, elsewhere, means, short_of, standings
from msbench.model import Candidate, Origin
from msbench.operators.targets import targets
from msbench.spec import Precision
from msbench.store.store import Store
from tests.factories import CEILINGS, GPU, candidate, measured, operator, slowed

OP = operator("scale")
NAIVE = candidate(OP, "naive", Origin.NAIVE)
LIBRARY = candidate(OP, "vendor", Origin.LIBRARY)
BEST = candidate(OP, "best", Origin.EXPERT)
LARGE = OP.cases[2]
TASK = "scale/fp32"
TWIN = replace(LARGE, distribution="spiked")


def filled(store: Store, naive: float, library: float, best: float) -> None:
    store.add_ceilings(GPU, CEILINGS)
    for evaluation in measured(OP, {NAIVE: naive, LIBRARY: library, BEST: best}):
        store.add_evaluation(OP, evaluation)


def test_the_bar_is_the_faster_of_naive_and_library() -> None:
    store = Store(":memory:")
    filled(store, naive=0.2, library=0.4, best=0.8)
    found, lost = standings(figures.tasks(store))
    assert {one.split for one in found} == {"paper", "large", "odd"}
    [large] = [one for one in found if one.split == "large"]
    assert large.over_bar == pytest.approx(2.0, rel=0.01)
    for one in found:
        assert one.of_roofline == pytest.approx(one.bound_ns / one.time_ns)
    assert lost == []
    mean = means(found)["fp32", "large"]
    assert (mean.tasks, mean.over_bar, mean.at_target) == (1, pytest.approx(2.0, rel=0.01), None)
    (large,) = [one for one in found if one.split == "large"]
    for target, expected in ((large.time_ns / 2, 4.0), (large.time_ns * 2, 2.0)):
        aimed = means(found, {(large.task_id, "large"): target})["fp32", "large"]
        assert aimed.at_target == pytest.approx(expected, rel=0.01)


def test_cases_that_are_slower_than_the_bar_are_lost() -> None:
    store = Store(":memory:")
    filled(store, naive=0.2, library=0.8, best=0.7)
    _, lost = standings(figures.tasks(store))
    [large] = [one for one in lost if one.case_name == OP.cases[2].id]
    assert large.ratio.value == pytest.approx(0.875, rel=0.01)
    assert lost == sorted(lost, key=lambda one: one.ratio.value)


def test_what_falls_short_of_its_target_is_said_with_the_profile_of_a_case_like_those() -> None:
    with Store(":memory:") as store:
        filled(store, naive=0.2, library=0.4, best=0.8)
        tasks = figures.tasks(store)
        found, _ = standings(tasks)
        time = {one.split: one.time_ns for one in found}
        aimed = {
            (TASK, "paper"): time["paper"] / 2,
            (TASK, "large"): time["large"] / 1.5,
            (TASK, "odd"): time["odd"] / 1.02,
        }
        paper, large = short_of(store, tasks, found, aimed)
    assert [(one.split, round(one.over_target, 2)) for one in (paper, large)] == [("paper", 2.0), ("large", 1.5)]
    assert paper.profile is not None and paper.case_name == OP.cases[-1].id, (
        "the odd case is profiled, and small like those"
    )
    assert large.profile is None and not large.case_name


def test_a_target_moves_to_another_device_with_the_bound_of_its_cases() -> None:
    with Store(":memory:") as store:
        filled(store, naive=0.2, library=0.4, best=0.8)
        tasks = figures.tasks(store)
    faster = replace(CEILINGS, copy_bytes_per_s=2 * CEILINGS.copy_bytes_per_s)
    moved = elsewhere({(TASK, "large"): 50.0, ("other/fp32", "large"): 1.0}, tasks, faster)
    assert moved == {(TASK, "large"): pytest.approx(100.0)}
    assert elsewhere({(TASK, "large"): 50.0}, tasks, CEILINGS) == {(TASK, "large"): pytest.approx(50.0)}


def timed_on_both(on_twin: Mapping[Candidate, float]) -> tuple[TaskFigures, CaseFigures, Standing]:
    """Versions whose times on the twin are so many times those on the large case."""
    with Store(":memory:") as store:
        store.add_ceilings(GPU, CEILINGS)
        for one in measured(OP, {NAIVE: 0.2, LIBRARY: 0.4, BEST: 0.8}, cases=(*OP.cases, TWIN)):
            store.add_evaluation(OP, slowed(one, TWIN, on_twin.get(one.candidate, 1.0)))
        [task] = figures.tasks(store)
    found, _ = standings([task])
    assert task.best is not None and TWIN.id not in {case.name for case in task.cases}
    [large] = [case for case in task.best.cases if case.case.split == "large"]
    [standing] = [one for one in found if one.split == "large"]
    assert standing.cases == 1
    return task, large, standing


@pytest.mark.parametrize(
    "on_twin",
    [
        {},
        {BEST: 1.05},
        {BEST: 1.2, LIBRARY: 1.2},
        {BEST: 1.2, LIBRARY: 0.8},
        {LIBRARY: 1.2},
        {BEST: 0.8, NAIVE: 2.0, LIBRARY: 0.8},
    ],
)
def test_other_inputs_do_not_count_where_no_version_differs_alone(on_twin: Mapping[Candidate, float]) -> None:
    _, large, standing = timed_on_both(on_twin)
    [twin] = large.twins
    assert (twin.case.name, twin.alone) == (TWIN.id, False)
    assert standing.time_ns == pytest.approx(large.median_ns)
    assert standing.over_bar == pytest.approx(2.0, rel=0.01)
    assert standing.worst_case == LARGE.id


def test_a_version_that_alone_is_slower_on_other_inputs_counts_with_these() -> None:
    plain, _, _ = timed_on_both({})
    task, large, standing = timed_on_both({BEST: 1.2})
    [twin] = large.twins
    assert twin.alone and large.slower is twin
    assert large.median_ns is not None and standing.time_ns == twin.median_ns == pytest.approx(
        1.2 * large.median_ns, rel=0.02
    )
    assert standing.over_bar == pytest.approx(2.0 / 1.2, rel=0.01)
    assert standing.of_roofline == pytest.approx(0.8 / 1.2, rel=0.03)
    assert standing.worst_case == TWIN.id
    assert task.best is not None and plain.best is not None
    assert (task.best.score, task.best.bar_score) == (plain.best.score, plain.best.bar_score)
    assert (task.best.roofline_fraction, len(task.best.cases)) == (plain.best.roofline_fraction, len(OP.cases))


def test_a_version_that_alone_is_faster_on_other_inputs_counts_with_uniform_ones() -> None:
    _, large, standing = timed_on_both({BEST: 0.8})
    assert large.twins[0].alone and large.slower is large
    assert standing.time_ns == pytest.approx(large.median_ns)


def test_other_inputs_alone_are_a_case_like_any_other() -> None:
    """Only beside the same size with uniform inputs is it a twin."""
    with Store(":memory:") as store:
        for one in measured(OP, {NAIVE: 0.2, BEST: 0.8}, cases=(OP.cases[0], TWIN)):
            store.add_evaluation(OP, one)
        [task] = figures.tasks(store)
    assert [case.name for case in task.cases] == [OP.cases[0].id, TWIN.id]


def test_the_command_prints_and_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "figures.sqlite"
    filled(Store(str(path)), naive=0.2, library=0.4, best=0.8)
    shown = CliRunner().invoke(app, ["standings", "--db", str(path), "--markdown", str(tmp_path / "kernels.md")])
    assert shown.exit_code == 0, shown.output
    assert "scale/fp32" in shown.output
    written = (tmp_path / "kernels.md").read_text("utf-8")
    assert "| scale/fp32 | large | 1 |" in written and "too:" not in written
    other = replace(GPU, name="another GPU")
    Store(str(path)).add_evaluations(OP, measured(OP, {NAIVE: 0.2}, device=other))
    again = CliRunner().invoke(app, ["standings", "--db", str(path), "--markdown", str(tmp_path / "kernels.md")])
    assert again.exit_code == 0, again.output
    written = (tmp_path / "kernels.md").read_text("utf-8")
    assert "Recorded on another GPU, too: `msbench standings --device 'another GPU'`." in written


def test_every_task_has_a_target_for_the_sizes_that_count() -> None:
    tasks = [f"{name}/{precision}" for name in operators.names() for precision in Precision]
    assert set(targets()) == {(task, split) for task in tasks for split in ("paper", "large")}
    assert targets()["matrix_copy/fp32", "large"] == pytest.approx(1.004e6)
