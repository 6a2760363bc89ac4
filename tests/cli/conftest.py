"""An empty folder to work in."""

from __future__ import annotations

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
    return path
