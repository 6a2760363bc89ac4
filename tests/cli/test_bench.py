"""Operators benched: what failed, where time went, and going on."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from msbench.commands import without_seed
from msbench.model import Study
from msbench.store.proofs import proofs
from msbench.store.store import Store
from tests.cli.running import QUICKLY, run


def test_bench_fails_if_a_version_fails_and_names_it(here: Path) -> None:
    run(here, "new-op", "mine")
    arguments = ("bench", "mine/fp32", "--ops-dir", "ops", "--quick", *QUICKLY)
    good = run(here, *arguments)
    assert (good.returncode, good.stderr) == (0, "")
    (here / "ops" / "mine" / "other.cu").write_text("// nothing\n", encoding="utf-8")
    bad = run(here, *arguments)
    assert (bad.returncode, bad.stderr) == (1, "1 version(s) did not pass; the tables above say why.\n")
    assert re.search("mine/fp32 naive .* passed", bad.stdout)
    assert re.search("mine/fp32 other .* build_failed", bad.stdout)


def test_a_bench_tells_where_its_time_went_and_records_it(here: Path) -> None:
    """On a processor that is a figure of the way, not of the kernels."""
    arguments = ("bench", "relu", "--versions", "naive", "--quick", *QUICKLY, "--profile-harness")
    done = run(here, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for stage in ("reference", "worker: launch", "compare", "store"):
        assert re.search(rf"^{stage} +\d+\.\d{{3}} +\d+\.\d %$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^1 candidates? in [\d.]+ s: \d+ an hour on one device\.$", done.stdout, re.MULTILINE)
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        group, whole = sorted(store.trials(Study.THROUGHPUT), key=lambda trial: trial.subject == "all")
    assert (group.subject, whole.subject) == ("relu/bf16 #1", "all")
    assert sum(group.details["spans"].values()) == pytest.approx(group.details["seconds"])
    assert group.command == whole.command
    assert without_seed(group.command) == f"msbench {shlex.join(arguments)}"


def test_recorded_times_make_no_pace_of_the_device_that_they_come_from(here: Path) -> None:
    quickly = ("--quick", "--cases", "smallest", "--executor", "recorded", "--profile-harness")
    done = run(here, "bench", "relu", "--versions", "naive", *quickly)
    assert (done.returncode, done.stderr) == (0, "")
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        assert [proof.device.kind for proof in proofs(store, Study.THROUGHPUT)] == ["cpu"]


def test_a_bench_goes_on_where_it_was(here: Path) -> None:
    arguments = [
        "bench",
        "relu/fp32",
        "--executor",
        "cpu",
        "--versions",
        "naive",
        "--cases",
        "smallest",
        "--quick",
        "--db",
        "x.sqlite",
    ]

    def evaluations() -> list[tuple[str, str]]:
        with Store(here / "x.sqlite") as store:
            return [(e.id, e.command) for version in store.versions() for e in store.evaluations(version.id)]

    assert run(here, *arguments).returncode == 0
    done = evaluations()
    assert len(done) == 1
    again = run(here, *arguments, "--resume")
    assert again.returncode == 0
    assert "1 of 1 tasks are done already." in again.stdout
    assert evaluations() == done
    assert run(here, *[word for word in arguments if word != "--quick"], "--resume").returncode == 0
    assert len(evaluations()) == 2  # another command is other work
    assert all("--resume" not in command and "sqlite" not in command for _, command in evaluations())
