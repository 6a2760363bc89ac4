"""One kernel from a file: its verdict, for people and for scripts."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from msbench import report
from msbench.cli import app
from msbench.executors import cpu
from msbench.model import Failure, Fault, Status
from msbench.store.store import Store
from tests import factories
from tests.cli.running import GOOD, QUICKLY, run

SUM = "static_cast<float>(A[i]) + static_cast<float>(B[i])"
INDEX = "if (i < N)"
WRONG = GOOD.replace(SUM, SUM.replace("+", "-"))


def evaluate(here: Path, source: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of evaluating a vector_add on the cpu executor, in this process."""
    file = here / "kernel.cu"
    file.write_text(source, encoding="utf-8")
    arguments = "eval kernel.cu --op vector_add --precision fp32 --executor cpu --cases smallest --quick --json"
    done = CliRunner().invoke(app, arguments.split())
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer["operator"], answer["precision"]) == ("vector_add", "fp32")
    (version,) = answer["versions"]
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        assert [str(e.status) for e in store.evaluations(version["version"])] == [version["status"]]
    return done.exit_code, version


def test_a_good_kernel_passes_and_no_time_is_claimed(here: Path) -> None:
    code, version = evaluate(here, GOOD + "// mine\n")
    assert (code, version["status"], version["failure"]) == (0, "passed", None)
    assert version["checks"] and all(check["passed"] for check in version["checks"])
    assert (version["cases"], version["speedup"], version["executor"]) == ([], None, "cpu")


@pytest.mark.parametrize(
    ("source", "status", "fault", "says"),
    [
        (WRONG, "check_failed", "mismatch", "C["),
        (GOOD.replace(INDEX, "if (i < N - 1)"), "check_failed", "unwritten", "C["),
        ("", "build_failed", "empty", "The launcher must be: extern"),
        (GOOD.replace(SUM, "sum"), "build_failed", "compile", "line 5"),
        (GOOD.replace("const scalar_t* B, scalar_t* C, int64_t N, void", "int B, scalar_t* C, int64_t N, void"),
         "build_failed", "signature", "The launcher must be: extern"),
    ],
    ids=["wrong", "unwritten", "empty", "does not compile", "other signature"],
)  # fmt: skip
def test_a_bad_kernel_is_told_apart_by_its_fault(here: Path, source: str, status: str, fault: str, says: str) -> None:
    assert source != GOOD
    code, version = evaluate(here, source)
    assert code == 1
    assert (version["status"], version["failure"]["fault"]) == (status, fault), version["failure"]
    assert says in version["failure"]["message"]


def test_a_hanging_kernel_is_ended(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = cpu.CpuExecutor.__init__
    monkeypatch.setattr(
        cpu.CpuExecutor, "__init__", lambda self, *args, **options: create(self, *args, **options, launch_limit_s=1.0)
    )
    code, version = evaluate(here, GOOD.replace(INDEX, "while (atomicAdd(C, 0.0f) != 12345.0f) {} if (i < N)"))
    assert (code, version["status"], version["failure"]["fault"]) == (1, "check_failed", "timeout")


def test_without_json_the_verdict_is_for_people(here: Path) -> None:
    (here / "kernel.cu").write_text(WRONG, encoding="utf-8")
    done = run(
        here, "eval", "kernel.cu", "--op", "vector_add", "--precision", "fp32", "--executor", "cpu", "--cases", "smallest"
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == ""
    assert done.stdout.endswith(f"recorded in {Path('db', 'local.sqlite')}\n")
    assert "check_failed" in done.stdout and "mismatch: " in done.stdout and "Traceback" not in done.stdout


def test_a_message_names_the_file_that_was_given(here: Path) -> None:
    (here / "mine.cu").write_text(GOOD.replace(SUM, "sum"), encoding="utf-8")
    arguments = ("eval", "mine.cu", "--op", "vector_add", "--precision", "fp32", *QUICKLY)
    for form in ((), ("--json",)):
        done = run(here, *arguments, *form)
        assert done.returncode == 1 and "mine.cu line 5" in done.stdout
        assert "vector_add.cu line" not in done.stdout.partition('"log"')[0]


def test_faults_are_words_and_ratios_have_digits() -> None:
    op = factories.operator()
    candidate = factories.candidate(op, "mine")
    failed = replace(
        factories.failed(op, candidate, Status.CHECK_FAILED),
        checks=(replace(factories.checks(op.cases)[0], worst=0.9996),),
    )
    failed = replace(failed, failure=Failure(Fault.OUT_OF_BOUNDS, "It wrote."))
    console = Console(file=StringIO(), width=200)
    report.evaluation(console, op, [failed])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "out of bounds: It wrote." in shown and "largest error is 1.00 of its bound" in shown
