"""`msbench study` on the command line: what is stored when, what is left out with --resume, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.cli import study as command
from msbench.errors import DeviceError, MsbenchError
from msbench.gpu import devices as gpus
from msbench.model import Study
from msbench.store.store import Store
from msbench.study import subjects
from tests.study import fakes
from tests.study.fakes import StudyExecutor


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[StudyExecutor]:
    """A GPU, and two subjects."""
    fake = StudyExecutor(luck=0.0005)
    monkeypatch.setattr(command, "pick_executor", lambda *_, **__: fake)
    monkeypatch.setattr(subjects, "choose", lambda count: fakes.subjects()[:count])
    yield fake


def study(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["msbench", "study", *arguments])
    done = CliRunner().invoke(app, ["study", *arguments])
    if isinstance(done.exception, MsbenchError):
        raise done.exception
    return done.exit_code, done.output


def test_an_interrupted_study_goes_on_where_it_was(
    executor: StudyExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = str(tmp_path / "a.sqlite")
    arguments = ("--tasks", "2", "--pairs", "2", "--budget", "0", "--db", db)
    _, said = study(*arguments, monkeypatch=monkeypatch)
    assert "1 tasks are left for --resume" in said
    with Store(db) as store:
        first = store.trials()
    assert {one.details["case"] for one in first} == {"N=64"}
    assert {one.command for one in first} == {"msbench study --tasks 2 --pairs 2 --budget 0"}

    longer = tuple("600" if word == "0" else word for word in arguments)
    code, said = study(*longer, "--resume", monkeypatch=monkeypatch)
    assert "1 of 2 tasks are recorded already." in said
    with Store(db) as store:
        both = store.trials()
    assert len(both) == 2 * len(first) == 8
    assert len({one.created_at for one in both}) == 1
    assert "in 4 of 4 pairs" in said or "pairs (" in said
    assert code in (0, 1)

    _, said = study(*arguments, "--resume", monkeypatch=monkeypatch)
    assert "2 of 2 tasks are recorded already." in said
    with Store(db) as store:
        assert store.trials() == both


def test_kinds_can_be_had_alone(executor: StudyExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Study.SAME, Study.SLOWDOWN):
        db = str(tmp_path / f"{kind}.sqlite")
        study("--tasks", "1", "--pairs", "2", "--kind", kind.value, "--db", db, monkeypatch=monkeypatch)
        with Store(db) as store:
            assert [one.study for one in store.trials()] == [kind] * 2


def test_a_study_that_misses_its_criterion_has_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for luck, code in ((0.0, 0), (0.05, 1)):
        fake = StudyExecutor(luck=luck)
        monkeypatch.setattr(command, "pick_executor", lambda *_, fake=fake, **__: fake)
        monkeypatch.setattr(subjects, "choose", lambda count: fakes.subjects()[:count])
        db = str(tmp_path / f"{luck}.sqlite")
        options = ("--tasks", "1", "--kind", "slowdown", "--db", db)
        found, said = study(*options, monkeypatch=monkeypatch)
        assert found == code, said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kind", "both"), r"--kind 'both': choose from same and slowdown"),
        (("--kind", ""), r"--kind '': choose from"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MsbenchError, match=message):
        study(*arguments, "--db", str(tmp_path / "a.sqlite"), monkeypatch=monkeypatch)


def test_too_many_tasks_are_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MsbenchError, match="--tasks 1000: choose from 1 to"):
        study("--tasks", "1000", "--db", str(tmp_path / "a.sqlite"), monkeypatch=monkeypatch)
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(*_: object, **__: object) -> None:
        gpus.choose(None, ())

    monkeypatch.setattr(command, "pick_executor", none_here)
    monkeypatch.setattr(gpus, "gpus", tuple)
    with pytest.raises(DeviceError, match="needs an NVIDIA GPU") as caught:
        study("--db", str(tmp_path / "a.sqlite"), monkeypatch=monkeypatch)
    assert "--executor" not in str(caught.value)  # study has no such option


def test_the_report_is_written_from_the_database(
    executor: StudyExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = str(tmp_path / "a.sqlite")
    study("--tasks", "2", "--pairs", "2", "--db", db, monkeypatch=monkeypatch)
    code, said = study("--report", str(tmp_path / "docs"), "--db", db, monkeypatch=monkeypatch)
    assert code == 0
    assert said.count("wrote") == 3
    assert "of 4 pairs" in (tmp_path / "docs" / "study.md").read_text()
