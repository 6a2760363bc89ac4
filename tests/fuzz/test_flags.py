"""Whatever is typed after `msbench`: an answer in msbench's words and an exit code that says which."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from typer.main import get_command

from msbench.cli import _end, app
from msbench.executors.cpu import CpuExecutor
from msbench.model import Failure, Fault
from msbench.store.store import Store
from tests import factories, turns

GROUP: Any = get_command(app)
COMMANDS = {
    **{(name,): command for name, command in GROUP.commands.items() if name != "db"},
    **{("db", name): command for name, command in GROUP.commands["db"].commands.items()},
}
FORBIDDEN = {"--wait"}  # it does, for as long as nobody answers

WORDS = (
    "vector_add", "vector_add/fp32", "relu/bf16", "softmax/", "/fp32", "a/b/c", "x.sqlite", "none.sqlite", "text.sqlite", "a folder", "kernel.cu",
    "smallest", "N=1024", "N=", "=", "N=-1", "N=1e9", "N=99999999999999999999", "smallest+heldout", "+", "all", "naive", "naive,best", ",", "cpu", "recorded",
    "replay", "manual", "openai", "cudamaster", "0", "1", "-1", "3", "99999", "65536", "1e309", "nan", "inf", "-inf", "1.5", "1,2", "1,2,3", "nan,inf", "-1,-1",
    "9" * 400, "", " ", "-", "--", "---", "-h", "[bold]", "[/]", "[red", "{}", "%s", "~", "~nobody/x", "*", "?", "/dev/null", "/dev/full", "/proc/self/mem",
    "/nonexistent/x", "sqlite://", "sqlite:///", "sqlite:///x.sqlite", "postgresql://me:secret@localhost/x", "what://", "://", "file:x?mode=memory",
    "é", "🙂", "\udcff\udcfe", "a\nb", "\x1b[31m", "a" * 300, "a/" * 200, "GPU-", "0123", "fp32", "bf16", "FP32", "True", "NULL", "'; DROP TABLE run; --",
)  # fmt: skip
MORE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12).filter(
    lambda t: ".." not in t and not t.startswith("/")
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with some of its options, known ones and others, with any values."""
    words, command = draw(st.sampled_from(sorted(COMMANDS.items(), key=lambda item: item[0])))
    value = st.sampled_from(WORDS) | MORE
    line = list(words)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            line += draw(st.lists(value, max_size=2)) if parameter.nargs == -1 else [draw(value)]
    if words[0] in ("bench", "mutants") and len(line) == 1:
        line.append("vector_add")  # all of them would take its time
    options = [p for p in command.params if p.param_type_name == "option" and not FORBIDDEN & set(p.opts)]
    for parameter in draw(st.lists(st.sampled_from(options), max_size=4)) if options else []:
        name = draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts]))
        line += [name] if parameter.is_flag else [name, draw(value)]
    line += draw(st.lists(value, max_size=1))
    if words == ("optimize",):
        line.append("--no-wait")
    return line


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bit of everything; nothing is compiled there."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "a folder").mkdir()
    (folder / "kernel.cu").write_text("// nothing\n")
    (folder / "text.sqlite").write_text("no database\n" * 100)
    with Store(folder / "x.sqlite") as store:
        factories.story(store, [factories.operator("scale")], [factories.FP32])
    return folder


def run(here: Path, line: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command line."""

    def build(self: CpuExecutor, op: Any, candidate: Any) -> Any:
        return self._failed(candidate, Failure(Fault.UNSUPPORTED, "Nothing is compiled here."))

    with monkeypatch.context() as patch:
        patch.chdir(here)
        patch.setattr(CpuExecutor, "build", build)
        patch.setattr("msbench.resources.published_db", lambda: None)
        patch.setattr("http.server.ThreadingHTTPServer.serve_forever", lambda self: self.server_close())
        patch.delenv("OPENAI_API_KEY", raising=False)
        patch.delenv("OPENAI_BASE_URL", raising=False)
        patch.setattr(sys, "argv", ["msbench", *line])
        return _end.ended(app)


@settings(
    max_examples=turns.examples(settings().max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(line=lines())
@example(line=["serve", "--port", "65536", "--site", "a folder"])
@example(line=["serve", "--port", "-1"])
@example(line=["show", "\udcff"])
@example(line=["audit", "", "--report", ""])
@example(line=["bench", "vector_add", "--budget", "nan"])
@example(line=["optimize", "vector_add/fp32", "--provider", "manual", "--no-wait", "--max-usd", "nan"])
@example(line=["eval", "kernel.cu", "--op", "vector_add", "--precision", "fp32", "--executor", "cpu", "--seed", "-1"])
@example(line=["eval", "/dev/zero", "--op", "vector_add", "--precision", "fp32", "--executor", "cpu"])
def test_every_command_line_has_an_answer(
    here: Path, line: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assume(all(os.sep + "." not in word for word in line))
    code = run(here, line, monkeypatch)
    shown = capsys.readouterr()
    assert code in (0, 1, 2, 3), (line, shown.err)
    assert "Traceback" not in shown.out + shown.err, line
    given_as = [before for before, word in pairwise(line) if "secret" in word]
    if "Usage:" not in shown.err and set(given_as) <= {"--db", "merge"}:  # elsewhere it is no database's
        assert "secret" not in shown.out + shown.err, line
    assert code == 0 or shown.err or shown.out, line
