from collections.abc import Iterator
from pathlib import Path

import pytest

from msbench.store.store import Store
from tests import factories


def tell(store: Store) -> None:
    """The story, and one trial of the evaluator."""
    factories.story(store)
    store.add_trials([factories.trial()])


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store in memory."""
    with Store(":memory:") as opened:
        yield opened


@pytest.fixture
def told() -> Iterator[Store]:
    """A store with the story of tests/factories.py, and a trial of the evaluator."""
    with Store(":memory:") as opened:
        tell(opened)
        yield opened


@pytest.fixture
def told_file(tmp_path: Path) -> Path:
    """The same as a file."""
    path = tmp_path / "told.sqlite"
    with Store(path) as opened:
        tell(opened)
    return path
