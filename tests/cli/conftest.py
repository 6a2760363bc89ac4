"""An empty folder to work in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from msbench.store.store import Store
from tests import factories


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder outside the checkout, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


@pytest.fixture
def other(here: Path) -> Path:
    """What another machine measured."""
    path = here / "other.sqlite"
    with Store(path) as store:
        factories.story(store)
        for run in store.runs():  # its best version was checked on other hidden cases, too
            best = store.candidate(run.best_version_id or "")
            op = factories.operator(best.operator)
            (checked,) = factories.measured(op, {best: 0.9}, at=14, seed=99)
            store.add_evaluation(op, replace(checked, measurements=(), profiles=()))
    return path
