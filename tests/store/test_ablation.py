"""Runs that differ only in what agents saw of profiles are compared, task by task, and no others."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.figures.ablation import arms, contrasts
from msbench.spec import Task
from msbench.store.store import Store
from tests.factories import FP32, GPU, instant, operator, run_row, step_row

WORTH = {"a": (4.0, 2.0), "b": (3.0, 3.0), "c": (8.0, 2.0)}


def add(store: Store, task: str, view: str, drafts: tuple[float | None, ...], at: float = 0.0, **fields: object) -> str:
    op = replace(operator(), name=task)
    store.add_task(Task(op, FP32))
    store.add_device(GPU)
    settings = {"plan": {"cases": []}, "rounds": 2, "profile_view": view}
    given = {"status": "finished", "settings": settings, "started_at": instant(at), "executor": "cuda", **fields}
    run_id = f"{task}{view}{at:.0f}{'_'.join(fields)}"
    row = run_row(op, run_id=run_id, **given)
    steps = [step_row(row, 0, "baseline")]
    for number, worth in enumerate(drafts, 1):
        steps.append(step_row(row, number, "failed" if worth is None else "improved", speedup=worth))
    store.start_run(row)
    for step in steps:
        store.add_step(step)
    return run_id


def test_views_are_compared_over_tasks(store: Store) -> None:
    for task, (mine, other) in WORTH.items():
        add(store, task, "filtered", (mine, mine))
        add(store, task, "none", (other, other))
    found = arms(store)
    assert [(arm.task_id, arm.view, arm.mean) for arm in found] == [
        (f"{task}/fp32", view, pytest.approx(worth))
        for task, both in WORTH.items()
        for view, worth in zip(("filtered", "none"), both, strict=True)
    ]
    (one,) = contrasts(found)
    logs = [log(mine / other) for mine, other in WORTH.values()]
    assert (one.view, one.other, one.tasks) == ("filtered", "none", 3)
    assert one.ratio == pytest.approx(exp(sum(logs) / 3))
    assert one.ratio**2 == pytest.approx(one.low * one.high)
    assert one.low < 1 and not one.differs  # three tasks that disagree prove nothing


def test_tasks_that_agree_show_a_difference(store: Store) -> None:
    for number, task in enumerate("abcdef"):
        add(store, task, "full", (2.0 + number / 100,))
        add(store, task, "none", (1.0,))
    (one,) = contrasts(arms(store))
    assert one.differs and 1.9 < one.low < one.ratio < one.high < 2.2


def test_a_failed_draft_leaves_the_naive_kernel(store: Store) -> None:
    add(store, "a", "full", (None, 4.0))
    add(store, "a", "none", (None, None))
    full, none = arms(store)
    assert (full.mean, full.best, full.drafts) == (2.0, 4.0, (None, 4.0))
    assert (none.mean, none.best) == (1.0, 1.0)
    assert contrasts([full, none]) == []  # of one task


def test_only_finished_runs_that_are_alike_are_compared_and_of_those_the_newest(store: Store) -> None:
    add(store, "a", "full", (1.0,))
    newest = add(store, "a", "full", (2.0,), at=9.0)
    add(store, "a", "none", (3.0,), at=5.0)
    for fields in ({"status": "stopped"}, {"executor": "cpu"}, {"strategy": "astra"}, {"replay_of": newest}):
        add(store, "a", "filtered", (9.0,), at=len(str(fields)), **fields)
    assert {(arm.view, arm.drafts) for arm in arms(store)} == {("full", (2.0,)), ("none", (3.0,))}


def test_the_command_prints_and_writes_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with Store(str(path)) as store:
        add(store, "a", "full", (2.0,))
        add(store, "a", "none", (1.0,))
    asked = ["ablation", "--db", str(path), "--markdown", str(tmp_path / "ablation.md")]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0 and "No two tasks" in shown.output
    with Store(str(path)) as store:
        add(store, "b", "full", (2.0, None))
        add(store, "b", "none", (1.0, 1.0))
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0 and "full over none" in shown.output
    written = (tmp_path / "ablation.md").read_text(encoding="utf-8")
    assert "| b/fp32 | full | 2.000, failed | 1.414 | 2.000 |" in written
    assert f"Measured on {GPU.name}, " in written
