"""How far kernels have come, from what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench import operators
from msbench.cli import app
from msbench.model import Origin
from msbench.operators.targets import targets
from msbench.spec import Precision
from msbench.store import figures
from msbench.store.standings import means, standings
from msbench.store.store import Store
from tests.factories import CEILINGS, GPU, candidate, measured, operator

OP = operator("scale")
NAIVE = candidate(OP, "naive", Origin.NAIVE)
LIBRARY = candidate(OP, "vendor", Origin.LIBRARY)
BEST = candidate(OP, "best", Origin.EXPERT)


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
    assert means(found)["fp32", "large"][:2] == (1, pytest.approx(2.0, rel=0.01))


def test_cases_that_are_slower_than_the_bar_are_lost() -> None:
    store = Store(":memory:")
    filled(store, naive=0.2, library=0.8, best=0.7)
    _, lost = standings(figures.tasks(store))
    [large] = [one for one in lost if one.case_name == OP.cases[2].id]
    assert large.ratio.value == pytest.approx(0.875, rel=0.01)
    assert lost == sorted(lost, key=lambda one: one.ratio.value)


def test_the_command_prints_and_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "figures.sqlite"
    filled(Store(str(path)), naive=0.2, library=0.4, best=0.8)
    shown = CliRunner().invoke(app, ["standings", "--db", str(path), "--markdown", str(tmp_path / "kernels.md")])
    assert shown.exit_code == 0, shown.output
    assert "scale/fp32" in shown.output
    assert "| scale/fp32 | large | 1 |" in (tmp_path / "kernels.md").read_text("utf-8")


def test_every_task_has_a_target_for_the_sizes_that_count() -> None:
    tasks = [f"{name}/{precision}" for name in operators.names() for precision in Precision]
    assert set(targets()) == {(task, split) for task in tasks for split in ("paper", "large")}
    assert targets()["matrix_copy/fp32", "large"] == pytest.approx(1.004e6)
