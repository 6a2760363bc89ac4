"""The commands that only look, and the one that begins an operator."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.store.store import Store
from tests.cli.running import CHECKOUT, refused, run


def test_the_version_is_printed() -> None:
    assert re.fullmatch(r"msbench \d+\.\d+\.\d+\n", CliRunner().invoke(app, ["--version"]).output)


def test_ops_lists_the_operators(here: Path) -> None:
    shown = run(here, "ops")
    assert shown.returncode == 0
    names = {line.split()[0] for line in shown.stdout.splitlines() if line[:1].isalpha()}
    assert {p.parent.name for p in (CHECKOUT / "kernels").glob("*/spec.py")} <= names
    assert len(shown.stdout.splitlines()) < 80 and "RMS" in shown.stdout
    assert shown.stdout.endswith("`msbench show OPERATOR` prints one's formula, prototype, cases and versions.\n")


def test_show_has_no_heading_without_what_belongs_under_it(here: Path) -> None:
    run(here, "new-op", "mine")
    assert "\nlibrary\n" not in run(here, "show", "mine", "--ops-dir", "ops").stdout
    assert "\nlibrary\n" in run(here, "show", "softmax").stdout


def test_show_prints_the_whole_prototype_at_any_width(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = run(here, "show", "rms_norm")
    assert shown.returncode == 0
    prototype = (
        'extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, '
        "float epsilon, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream);"
    )
    assert prototype in " ".join(shown.stdout.split())
    assert f"\nfiles\n  {CHECKOUT / 'kernels' / 'rms_norm'}\n" in shown.stdout
    assert "scalars epsilon: 1e-05; heldout cases have others, from 0.01 to 1.0" in " ".join(shown.stdout.split())


def test_show_prints_the_prototypes_of_a_published_convention(here: Path) -> None:
    shown = run(here, "show", "rms_norm", "--abi", "mskernelbench")
    assert shown.returncode == 0
    first, *others = shown.stdout.splitlines()
    parameters = "float* y, const float* x, const float* weight, const float* bias, float epsilon, int N"
    assert first == f'extern "C" void rms_norm({parameters})'
    assert len(others) == 3 and all("rms_norm_" in line for line in others)
    assert "no calling convention 'mine'" in refused(run(here, "show", "rms_norm", "--abi", "mine"))
    run(here, "new-op", "my_op")
    says = refused(run(here, "show", "my_op", "--ops-dir", "ops", "--abi", "mskernelbench"))
    assert "The calling convention mskernelbench has no function for my_op." in says


def test_doctor_finds_what_is_needed_and_says_how_to_get_the_rest(here: Path) -> None:
    shown = run(here, "doctor")
    assert shown.returncode == 0
    assert re.search(r"✓ g\+\+: .+", shown.stdout)
    missing = re.findall(r"^– .+ not found\. Without it .+", shown.stdout, re.MULTILINE)
    assert len(missing) == len(re.findall("^–", shown.stdout, re.MULTILINE))


def test_doctor_fails_without_a_compiler(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(here))
    shown = run(here, "doctor")
    assert shown.returncode == 1
    assert re.search(r"✗ g\+\+: not found\. Without it .+\n +Install it", shown.stdout)


def test_a_new_operator_is_made_and_the_command_that_is_printed_evaluates_it(here: Path) -> None:
    made = run(here, "new-op", "my_op", "--ops-dir", "folder of mine")
    assert made.returncode == 0
    (printed,) = re.findall(r"^try it: +msbench (.+)$", made.stdout, re.MULTILINE)
    done = run(here, *shlex.split(printed), "--executor", "cpu", "--cases", "smallest", "--quick")
    assert done.returncode == 0, done
    assert "my_op/fp32" in done.stdout and "passed" in done.stdout
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        assert [v.task_id for v in store.versions("my_op/fp32")] == ["my_op/fp32"]
    before = (here / "folder of mine" / "my_op" / "naive.cu").read_bytes()
    assert "exists and is left as it is" in refused(run(here, "new-op", "my_op", "--ops-dir", "folder of mine"))
    assert (here / "folder of mine" / "my_op" / "naive.cu").read_bytes() == before


def test_a_site_is_not_built_into_the_published_one(here: Path, other: Path) -> None:
    """site/ of a checkout is committed, and holds nothing that was run there."""
    (here / "site").mkdir()
    done = run(here, "build-site", "--db", other)
    assert done.returncode == 0, done
    assert (here / "build" / "site" / "index.html").is_file()
    assert not any((here / "site").iterdir())
