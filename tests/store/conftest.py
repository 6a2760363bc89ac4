from collections.abc import Iterator
from pathlib import Path

import pytest

from msbench.store.store import Store
from tests import factories


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store in memory."""
    with Store(":memory:") as opened:
        yield opened


@pytest.fixture
def told() -> Iterator[Store]:
    """A store with the story of tests/factories.py."""
    with Store(":memory:") as opened:
        factories.story(opened)
        yield opened


@pytest.fixture
def told_file(tmp_path: Path) -> Path:
    """The same as a file."""
    path = tmp_path / "told.sqlite"
    with Store(path) as opened:
        factories.story(opened)
    return path
