"""Plugins are found by their file's name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from msbench import plugins
from msbench.errors import UnknownNameError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of two plugins and one private module."""
    folder = tmp_path / "shop_of_plugins" / "tools"
    folder.mkdir(parents=True)
    for name in ("../__init__", "__init__", "saw", "hammer", "_shared"):
        (folder / f"{name}.py").write_text(f"NAME = {Path(name).name!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "shop_of_plugins.tools"
    for name in [name for name in sys.modules if name.startswith("shop_of_plugins")]:
        del sys.modules[name]


def test_public_modules_are_plugins_and_a_new_file_is_one(package: str, tmp_path: Path) -> None:
    assert plugins.names(package) == ("hammer", "saw")
    (tmp_path / "shop_of_plugins" / "tools" / "drill.py").touch()
    assert plugins.names(package) == ("drill", "hammer", "saw")


def test_a_plugin_is_the_module_of_that_name(package: str) -> None:
    assert plugins.load(package, "saw", "tool").NAME == "saw"


@pytest.mark.parametrize("name", ["sawn", "_shared", "", "os", "saw.py", "../saw"])
def test_no_other_name_is_a_plugin(package: str, name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"There is no tool .*Known: hammer, saw") as caught:
        plugins.load(package, name, "tool")
    assert ("Did you mean 'saw'?" in str(caught.value)) == ("saw" in name)


@pytest.mark.parametrize(
    ("package", "known"),
    [
        ("msbench.agents", {"cudamaster"}),
        ("msbench.executors", {"cpu", "cuda", "recorded"}),
        ("msbench.providers", {"manual", "openai", "replay"}),
    ],
)
def test_the_plugins_of_msbench_import_without_a_gpu_or_a_key(package: str, known: set[str]) -> None:
    assert known <= set(plugins.names(package))
    for name in plugins.names(package):
        assert plugins.load(package, name, "plugin").__doc__
