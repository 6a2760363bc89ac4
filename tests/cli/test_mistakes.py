"""A mistake is one line with what to do, and an interruption says how to go on."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from msbench.cli import _interruption, main
from msbench.store.store import Store
from tests.cli.running import GOOD, QUICKLY, refused, run

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
            "no strategy 'luck'. Known: astra, best_of_n, cudamaster.",
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
        ("msbench.archive.integrity.check", "build-site --out public", None),
        ("msbench.harness.evaluate.evaluate", "eval kernel.cu --op vector_add --precision fp32 --executor cpu", None),
        ("msbench.harness.batch.coordinator.evaluate_all", "bench relu --executor cpu", "bench relu --executor cpu --resume"),
        ("msbench.harness.batch.coordinator.evaluate_all", "bench relu --resume --executor cpu --db 'my db.sqlite'",
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
    then = f"; what was finished is stored. Continue with: msbench {goes_on_with}" if goes_on_with else ""
    assert capsys.readouterr().err == f"\ninterrupted{then}\n"


def test_an_interrupted_search_names_its_run(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("msbench.optimize.together.evaluate_all", interrupted)
    typed = ["optimize", "vector_add/fp32", "--provider", "manual", "--no-wait", "--db", "x.sqlite", *QUICKLY]
    monkeypatch.setattr(sys, "argv", ["msbench", *typed])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    with Store(here / "x.sqlite", read_only=True) as store:
        (stopped,) = store.runs()
    says = f"Continue with: msbench optimize --resume {stopped.id} --no-wait --db x.sqlite\n"
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


def test_a_recorded_command_does_not_name_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    from msbench.cli._options import command_line

    for words in (["--db", "/home/me/x.sqlite"], ["--db=/home/me/x.sqlite"], []):
        monkeypatch.setattr("sys.argv", ["msbench", "eval", "my kernel.cu", *words, "--op", "softmax"])
        assert command_line() == "msbench eval 'my kernel.cu' --op softmax"
