"""``kill -9`` at any instant of a run: ``--resume`` goes on, nothing is lost, nothing is asked or evaluated twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msbench.store.store import Store
from tests import optimizing, turns

Session = Callable[..., str]
_NOT_COMPARED = {"id", "run_id", "evaluation_id", "started_at", "finished_at"}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Runs one session on a database, up to an instant; returns ``"killed"`` or how many instants it had."""
    folder = tmp_path_factory.mktemp("operator")
    command = [sys.executable, "-m", "tests.optimize_child"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, env=environment
    ) as child:
        assert child.stdin and child.stdout

        def one(db: Path, kill_at: int, **job: str) -> str:
            assert child.stdin and child.stdout
            child.stdin.write(json.dumps({"db": str(db), "folder": str(folder), "kill_at": kill_at, **job}) + "\n")
            child.stdin.flush()
            answer = child.stdout.readline().strip()
            assert answer == "killed" or answer.isdigit(), answer
            return answer

        yield one
        child.stdin.close()


@pytest.fixture(scope="module")
def undisturbed(session: Session, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The history of a run that nobody killed."""
    db = tmp_path_factory.mktemp("undisturbed") / "run.sqlite"
    instants = int(session(db, 0))
    return {"instants": instants, **_history(db)}


def _history(db: Path) -> dict[str, Any]:
    """What a run left behind, without names and clocks. (That no draft is evaluated twice, the child asserts too.)"""
    with Store(db) as store:
        (run,) = store.runs()
        steps = store.steps(run.id)
        evaluations = [e for version in store.versions() for e in store.evaluations(version.id)]
        return {
            "run": (run.status, run.note, run.best_version_id),
            "steps": [s.model_dump(exclude=_NOT_COMPARED) for s in steps],
            "calls": [(c.row.number, c.row.step_number, c.row.agent, c.row.prompt_id, c.reply.content) for c in store.calls(run.id)],
            "evaluations": sorted((e.version_id, e.status) for e in evaluations),
            "unsettled": [row.state for row in store.ledger(run.id) if row.state == "reserved"],
        }  # fmt: skip


def _same(db: Path, undisturbed: dict[str, Any]) -> None:
    for what, found in _history(db).items():
        assert found == undisturbed[what], what


def test_the_undisturbed_run_is_the_story(undisturbed: dict[str, Any]) -> None:
    steps = [(s["action"], s["outcome"]) for s in undisturbed["steps"]]
    assert steps == [(action, outcome) for action, outcome, _ in optimizing.OUTCOMES]
    assert undisturbed["instants"] > 100


@pytest.mark.timeout(900)
def test_one_kill_at_instants_throughout(session: Session, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    for instant in turns.share(range(1, undisturbed["instants"] + 1, 17), least=1):
        db = tmp_path / f"{instant}.sqlite"
        assert session(db, instant) == "killed"
        assert session(db, 0).isdigit()
        _same(db, undisturbed)


@pytest.mark.parametrize("seed", turns.share(range(3)))
def test_kill_after_kill(session: Session, undisturbed: dict[str, Any], tmp_path: Path, seed: int) -> None:
    instants = random.Random(seed)
    db = tmp_path / "run.sqlite"
    kills = 0
    while session(db, instants.randint(1, 25)) == "killed":
        kills += 1
        assert kills < 200
    assert kills > 3
    _same(db, undisturbed)


def _versions(db: Path) -> dict[str, Any]:
    """What is the same of a run whose drafts are made side by side: calls are numbered as they come back."""
    history = _history(db)
    calls = sorted((step, agent, reply) for _, step, agent, _, reply in history.pop("calls"))
    return history | {"calls": calls}


@turns.costly
def test_with_proposals_in_parallel_kills_change_nothing(session: Session, tmp_path: Path) -> None:
    unbroken = tmp_path / "unbroken.sqlite"
    instants = int(session(unbroken, 0, strategy="best_of_n"))
    expected = _versions(unbroken)
    assert [step["outcome"] for step in expected["steps"]] == [
        "baseline", "improved", "improved", "slower", "slower", "slower", "improved",
    ]  # fmt: skip
    for instant in turns.share(range(3, instants, max(1, instants // 12))):
        db = tmp_path / f"{instant}.sqlite"
        assert session(db, instant, strategy="best_of_n") == "killed"
        assert session(db, 0, strategy="best_of_n").isdigit()
        assert _versions(db) == expected, instant
