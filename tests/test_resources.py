"""Where msbench's own files and its cache are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from msbench import resources
from msbench.errors import MsbenchError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """msbench as if it lay in ``tmp_path / "msbench"``."""
    folder = tmp_path / "msbench"
    folder.mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", folder)
    resources._root.cache_clear()
    yield folder
    resources._root.cache_clear()


def test_a_checkout_has_them_beside_the_package(package: Path) -> None:
    (package.parent / "kernels").mkdir()
    assert resources.kernels_dir() == package.parent / "kernels"
    assert resources.include_dir() == package.parent / "kernels" / "include"
    assert resources.templates_dir() == package.parent / "site_templates"


def test_a_wheel_has_them_in_the_package(package: Path) -> None:
    (package.parent / "kernels").mkdir()
    (package / "_data").mkdir()
    assert resources.kernels_dir() == package / "_data" / "kernels"


def test_nowhere_is_one_sentence_with_what_to_do(package: Path) -> None:
    with pytest.raises(MsbenchError, match=f"{package.parent}: reinstall msbench"):
        resources.kernels_dir()


def test_the_published_database_may_be_missing(package: Path) -> None:
    (package / "_data" / "db").mkdir(parents=True)
    assert resources.published_db() is None
    (package / "_data" / "db" / "published.sqlite").touch()
    assert resources.published_db() == package / "_data" / "db" / "published.sqlite"


def test_what_is_here_is_complete() -> None:
    assert (resources.include_dir() / "msbench.cuh").is_file()
    assert list(resources.kernels_dir().glob("*/spec.py"))
    assert list(resources.templates_dir().glob("*.html"))


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("MSBENCH_CACHE", "~/here")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert resources.cache_dir() == Path("/home/someone/here")
    monkeypatch.delenv("MSBENCH_CACHE")
    assert resources.cache_dir() == Path("/x/msbench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert resources.cache_dir() == Path("/home/someone/.cache/msbench")
