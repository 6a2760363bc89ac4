"""Operators benched: what failed, where time went, and going on."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.cli._settings import origins, settings
from msbench.cli.measure import _took
from msbench.commands import without_seed
from msbench.errors import StoreError
from msbench.executors.cpu import CpuExecutor
from msbench.figures.proofs import proofs
from msbench.harness.batch import coordinator as batch
from msbench.harness.batch.job import Job
from msbench.harness.protocols import Plan
from msbench.model import Ceilings, Evaluation, Origin, Study
from msbench.spec import Task
from msbench.store.store import Store
from tests import factories
from tests.cli.running import QUICKLY, run
from tests.factories import FP32


def test_bench_names_tasks_that_got_no_verdict(here: Path) -> None:
    for name in ("good", "spoilt"):
        run(here, "new-op", name)
    spec = here / "ops" / "spoilt" / "spec.py"
    spec.write_text(
        spec.read_text("utf-8").replace("def reference(", "def reference(*_, **__):\n    return {}\n\n\ndef unused("),
        "utf-8",
    )
    ended = run(here, "bench", "good/fp32", "spoilt/fp32", "--ops-dir", "ops", "--quick", *QUICKLY)
    assert ended.returncode == 1
    assert re.search("good/fp32 naive .* passed", ended.stdout)
    reason, last = ended.stderr.splitlines()
    assert reason.startswith("spoilt/fp32: ") and "return a dict with" in reason
    assert last == "No verdict on spoilt/fp32: see above. With --resume the same command tries again."


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
    for stage in ("check: reference", "check: worker: launch", "check: compare", "store"):
        assert re.search(rf"^{stage} +\d+\.\d{{3}} +\d+\.\d %$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^1 candidates? in [\d.]+ s: \d+ per hour on one device\.$", done.stdout, re.MULTILINE)
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
    spelt_otherwise = [
        "bench",
        "--quick",
        "relu/fp32",
        "--without=library,best",
        *arguments[2:4],
        "--cases=smallest",
        "--db=x.sqlite",
    ]
    again = run(here, *spelt_otherwise, "--resume")
    assert again.returncode == 0
    assert "1 of 1 tasks are done already." in again.stdout
    assert evaluations() == done
    assert run(here, *[word for word in arguments if word != "--quick"], "--resume").returncode == 0
    assert len(evaluations()) == 2  # other settings are other work
    assert all("--resume" not in command and "sqlite" not in command for _, command in evaluations())


def test_the_naive_kernel_can_be_left_out(here: Path) -> None:
    refused = run(here, "bench", "vector_add", "--versions", "best", "--without", "naive,best", *QUICKLY)
    assert refused.returncode == 2
    assert "--without naive,best leaves nothing of --versions best." in refused.stderr
    run(here, "new-op", "mine")
    nothing = run(here, "bench", "mine", "--ops-dir", "ops", "--versions", "best", "--without", "naive", *QUICKLY)
    assert "None of these tasks has a version to measure; see --versions and --without." in nothing.stderr
    assert origins("all", "naive") == (Origin.LIBRARY, Origin.EXPERT)
    assert origins("library", "") == (Origin.NAIVE, Origin.LIBRARY)


def test_settings_are_the_same_however_they_are_spelt() -> None:
    known = settings("msbench bench softmax --cases odd+paper --versions library --seed 3", True)
    assert known == settings("msbench bench --versions=naive,library --seed=4 --cases=paper+odd --executor cuda", True)
    assert known != settings("msbench bench softmax --cases odd+paper --versions library --seed 3", False)
    assert known != settings("msbench bench softmax --cases odd+paper --versions library --budget 2", True)
    assert known == settings("msbench bench --versions naive,library --cases paper+odd --budget 0.5 --hot", True)
    assert settings("msbench eval softmax.cu", True) is None
    assert settings("msbench bench --gone 3", True) is None


@pytest.mark.parametrize(
    ("cases", "wanted"),
    [
        ("large", ["N=67108864", "N=67108864,spiked"]),
        ("N=67108864,spiked+large+odd", ["N=67108864,spiked", "N=67108864", "N=1000003"]),
        ("odd", ["N=1000003"]),
    ],
)
def test_large_cases_are_benched_on_other_inputs_too(
    here: Path, monkeypatch: pytest.MonkeyPatch, cases: str, wanted: list[str]
) -> None:
    planned: list[str] = []

    def stream(executor: object, jobs: Sequence[Job], **_: object) -> Iterator[tuple[Job, list[Evaluation]]]:
        planned.extend(case.id for job in jobs for case in job.plan.cases)
        yield from ()

    monkeypatch.setattr(batch, "evaluate_all", stream)
    arguments = ["bench", "vector_add/fp32", "--versions", "naive", "--executor", "cpu", "--cases", cases]
    done = CliRunner().invoke(app, [*arguments, "--db", "x.sqlite"])
    assert done.exit_code == 0, done.output
    assert planned == wanted


@pytest.mark.parametrize(
    ("arguments", "planned", "recorded"),
    [
        (("vector_add",), (0.5, True), ""),
        (("--precision", "fp32"), (0.1, False), " --budget 0.1 --no-hot"),
        (("--precision", "fp32", "--budget", "2", "--hot"), (2.0, True), ""),
    ],
)
def test_many_tasks_are_measured_in_less_time_each_unless_told_and_that_is_recorded(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    planned: tuple[float, bool],
    recorded: str,
) -> None:
    plans: list[Plan] = []
    typed = ["bench", *arguments, "--versions", "naive", "--executor", "cpu", "--seed", "3"]

    def stream(executor: object, jobs: Sequence[Job], command: str, **_: object) -> Iterator[object]:
        plans.extend(job.plan for job in jobs)
        assert command == shlex.join(["msbench", *typed]) + recorded
        yield from ()

    monkeypatch.setattr(batch, "evaluate_all", stream)
    monkeypatch.setattr(sys, "argv", ["msbench", *typed, "--db", "x.sqlite"])
    done = CliRunner().invoke(app, [*typed, "--db", "x.sqlite"])
    assert done.exit_code == 0, done.output
    assert {(plan.time_budget_s, plan.hot) for plan in plans} == {planned}


@pytest.mark.parametrize(
    ("arguments", "profiled", "hot"),
    [
        ((), ["N=262144", "N=67108864"], True),
        (("--no-hot", "--cases", "odd"), ["N=1000003"], False),
        (("--cases", "paper"), ["N=262144"], True),
    ],
)
def test_a_small_and_a_large_case_are_profiled_and_calls_in_a_row_timed_unless_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], profiled: list[str], hot: bool
) -> None:
    plans: list[Plan] = []

    def stream(executor: object, jobs: Sequence[Job], **_: object) -> Iterator[tuple[Job, list[Evaluation]]]:
        plans.extend(job.plan for job in jobs)
        yield from ()

    monkeypatch.setattr(batch, "evaluate_all", stream)
    options = ["--versions", "naive", "--executor", "cpu", "--profile-fastest", "--db", "x.sqlite"]
    done = CliRunner().invoke(app, ["bench", "vector_add/fp32", *options, *arguments])
    assert done.exit_code == 0, done.output
    (plan,) = plans
    assert ([case.id for case in plan.profile_cases], plan.hot) == (profiled, hot)


def test_a_task_took_what_its_versions_did_and_new_ones_count_like_the_others() -> None:
    op = factories.operator()
    old, other, new = (factories.candidate(op, label) for label in ("a", "b", "c"))
    known = {old.id: 3.0, other.id: 5.0}
    job = Job(Task(op, FP32), (old, other, new), Plan(cases=op.cases))
    assert _took(job, known) == 12.0
    assert _took(job, {}) is None


def test_what_a_device_reaches_is_measured_once_builds_are_begun_and_stored_with_the_times(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def stream(executor: object, jobs: Sequence[Job], **_: object) -> Iterator[tuple[Job, list[Evaluation]]]:
        told.append("builds")
        yield from ((job, []) for job in jobs)

    def ceilings(self: CpuExecutor) -> Ceilings:
        told.extend(("ceilings", self.device().id))
        return factories.CEILINGS

    monkeypatch.setattr(batch, "evaluate_all", stream)
    monkeypatch.setattr(CpuExecutor, "measures", True)
    monkeypatch.setattr(CpuExecutor, "ceilings", ceilings)
    done = CliRunner().invoke(app, ["bench", "relu", "--versions", "naive", "--executor", "cpu", "--db", "x.sqlite"])
    assert done.exit_code == 0, done.output
    assert told[:2] == ["builds", "ceilings"]
    with Store(here / "x.sqlite", read_only=True) as store:
        assert store.ceilings(told[2]) == factories.CEILINGS


def test_an_error_of_the_database_ends_what_runs_before_the_executor(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its threads are met by an interpreter that is going down, and the one sentence drowns in a traceback."""
    ended: list[str] = []

    def stream(executor: object, jobs: Sequence[Job], **_: object) -> Iterator[tuple[Job, list[Evaluation]]]:
        try:
            yield from ((job, []) for job in jobs)
        finally:
            ended.append("stream")

    def locked(*_: object) -> None:
        raise StoreError("Database x is locked by another process, also after 30 s.")

    monkeypatch.setattr(batch, "evaluate_all", stream)
    monkeypatch.setattr(Store, "add_evaluations", locked)
    monkeypatch.setattr(CpuExecutor, "close", lambda self: ended.append("executor"))
    arguments = ["bench", "relu", "--versions", "naive", *QUICKLY, "--db", "x.sqlite"]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, StoreError), done
    assert ended[:2] == ["stream", "executor"]
