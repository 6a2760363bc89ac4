"""The `msbench` command as a person or a script uses it: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from msbench import report
from msbench.cli import _interruption, app, main
from msbench.commands import without_seed
from msbench.executors import cpu
from msbench.model import Failure, Fault, Origin, Status, Study
from msbench.store.proofs import proofs
from msbench.store.store import Store
from tests import factories

CHECKOUT = Path(__file__).parents[1]
GROUP = get_command(app)
COMMANDS = sorted(GROUP.commands)  # type: ignore[attr-defined]
DB_COMMANDS = sorted(GROUP.commands["db"].commands)  # type: ignore[attr-defined]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder outside the checkout, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


def run(here: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in the folder ``here``."""
    return subprocess.run(
        [sys.executable, "-m", "msbench", *map(str, arguments)],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of an expected error."""
    assert (done.returncode, done.stdout) == (2, ""), done
    assert re.fullmatch(r"error: .+\n", done.stderr), done.stderr
    return done.stderr


# ------------------------------------------------------------------ help


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "db"] + [f"db {c}" for c in DB_COMMANDS])
def test_every_command_has_help_with_an_example(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    (example,) = re.findall(r"Example: +msbench (.+)", shown.output)
    assert example.startswith(command)
    words = shlex.split(example.rstrip())
    options = [word for word in words if word.startswith("--")]
    assert all(option in shown.output for option in options)


def test_help_names_the_commands_and_the_readme_shows_them() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert re.search(rf"^\W*{command}\b", shown, re.MULTILINE)
        assert re.search(rf"\bmsbench {command}\b|\bmake {command}\b", readme), f"README.md does not show {command}"


@pytest.mark.parametrize("document", ["README.md", *sorted(f"docs/{p.name}" for p in (CHECKOUT / "docs").glob("*.md"))])
def test_documents_show_commands_and_options_that_are_there(document: str) -> None:
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    for line in re.findall(r"(?:^\$ |`)msbench ([a-z][^#`\n]*)", text, re.MULTILINE):
        words = [word for part in line.split("&&") for word in part.replace("msbench ", "").split()]
        command, *rest = words
        assert command in COMMANDS, line
        if "&&" in line:
            continue
        found: Any = GROUP.commands[command]  # type: ignore[attr-defined]
        if command == "db":
            found = found.commands[rest[0]]
        known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known | {"--help"}, line


def test_the_version_is_printed() -> None:
    assert re.fullmatch(r"msbench \d+\.\d+\.\d+\n", CliRunner().invoke(app, ["--version"]).output)


# ------------------------------------------------------------------ looking


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


# ------------------------------------------------------------------ an operator of one's own


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


# ------------------------------------------------------------------ eval

GOOD = (CHECKOUT / "kernels" / "vector_add" / "naive.cu").read_text(encoding="utf-8")
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


# ------------------------------------------------------------------ bench, optimize

QUICKLY = ("--executor", "cpu", "--cases", "smallest")


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


def test_waiting_for_an_answer_is_exit_code_3_and_resume_waits_again(here: Path) -> None:
    first = run(here, "optimize", "vector_add/fp32", "--provider", "manual", "--no-wait", "--rounds", "1", *QUICKLY)
    assert first.returncode == 3, first
    assert re.fullmatch(r"waiting: .+\n", first.stderr)
    assert list((here / "prompts").rglob("*planner*.md"))
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        (waiting,) = store.runs()
    assert waiting.status == "waiting"
    second = run(here, "optimize", "--resume", waiting.id[:8], "--no-wait", "--executor", "cpu")
    assert (second.returncode, second.stderr) == (3, first.stderr)
    assert first.stderr.endswith(f"Then go on with: msbench optimize --resume {waiting.id} --no-wait\n")
    assert "go on" not in waiting.note


def test_the_command_that_goes_on_after_an_answer_is_whole(here: Path) -> None:
    run(here, "new-op", "mine", "--ops-dir", "my ops")
    given = ("--no-wait", "--prompts", "my prompts", "--ops-dir", "my ops", "--db", "my.sqlite")
    first = run(here, "optimize", "mine/fp32", "--provider", "manual", "--rounds", "1", *QUICKLY, *given)
    assert first.returncode == 3, first
    (printed,) = re.findall(r"Then go on with: msbench (.+)$", first.stderr, re.MULTILINE)
    second = run(here, *shlex.split(printed))
    assert (second.returncode, second.stderr) == (3, first.stderr)
    (prompt,) = (here / "my prompts").rglob("001-planner.md")
    prompt.with_suffix(".answer.md").write_text("Try less.", encoding="utf-8")
    third = run(here, *shlex.split(printed))
    assert third.returncode == 3 and "002-coder.md" in third.stderr and printed in third.stderr


def test_a_task_that_cant_be_begun_is_refused_before_the_first_is_searched(here: Path) -> None:
    done = run(here, "optimize", "rms_norm/fp32", "vector_add/bf16", "--provider", "replay")
    assert "no recorded conversation for vector_add/bf16" in refused(done)
    with Store(here / "db" / "local.sqlite", read_only=True) as store:
        assert store.runs() == []


def test_a_recording_that_the_option_for_the_database_hides_is_told_of(here: Path) -> None:
    arguments = ("optimize", "rms_norm/fp32", "--provider", "replay", "--executor", "cpu")
    says = refused(run(here, *arguments, "--db", "new.sqlite"))
    assert (
        "no recorded conversation for rms_norm/fp32" in says
        and "the shipped one, which has recordings, is left out" in says
    )
    assert "--db" not in refused(run(here, "optimize", "vector_add/bf16", *arguments[2:]))


# ------------------------------------------------------------------ errors

EVAL = ("eval", "kernel.cu", "--precision", "fp32", "--op")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*EVAL, "vector_ad"), "no operator 'vector_ad'. Did you mean 'vector_add'?"),
        ((*EVAL, "vector_add", "--executor", "gpu"), "no executor 'gpu'. Did you mean 'cpu'? Known: auto, cpu, cuda"),
        ((*EVAL, "vector_add", "--executor", "cpu", "--cases", "tiny"), "no case of vector_add 'tiny'"),
        ((*EVAL, "vector_add", "--ops-dir", "nothing"), "nothing is no folder"),
        (("eval", "none.cu", "--precision", "fp32", "--op", "vector_add"), "none.cu can't be read: No such file"),
        (("bench", "softmax/fp64"), "softmax has the precisions fp32, bf16, not 'fp64'"),
        (("bench", "softmax", "--versions", "fast"), "choose from naive, library, best and all"),
        (("show", "nothing"), "If it is one of your own, give the folder that holds it with --ops-dir."),
        (("show", "softmax", "--db", "none.sqlite"), "There is no database none.sqlite"),
        (("new-op", "1st"), "'1st' is no C identifier"),
        (("optimize",), "Name an operator or a task"),
        (
            ("optimize", "softmax/fp32", "--executor", "cpu", "--strategy", "luck"),
            "no strategy 'luck'. Known: cudamaster.",
        ),
        (
            ("optimize", "softmax/fp32", "--executor", "cpu", "--provider", "oracle"),
            "no provider 'oracle'. Known: auto, manual, openai, replay.",
        ),
        (("optimize", "--resume", "0123", "--executor", "cpu"), "no run '0123'"),
        (("build-site", "--db", "none.sqlite"), "There is no database none.sqlite"),
        (("serve", "--site", "none"), "There is no site in none"),
        (("db", "merge", "none.sqlite"), "There is no database none.sqlite"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_with_what_to_do(
    here: Path,
    arguments: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (here / "kernel.cu").write_text(GOOD, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["msbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert "error" not in shown.out
    assert re.fullmatch(r"error: .+\n", shown.err), shown.err
    assert says in shown.err


@pytest.mark.parametrize(
    ("during", "typed", "goes_on_with"),
    [
        ("msbench.operators.load_all", "ops", None),
        ("msbench.store.integrity.check", "build-site --out public", None),
        ("msbench.harness.evaluate.evaluate", "eval kernel.cu --op vector_add --precision fp32 --executor cpu", None),
        ("msbench.harness.batch.evaluate_all", "bench relu --executor cpu", "bench relu --executor cpu --resume"),
        ("msbench.harness.batch.evaluate_all", "bench relu --resume --executor cpu --db 'my db.sqlite'",
         "bench relu --executor cpu --db 'my db.sqlite' --resume"),
        ("msbench.audit.run.audit", "audit . --executor cpu", "audit . --executor cpu --resume"),
    ],
)  # fmt: skip
def test_an_interruption_says_how_to_go_on_if_that_can_be(
    here: Path,
    during: str,
    typed: str,
    goes_on_with: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    (here / "kernel.cu").write_text(GOOD, encoding="utf-8")
    monkeypatch.setattr(during, interrupted)
    monkeypatch.setattr(sys, "argv", ["msbench", *shlex.split(typed)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    then = f"; what was finished is stored. Go on with: msbench {goes_on_with}" if goes_on_with else ""
    assert capsys.readouterr().err == f"\ninterrupted{then}\n"


def test_an_interrupted_search_names_its_run(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("msbench.optimize.engine.evaluate", interrupted)
    typed = ["optimize", "vector_add/fp32", "--provider", "manual", "--db", "x.sqlite", *QUICKLY]
    monkeypatch.setattr(sys, "argv", ["msbench", *typed])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    with Store(here / "x.sqlite", read_only=True) as store:
        (stopped,) = store.runs()
    says = f"Go on with: msbench optimize --resume {stopped.id} --db x.sqlite\n"
    assert capsys.readouterr().err.endswith(says)


def test_a_password_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://me:secret@host/db"
    for words in (["--db", url], [f"--db={url}"]):
        monkeypatch.setattr(sys, "argv", ["msbench", "bench", *words])
        _interruption.goes_on_with_resume(url)
        assert _interruption.current.go_on.startswith("msbench bench ")
        assert "host" in _interruption.current.go_on and "secret" not in _interruption.current.go_on


def test_a_mistake_in_a_real_process_has_no_traceback(here: Path) -> None:
    assert "no operator 'nothing'" in refused(run(here, "show", "nothing"))


# ------------------------------------------------------------------ databases


@pytest.fixture
def other(here: Path) -> Path:
    """What another machine measured."""
    path = here / "other.sqlite"
    with Store(path) as store:
        factories.story(store)
    return path


def test_merging_twice_is_merging_once(here: Path, other: Path) -> None:
    first = run(here, "db", "merge", other, "--db", "mine.sqlite")
    assert first.returncode == 0, first
    assert re.search(r"other\.sqlite → mine\.sqlite: .*\d+ evaluation", first.stdout)
    before = (here / "mine.sqlite").stat().st_size
    second = run(here, "db", "merge", other, "--db", "mine.sqlite")
    assert second.returncode == 0
    assert second.stdout.endswith("mine.sqlite: nothing new\n")
    assert (here / "mine.sqlite").stat().st_size == before
    checked = run(here, "db", "check", "--db", "mine.sqlite")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "mine.sqlite: every hash and reference is right" in checked.stdout


def test_a_changed_row_is_found(here: Path, other: Path) -> None:
    import sqlite3

    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE version SET source = source || ' ' WHERE rowid = 1")
    connection.close()
    checked = run(here, "db", "check", "--db", other)
    assert checked.returncode == 1
    assert re.search(r"✗ .*other\.sqlite: Version \w+ was changed", checked.stdout)
    assert re.fullmatch(r"\d+ problem\(s\): .+\n", checked.stderr)


def test_a_database_that_is_not_there_is_a_problem(here: Path) -> None:
    checked = run(here, "db", "check", "--db", "none.sqlite")
    assert checked.returncode == 1
    assert "There is no database none.sqlite" in checked.stdout
    assert checked.stderr == ""  # nothing to restore
    assert not (here / "none.sqlite").exists()


def test_a_file_that_is_no_database_is_no_damaged_one(here: Path) -> None:
    (here / "x.txt").write_text("hello", encoding="utf-8")
    checked = run(here, "db", "check", "--db", "x.txt")
    assert (checked.returncode, checked.stderr) == (1, "")
    assert "x.txt is not an SQLite database: check the path" in checked.stdout


def test_a_parent_may_be_in_another_database(here: Path) -> None:
    """What is read together is checked together: here a version in db/local.sqlite, its parent in db/other.sqlite."""
    op = factories.operator("scale")
    parent = factories.candidate(op, "naive", Origin.NAIVE)
    child = factories.candidate(op, "child", Origin.AGENT, parents=(parent.id,))
    (here / "db").mkdir()
    for name, candidate in (("other", parent), ("local", child)):
        with Store(here / "db" / f"{name}.sqlite") as store:
            store.add_version(op, candidate)
    together = run(here, "db", "check")
    assert together.returncode == 0, together
    alone = run(here, "db", "check", "--db", "db/local.sqlite")
    assert alone.returncode == 1
    assert f"names the parent {parent.id}, which is in none here" in alone.stdout


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_counts_are_whole_numbers_at_any_usual_width(here: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = run(here, "db", "counts").stdout.partition("Further apart")[0]
    assert "…" not in shown
    rows = [line.split() for line in shown.splitlines()[1:] if re.search(r"\d\.\d{3}", line)]
    assert len(rows) > 20
    for row in rows:
        assert all(re.fullmatch(r"[\d.]+(e[+-]\d\d)?|–", number) for number in row[-6:]) and len(row) >= 8, row


def test_a_comparison_without_differences_has_no_table(other: Path, here: Path) -> None:
    same = run(here, "db", "compare", other, "--db", other)
    assert (same.returncode, same.stderr) == (0, "")
    assert re.fullmatch(r"\d+ times compared, in the median 1\.000 .*\n?.*", same.stdout.strip()), same.stdout


def test_a_recorded_command_does_not_name_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    from msbench.cli._options import command_line

    for words in (["--db", "/home/me/x.sqlite"], ["--db=/home/me/x.sqlite"], []):
        monkeypatch.setattr("sys.argv", ["msbench", "eval", "my kernel.cu", *words, "--op", "softmax"])
        assert command_line() == "msbench eval 'my kernel.cu' --op softmax"


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
