"""Whoever judges a version draws a seed after it was written, and records what repeats it; proofs of the evaluator have a fixed one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from msbench import operators, resources
from msbench.cli import app
from msbench.cli._options import DRAWN_SEEDS, command_line, draw_seed
from msbench.commands import without_seed
from msbench.harness.protocols import Checks, Plan
from msbench.model import Evaluation
from msbench.optimize import Settings
from msbench.optimize.hidden import plan_of_step
from msbench.spec import Split, Task
from msbench.store.store import Store
from tests import factories

EVAL = "eval kernel.cu --op elu --precision fp32 --executor cpu --cases smallest --db x.sqlite"
BENCH = "bench relu/fp32 --executor cpu --versions naive --cases smallest --quick --db x.sqlite"
OPTIMIZE = (
    "optimize vector_add/fp32 --executor cpu --cases smallest --rounds 1 --provider manual --no-wait --db x.sqlite"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with one kernel, which is the current one."""
    monkeypatch.chdir(tmp_path)
    naive = resources.kernels_dir() / "elu" / "naive.cu"
    (tmp_path / "kernel.cu").write_text(naive.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr("sys.argv", ["msbench", *shlex.split(line)])
    return CliRunner().invoke(app, shlex.split(line))


def evaluations(path: str = "x.sqlite") -> list[Evaluation]:
    """Every one that is stored, the oldest first."""
    with Store(path, read_only=True) as store:
        rows = [row for version in store.versions() for row in store.evaluations(version.id)]
        return [store.evaluation(row.id) for row in sorted(rows, key=lambda row: row.started_at)]


def hidden(evaluation: Evaluation) -> set[tuple[str, float | None]]:
    """The hidden cases that were checked, and how near each came to its bound."""
    return {(c.case.id, c.worst) for c in evaluation.checks if c.case.split is Split.HELDOUT}


def test_each_evaluation_draws_a_seed_and_its_command_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [run(EVAL, monkeypatch) for _ in range(2)]
    assert [one.exit_code for one in shown] == [0, 0]
    first, second = evaluations()
    assert first.seed != second.seed
    assert hidden(first) != hidden(second)
    for one, done in zip((first, second), shown, strict=True):
        assert 0 <= one.seed < DRAWN_SEEDS
        assert one.command == f"msbench {EVAL.removesuffix(' --db x.sqlite')} --seed {one.seed}"
        assert f"repeat it:  {one.command} --db x.sqlite\n" in done.output
    assert run(f"{second.command.removeprefix('msbench ')} --db y.sqlite", monkeypatch).exit_code == 0
    (again,) = evaluations("y.sqlite")
    assert (again.seed, again.command, hidden(again)) == (second.seed, second.command, hidden(second))


def test_a_drawn_seed_fits_a_database_and_json() -> None:
    drawn = {draw_seed() for _ in range(200)}
    assert len(drawn) == 200
    assert all(int(float(seed + 1000)) == seed + 1000 < 2**53 for seed in drawn)


def test_a_seed_stands_before_what_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["msbench", "bench", "--quick", "--", "relu"])
    assert command_line(seed=5) == "msbench bench --quick --seed 5 -- relu"


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("msbench bench relu --seed 5 --quick", "msbench bench relu --quick"),
        ("msbench bench 're lu' --seed=5", "msbench bench 're lu'"),
        ("msbench bench relu", "msbench bench relu"),
        ("no 'shell reads this", "no 'shell reads this"),
    ],
)
def test_a_command_without_its_seed(command: str, without: str) -> None:
    assert without_seed(command) == without


def test_proofs_of_the_evaluator_have_a_fixed_seed() -> None:
    commands: Any = get_command(app)
    found = {
        name: parameter.default
        for name, command in commands.commands.items()
        for parameter in command.params
        if "--seed" in parameter.opts
    }
    drawn = dict.fromkeys(("eval", "bench", "optimize", "sweep", "audit"))
    assert found == {**drawn, "exploits": 0, "mutants": 0, "study": 0}


def test_a_bench_that_goes_on_does_nothing_twice_for_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(BENCH, monkeypatch).exit_code == 0
    (done,) = evaluations()
    assert "1 of 1 tasks are done already." in run(f"{BENCH} --resume", monkeypatch).output
    assert "1 of 1 tasks are done already." in run(f"{BENCH} --resume --seed {done.seed}", monkeypatch).output
    assert evaluations() == [done]
    assert "0 of 1 tasks are done already." in run(f"{BENCH} --resume --seed 3", monkeypatch).output
    assert [one.seed for one in evaluations()] == [done.seed, 3]


def test_a_search_that_goes_on_keeps_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    run(OPTIMIZE, monkeypatch)
    with Store("x.sqlite", read_only=True) as store:
        (begun,) = store.runs()
    assert (begun.status, begun.seed) == ("waiting", begun.settings["plan"]["seed"])
    assert begun.command.endswith(f" --seed {begun.seed}")
    run(f"optimize --resume {begun.id} --executor cpu --no-wait --db x.sqlite", monkeypatch)
    run(OPTIMIZE, monkeypatch)
    with Store("x.sqlite", read_only=True) as store:
        resumed, other = sorted(store.runs(), key=lambda one: one.started_at)
    assert (resumed.id, resumed.seed, resumed.settings) == (begun.id, begun.seed, begun.settings)
    assert other.seed != begun.seed
    drawn = {plan_of_step(Settings.read(run.settings).plan, 0).seed for run in (begun, other)}
    assert {one.seed for one in evaluations()} == drawn


def test_a_replay_has_its_recordings_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    op = operators.load("vector_add")
    plan = Plan(operators.select_cases(op, "smallest"), checks=Checks.QUICK, seed=2**47 + 1)
    with Store("x.sqlite") as store:
        store.add_device(factories.GPU)
        store.add_task(Task(op, factories.FP32))
        settings = Settings(plan, 0, None).stored()
        store.start_run(factories.run_row(op, run_id="r1", provider="manual", status="finished", settings=settings))
        store.add_call(
            run_id="r1", step_number=1, number=1, agent="planner", messages=[("user", "p")], reply="r", model="m",
            seconds=1.0, prompt_tokens=1, completion_tokens=1, cost_usd=0.0,
        )  # fmt: skip
    replay = "optimize vector_add/fp32 --executor cpu --provider replay --db x.sqlite"
    assert run(replay, monkeypatch).exit_code == 0
    assert run(f"{replay} --seed 3", monkeypatch).exit_code == 0
    with Store("x.sqlite", read_only=True) as store:
        first, second = (one for one in store.runs() if one.replay_of == "r1")
    assert {first.seed, second.seed} == {plan.seed, 3}
    assert {first.command.partition(" --seed ")[2], second.command.partition(" --seed ")[2]} == {str(plan.seed), "3"}
