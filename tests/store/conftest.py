import shutil
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


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the next two copy; writing it takes as long as most tests of it."""
    path = tmp_path_factory.mktemp("told") / "told.sqlite"
    with Store(path) as opened:
        tell(opened)
    return path


@pytest.fixture
def told(_template: Path) -> Iterator[Store]:
    """A store with the story of tests/factories.py, and a trial of the evaluator, in memory."""
    with Store.snapshot(_template) as opened:
        yield opened


@pytest.fixture
def told_file(_template: Path, tmp_path: Path) -> Path:
    """The same as a file."""
    return Path(shutil.copy(_template, tmp_path / "told.sqlite"))
