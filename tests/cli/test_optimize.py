"""A search that stops says how to go on; one that can't begin says why."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.archive.union import union
from msbench.cli import app
from msbench.errors import MsbenchError
from msbench.providers.replay import ReplayProvider
from msbench.resources import published_db
from msbench.store.store import Store
from tests.cli.running import GOOD, QUICKLY, refused, run


def test_waiting_for_an_answer_is_exit_code_3_and_resume_waits_again(here: Path) -> None:
    first = run(here, "optimize", "vector_add/fp32", "--provider", "manual", "--no-wait", "--rounds", "1", *QUICKLY)
    assert first.returncode == 3, first
    assert re.fullmatch(r"waiting: .+\n", first.stderr)
    assert list((here / "prompts").rglob("*planner*.md"))
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        (waiting,) = store.runs()
    assert waiting.status == "waiting"
    second = run(here, "optimize", "--resume", waiting.id[:8], "--no-wait", "--executor", "cpu")
    assert (second.returncode, second.stderr) == (3, first.stderr)
    assert first.stderr.endswith(f"Then continue with: msbench optimize --resume {waiting.id} --no-wait\n")
    assert "go on" not in waiting.note


@pytest.mark.parametrize(("view", "profiled"), [("none", False), ("full", True)])
def test_what_agents_will_not_see_is_not_profiled(here: Path, view: str, profiled: bool) -> None:
    given = ("--provider", "manual", "--no-wait", "--profile-view", view)
    run(here, "optimize", "vector_add/fp32", *given, *QUICKLY)
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        (waiting,) = store.runs()
    assert waiting.settings["plan"]["profile"] is profiled


def test_the_command_that_goes_on_after_an_answer_is_whole(here: Path) -> None:
    run(here, "new-op", "mine", "--ops-dir", "my ops")
    given = ("--no-wait", "--prompts", "my prompts", "--ops-dir", "my ops", "--db", "my.sqlite")
    first = run(here, "optimize", "mine/fp32", "--provider", "manual", "--rounds", "1", *QUICKLY, *given)
    assert first.returncode == 3, first
    (printed,) = re.findall(r"Then continue with: msbench (.+)$", first.stderr, re.MULTILINE)
    second = run(here, *shlex.split(printed))
    assert (second.returncode, second.stderr) == (3, first.stderr)
    (prompt,) = (here / "my prompts").rglob("001-planner.md")
    prompt.with_suffix(".answer.md").write_text("Try less.", encoding="utf-8")
    third = run(here, *shlex.split(printed))
    assert third.returncode == 3 and "002-coder.md" in third.stderr and printed in third.stderr


def test_a_task_that_cant_be_begun_is_refused_before_the_first_is_searched(here: Path) -> None:
    run(here, "new-op", "mine")
    done = run(here, "optimize", "rms_norm/fp32", "mine/bf16", "--ops-dir", "ops", "--provider", "replay")
    assert "no recorded conversation for mine/bf16" in refused(done)
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        assert store.runs() == []


def test_a_recording_that_the_option_for_the_database_hides_is_told_of(here: Path) -> None:
    arguments = ("optimize", "rms_norm/fp32", "--provider", "replay", "--executor", "cpu")
    says = refused(run(here, *arguments, "--db", "new.sqlite"))
    assert "no recorded conversation for rms_norm/fp32" in says and "not the shipped one, which has recordings" in says
    run(here, "new-op", "mine")
    assert "--db" not in refused(run(here, "optimize", "mine/bf16", "--ops-dir", "ops", *arguments[2:]))


def test_a_search_that_loses_its_endpoint_says_how_to_go_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    done = run(here, "optimize", "relu/fp32", "--model", "some", *QUICKLY, "--db", "mine.sqlite")
    assert done.returncode == 2, done
    with Store(here / "mine.sqlite", read_only=True) as store:
        (stopped,) = store.runs()
    go_on = f"msbench optimize --resume {stopped.id} --db mine.sqlite"
    assert re.fullmatch(
        rf"error: http://127\.0\.0\.1:9/v1 can't be reached: .+\. Then continue with: {go_on}\n", done.stderr
    )


def test_a_model_that_would_not_be_asked_is_refused(here: Path) -> None:
    says = refused(run(here, "optimize", "rms_norm/fp32", "--model", "some"))
    assert says.startswith("error: --model some: a replay repeats recorded answers") and "OPENAI_API_KEY" in says


def test_prompt_files_go_on_in_lockstep_task_by_task(here: Path) -> None:
    manual = ("--provider", "manual", "--no-wait", "--unfinished", "--rounds", "1", *QUICKLY)
    first = run(here, "optimize", "vector_add/fp32", "relu/fp32", *manual)
    assert (first.returncode, first.stderr) == (3, ""), first
    assert "2 runs wait for an answer. Then continue with: msbench optimize --unfinished --no-wait" in first.stdout
    for prompt in (here / "prompts").rglob("001-planner.md"):
        prompt.with_suffix(".answer.md").write_text("Try 128 threads.", encoding="utf-8")
    assert run(here, "optimize", "vector_add/fp32", "relu/fp32", *manual).returncode == 3
    coder = next(p for p in (here / "prompts").rglob("002-coder.md") if "vector_add(" in p.read_text("utf-8"))
    coder.with_suffix(".answer.md").write_text(f"```cuda\n{GOOD.replace('256', '128')}```\n", encoding="utf-8")
    third = run(here, "optimize", "--unfinished", "--no-wait", "--executor", "cpu")
    assert third.returncode == 3 and "vector_add/fp32 step 1: checked" in third.stdout, third
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        assert sorted((r.task_id, r.status) for r in store.runs()) == [
            ("relu/fp32", "waiting"),
            ("vector_add/fp32", "finished"),
        ]
        best = next(r.best_version_id for r in store.runs() if r.status == "finished")
    fork = run(here, "fork", (best or "")[:10], "--provider", "manual", "--no-wait", *QUICKLY)
    assert fork.returncode == 3 and "step 1: checked" in fork.stdout, fork
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        forked = store.runs()[-1]
        assert [(s.action, s.version_id) for s in store.steps(forked.id)][1:] == [("fork", best)]
    assert "no version 'nonsense'" in refused(run(here, "fork", "nonsense", *QUICKLY))


def test_a_replay_has_the_times_of_the_device_of_its_recording(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str | None] = []

    def pick(name: str, db: str | None, device: str | None, store: Store) -> None:
        opened.append(device)
        raise MsbenchError("opened")

    monkeypatch.setattr("msbench.cli.search.pick_executor", pick)
    with union([str(published_db())]) as store:
        tasks = sorted({run.task_id for run in store.runs()})
        some = {ReplayProvider(store, "").recording(task).device_id: task for task in tasks}
    assert len(some) > 1
    for device, task in some.items():
        done = CliRunner().invoke(app, ["optimize", task, "--provider", "replay"])
        assert (opened.pop(), done.exit_code) == (device, 1)
    mixed = CliRunner().invoke(app, ["optimize", *some.values(), "--provider", "replay"])
    assert isinstance(mixed.exception, MsbenchError) and not opened
    first, second = some.values()
    assert (
        str(mixed.exception)
        == f"{second} was recorded on another device than {first}: replay it with a command of its own."
    )
