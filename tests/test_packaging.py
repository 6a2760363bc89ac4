"""The wheel: it holds what msbench needs to run without a checkout, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from msbench import resources
from msbench.store.store import Store
from tests import factories

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def under(folder: str) -> set[str]:
    return {
        path.relative_to(CHECKOUT).as_posix()
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_every_file_of_the_package_is_in_it(names: set[str]) -> None:
    """Python, the emulator's headers and runtime, the CUDA runner, the prompts."""
    expected = under("msbench")
    assert {"msbench/emulator/include/msbench_cpu/launch.hpp", "msbench/gpu/native/runner/call.cuh"} <= expected
    assert expected <= names


@pytest.mark.parametrize("folder", ["kernels", "site_templates"])
def test_the_data_folders_are_in_it(names: set[str], folder: str) -> None:
    assert under(folder)
    assert {f"msbench/_data/{name}" for name in under(folder)} <= names


def test_of_the_databases_only_the_published_one_is_in_it(names: set[str]) -> None:
    published = (CHECKOUT / "db" / "published.sqlite").is_file()
    assert {n for n in names if "sqlite" in n} == ({"msbench/_data/db/published.sqlite"} if published else set())


def test_nothing_else_is_in_it(names: set[str]) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"msbench", "mskernelbench"}
    foreign = [name for name in names if {"tests", "__pycache__", "site"} & set(name.split("/")) or "/test_" in name]
    assert foreign == []


def test_it_runs_where_there_is_no_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "PYTHONSAFEPATH": "1"}
    with Store(tmp_path / "own.sqlite") as store:
        factories.story(store)
    for arguments in (["ops"], ["show", "softmax"], ["build-site", "--db", "own.sqlite", "--out", "site"]):
        done = subprocess.run(
            [sys.executable, "-m", "msbench", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if arguments[0] == "show" and resources.published_db():  # which it reads, as all do without --db
            assert "passed, cuda executor" in done.stdout
    where = subprocess.run(
        [sys.executable, "-c", "from msbench import resources; print(resources.kernels_dir())"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.strip() == str(tmp_path / "installed" / "msbench" / "_data" / "kernels")
    assert (tmp_path / "site" / "index.html").is_file()
