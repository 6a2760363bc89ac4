"""An empty folder to work in."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from msbench.store.database import Database
from msbench.store.store import Store
from tests import factories, shipped


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder outside the checkout, which is the current one; see ``tests.shipped`` for the database of commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(Database, "read_to_memory", shipped.reading(shipped.unpacked()))
    return tmp_path


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the next one copies; writing it takes longer than most commands."""
    path = tmp_path_factory.mktemp("other") / "other.sqlite"
    with Store(path) as store:
        factories.story(store)
        for run in store.runs():  # its best version was checked on other hidden cases, too
            best = store.candidate(run.best_version_id or "")
            op = factories.operator(best.operator)
            (checked,) = factories.measured(op, {best: 0.9}, at=14, seed=99)
            store.add_evaluation(op, replace(checked, measurements=(), profiles=()))
    return path


@pytest.fixture
def other(_template: Path, here: Path) -> Path:
    """What another machine measured."""
    return Path(shutil.copy(_template, here))
