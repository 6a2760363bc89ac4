"""One database and one built site for all tests of the site, and a real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msbench.sitegen import build
from msbench.sitegen.facts import Site
from msbench.store.store import Store
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
    """A headless Chromium that records requests and console messages. Without one: skipped, but failed where CI=true."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        missing = "chromium" if browser is None else "chromedriver"
        reason = f"{missing} is not installed: apt-get install chromium chromium-driver"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    flags = (
        "headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    )  # fmt: skip
    for flag in flags:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield window
    window.quit()
