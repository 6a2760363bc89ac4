"""One database and one built site for all tests of the site, and a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msbench.sitegen import build
from msbench.sitegen.facts import Site
from msbench.store.store import Store
from tests.browser.reader import chromium as started
from tests.browser.reader import missing
from tests.sitegen.showcase import fill


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """The showcase; tests only read it."""
    with Store(":memory:") as filled:
        fill(filled)
        yield filled


@pytest.fixture(scope="session")
def site(store: Store) -> Site:
    return Site(store)


@pytest.fixture(scope="session")
def built(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The showcase's site."""
    return build(store, tmp_path_factory.mktemp("showcase") / "site").out


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium. Without one: skipped, but failed where CI=true."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with started(tmp_path_factory.mktemp("chromium")) as window:
        yield window
