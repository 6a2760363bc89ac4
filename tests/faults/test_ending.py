"""However a command ends, it says so in one sentence: no traceback, the right exit code, no process left, nothing lost."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from msbench.archive.union import check_files
from msbench.cli import _end, app
from msbench.cli._files import see_that_writable
from msbench.errors import DeviceError, MsbenchError
from msbench.executors.cpu import CpuExecutor
from msbench.store.store import Store
from tests import factories, turns
from tests.cli import running

CHECKOUT = Path(__file__).resolve().parents[2]
BENCH = ("bench", "vector_add/fp32", "--executor", "cpu", "--cases", "smallest", "--quick", "--versions", "naive")
HANGS = 'static_assert([] { for (unsigned long i = 0; i != 1ul << 62; ++i) {} return true; }(), "");\n'


def start(
    here: Path, *arguments: object, stdout: Any = subprocess.PIPE, **environment: str | None
) -> subprocess.Popen[str]:
    """The command in a process of its own; a variable that is None is not set."""
    given = {**os.environ, "PYTHONPATH": str(CHECKOUT), **environment}
    return subprocess.Popen(
        [sys.executable, "-m", "msbench", *map(str, arguments)],
        cwd=here, env={k: v for k, v in given.items() if v is not None}, stdin=subprocess.DEVNULL,
        stdout=stdout, stderr=subprocess.PIPE, text=True, preexec_fn=_hears_everything,
    )  # fmt: skip


def _hears_everything() -> None:
    """Under `nohup` a test ignores SIGHUP, and all that it starts would, too."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def run(
    here: Path, *arguments: object, stdout: Any = subprocess.PIPE, **environment: str | None
) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    if stdout == subprocess.PIPE and not environment:
        done = running.run(here, *arguments)
        code, said, complained = done.returncode, done.stdout, done.stderr
    else:
        process = start(here, *arguments, stdout=stdout, **environment)
        said, complained = process.communicate(timeout=120)
        code = process.returncode
    assert "Traceback" not in complained and "Exception ignored" not in complained, complained
    return code, said or "", complained


def one_error(code: int, complained: str) -> str:
    """The one sentence."""
    assert code == 2, complained
    assert re.fullmatch(r"error: .+\n", complained), complained
    return complained


@pytest.fixture(scope="module")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the next one copies."""
    path = tmp_path_factory.mktemp("told") / "local.sqlite"
    with Store(path) as store:
        factories.story(store, [factories.operator("scale")])
    return path


@pytest.fixture
def told(_template: Path, tmp_path: Path) -> Path:
    """A folder with a database in the default place."""
    (tmp_path / "db").mkdir()
    shutil.copy(_template, tmp_path / "db")
    return tmp_path


# ------------------------------------------------------------------ output


@pytest.mark.parametrize("arguments", [("ops",), ("show", "softmax"), ("--help",), ("ops", "--help")], ids=" ".join)
def test_a_reader_that_has_gone_ends_the_command_quietly(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, _, complained = run(tmp_path, *arguments, stdout=writer)
    os.close(writer)
    assert (code, complained) == (0, "")


def test_work_goes_on_when_the_reader_has_gone(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, _, complained = run(tmp_path, *BENCH, stdout=writer)
    os.close(writer)
    assert (code, complained) == (0, "")
    with Store(tmp_path / "db" / "local.sqlite") as store:
        assert len(store.versions()) == 1


def test_output_to_a_full_disk_is_said(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        code, _, complained = run(tmp_path, "ops", stdout=full)
    assert "the disk is full" in one_error(code, complained)


def test_without_any_output_it_still_works(tmp_path: Path) -> None:
    script = f'exec "{sys.executable}" -m msbench new-op mine >&- 2>&-'
    done = subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
    assert done.returncode == 0
    assert (tmp_path / "ops" / "mine" / "spec.py").is_file()


def test_what_a_terminal_cant_show_is_shown_as_an_escape(tmp_path: Path) -> None:
    code, said, _ = run(tmp_path, "doctor", PYTHONIOENCODING="ascii")
    assert code == 0 and "\\u2713 g++" in said
    code, _, complained = run(tmp_path, "show", os.fsdecode(b"\xff"))
    assert r"There is no operator '\udcff'" in one_error(code, complained)


# ------------------------------------------------------------------ signals


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """An evaluation whose compiler never ends; gives it out when the compiler runs."""
    naive = (CHECKOUT / "kernels" / "vector_add" / "naive.cu").read_text(encoding="utf-8")
    (tmp_path / "kernel.cu").write_text(HANGS + naive, encoding="utf-8")
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        arguments = ("eval", "kernel.cu", "--op", "vector_add", "--precision", "fp32", "--executor", "cpu")
        process = start(tmp_path, *arguments, "--cases", "smallest", MARK=str(tmp_path))
        started.append(process)
        deadline = time.monotonic() + 60
        while not any("cc1plus" in line for line in descendants(tmp_path)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def descendants(mark: Path) -> list[str]:
    """The commands that run with this folder in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"MARK=" + os.fsencode(mark) + b"\0" in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_everything_that_it_started(
    tmp_path: Path, hanging: Callable[[], subprocess.Popen[str]], how: signal.Signals
) -> None:
    process = hanging()
    process.send_signal(how)
    _, complained = process.communicate(timeout=30)
    assert process.returncode == 128 + how
    assert complained == ("\ninterrupted\n" if how is signal.SIGINT else f"\nended by {how.name}\n")
    assert descendants(tmp_path) == []
    assert check_files([tmp_path / "db" / "local.sqlite"]) == []
    assert {p.name for p in tmp_path.iterdir()} == {"db", "kernel.cu"}


def test_ctrl_c_is_the_quiet_end_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("here", encoding="utf-8")
    process = start(tmp_path, "serve", "--site", "site", "--port", "0", PYTHONUNBUFFERED="1")
    assert process.stdout is not None and "Ctrl-C to stop" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, complained = process.communicate(timeout=30)
    assert (process.returncode, complained) == (0, "")


_IGNORED = re.compile(r"Exception ignored in: <function _get_module_lock.*?KeyboardInterrupt: ?\n", re.DOTALL)
"""What Python itself says of an interruption in a callback of its import lock, which it swallows."""


def test_an_interruption_at_any_instant_has_no_traceback(told: Path) -> None:
    """Every 60 ms of a command, from the interpreter's start on; before msbench's first line nothing can be promised."""
    ended = set()
    for after in (0.12, 0.18, 0.24, 0.3, 0.36, 0.42, 0.48, 0.54, 0.6, 0.66, 0.72, 0.78):
        process = start(told, "build-site", "--db", "db/local.sqlite", "--out", "site")
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=30)
        complained = _IGNORED.sub("", complained)
        if "Fatal Python error: init" in complained:
            continue  # the interpreter was not up yet
        ours = 'File "' not in complained or "site-packages" in complained or "importlib" in complained
        assert process.returncode in (0, 130, -signal.SIGINT), complained
        assert "Traceback" not in complained or not ours or "<frozen site>" in complained, complained
        assert {p.name for p in told.iterdir()} <= {"db", "site"}
        ended.add(process.returncode)
    assert 130 in ended


def test_what_ignores_a_signal_goes_on_ignoring_it(told: Path) -> None:
    script = f"trap '' HUP; exec \"{sys.executable}\" -m msbench build-site --db db/local.sqlite --out site"
    process = subprocess.Popen(
        ["/bin/sh", "-c", script], cwd=told, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, stdout=subprocess.DEVNULL
    )
    for _ in range(10):
        time.sleep(0.05)
        process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0
    assert (told / "site" / "index.html").is_file()


# ------------------------------------------------------------------ disks


def tmpfs(folder: Path, size: str, argv: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command for which ``folder`` is a small disk of its own; its files are copied back."""
    kept = folder.with_name(f"{folder.name}-kept")
    kept.mkdir()
    mount = f'mount -t tmpfs -o size={size} none "{folder}"'
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "sh", "-c", mount]).returncode != 0:
        pytest.skip("only root may mount a small disk")
    script = f'cp -a "{folder}/." "{kept}/"; {mount} && cp -a "{kept}/." "{folder}/" && "$@"; code=$?; cp -a "{folder}/." "{kept}/"; exit $code'
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *argv], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
    )  # fmt: skip


def msbench(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "msbench", *map(str, arguments)]


def test_a_full_disk_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    small, other = tmp_path / "small", tmp_path / "other.sqlite"
    small.mkdir()
    with Store(small / "x.sqlite") as store:
        factories.story(store, [factories.operator("scale")])
    with Store(other) as store:
        factories.story(store, [factories.operator(name) for name in ("shift", "twist", "turn")])
    done = tmpfs(small, "1m", msbench("db", "merge", other, "--db", small / "x.sqlite"))
    assert "the disk is full" in one_error(done.returncode, done.stderr)
    left = tmp_path / "small-kept" / "x.sqlite"
    assert check_files([left]) == []
    with Store(left) as store:  # all of the merge or nothing: it may be that only the tidying up had no room
        assert {task.operator for task in store.tasks()} in ({"scale"}, {"scale", "shift", "twist", "turn"})
        assert len(store.versions()) in (12, 48)


def test_a_full_disk_leaves_the_old_site(told: Path) -> None:
    public = told / "public"
    public.mkdir()
    (public / "site").mkdir()
    done = tmpfs(public, "1m", msbench("build-site", "--db", told / "db" / "local.sqlite", "--out", public / "site"))
    assert "No space left on device" in one_error(done.returncode, done.stderr)
    assert [p.name for p in (told / "public-kept").iterdir()] == ["site"]
    assert list((told / "public-kept" / "site").iterdir()) == []


def test_a_full_build_cache_is_no_verdict_on_a_kernel(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    done = tmpfs(cache, "3m", msbench(*BENCH, "--db", tmp_path / "x.sqlite"), MSBENCH_CACHE=str(cache))
    assert re.search("disk is full|No space left", one_error(done.returncode, done.stderr))
    with Store(tmp_path / "x.sqlite") as store:
        assert store.versions() == []


def test_a_limit_on_file_sizes_is_said(told: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))

    done = subprocess.run(
        msbench("build-site", "--db", "db/local.sqlite", "--out", "site"), cwd=told, env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True, text=True, preexec_fn=limit,
    )  # fmt: skip
    assert "File too large" in one_error(done.returncode, done.stderr)
    assert [p.name for p in told.iterdir()] == ["db"]


# ------------------------------------------------------------------ places


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A path that nobody, not even root, can make a folder of."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "below"


def test_a_cache_that_cant_be_written_is_said(tmp_path: Path, nowhere: Path) -> None:
    code, _, complained = run(tmp_path, *BENCH, MSBENCH_CACHE=str(nowhere))
    assert "Set MSBENCH_CACHE" in one_error(code, complained)


def test_without_a_home_it_works_or_names_the_variable(tmp_path: Path) -> None:
    code, said, complained = run(tmp_path, "ops", HOME=None, MSBENCH_CACHE=None, XDG_CACHE_HOME=None)
    assert (code, complained) == (0, "") and "softmax" in said
    code, _, complained = run(tmp_path, *BENCH, HOME="/proc/no/home", MSBENCH_CACHE=None, XDG_CACHE_HOME=None)
    assert "Set MSBENCH_CACHE" in one_error(code, complained)


def test_a_temporary_folder_that_is_not_there_is_no_matter(tmp_path: Path, nowhere: Path) -> None:
    code, said, _ = run(tmp_path, *BENCH, TMPDIR=str(nowhere))
    assert code == 0 and "passed" in said


@pytest.mark.parametrize(
    "arguments",
    [("bench", *BENCH[1:]), ("optimize", "softmax/bf16", "--executor", "cpu"), ("db", "merge", "db/local.sqlite")],
    ids=lambda words: words[0],
)
def test_a_place_for_the_database_that_cant_be_made_is_said(
    tmp_path: Path, nowhere: Path, arguments: tuple[str, ...]
) -> None:
    code, _, complained = run(tmp_path, *arguments, "--db", nowhere / "x.sqlite")
    assert "can't be made" in one_error(code, complained)
    (tmp_path / "db").touch()
    code, _, complained = run(tmp_path, *arguments)
    says = one_error(code, complained)
    if arguments[0] != "db":  # which first looks for what it is to read
        assert f"The folder {tmp_path / 'db'} can't be made" in says and "name another database with --db" in says


@turns.costly
def test_files_that_cant_be_written_are_said(tmp_path: Path, nowhere: Path) -> None:
    (tmp_path / "relu.cu").write_text("// nothing", encoding="utf-8")
    for arguments in (
        ("new-op", "mine", "--ops-dir", nowhere),
        ("audit", tmp_path, "--executor", "cpu", "--report", nowhere / "x.md"),
        ("build-site", "--out", nowhere / "site"),
        ("optimize", "vector_add/fp32", "--provider", "manual", "--no-wait", "--prompts", nowhere, *BENCH[2:6]),
        ("mutants", "relu/fp32", "--executor", "cpu", "--cases", "smallest", "--markdown", nowhere / "x.md"),
    ):
        code, _, complained = run(tmp_path, *arguments)
        assert "[Errno" not in one_error(code, complained), arguments


@pytest.mark.parametrize("arguments", [("audit", "theirs", "--report"), ("mutants", "relu", "--markdown")])
def test_a_report_that_cant_be_written_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nowhere: Path, arguments: tuple[str, ...]
) -> None:
    def works(*arguments: object, **options: object) -> None:
        raise AssertionError

    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "relu.cu").write_text("// nothing", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("msbench.executors.pick", works)
    for report in (nowhere / "x.md", tmp_path):
        with pytest.raises(MsbenchError, match=f"^{report} can't be written: "):
            app([*arguments, str(report)], standalone_mode=False)


def test_a_report_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("old", encoding="utf-8")
    see_that_writable(tmp_path / "old.md", tmp_path / "folder" / "new.md")
    assert (tmp_path / "old.md").read_text(encoding="utf-8") == "old"
    assert list((tmp_path / "folder").iterdir()) == []


# ------------------------------------------------------------------ databases


def test_a_locked_database_is_waited_for_and_then_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "x.sqlite") as store:
        connect, timeouts = sqlite3.connect, []

        def impatient(*arguments: Any, **options: Any) -> sqlite3.Connection:
            timeouts.append(options.pop("timeout"))
            return connect(*arguments, **options, timeout=0.1)

        other = connect(tmp_path / "x.sqlite", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr("msbench.store.engine.sqlite3.connect", impatient)
        monkeypatch.setattr(sys, "argv", ["msbench", *BENCH, "--db", str(tmp_path / "x.sqlite")])
        assert _end.ended(app) == 2
        assert "is locked by another process, also after 30 s" in capsys.readouterr().err
        assert set(timeouts) == {30.0}
        other.execute("ROLLBACK")
        other.close()
        assert store.versions() == []


def test_a_clock_that_was_set_back_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) - timedelta(days=400)

    arguments = [*BENCH, "--db", str(tmp_path / "x.sqlite")]
    assert run(tmp_path, *arguments)[0] == 0
    before = (tmp_path / "x.sqlite").read_bytes()
    monkeypatch.setattr("msbench.store.store.datetime", Earlier)
    monkeypatch.setattr(sys, "argv", ["msbench", *arguments])
    assert _end.ended(app) == 2
    assert re.search("The clock says .*: correct the clock", capsys.readouterr().err)
    assert (tmp_path / "x.sqlite").read_bytes() == before


def test_a_gpu_that_falls_off_ends_a_bench_with_one_error_and_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, says in (
        (DeviceError("NVIDIA Test GPU does not work any more: cudaErrorUnknown. Start again; see nvidia-smi."), "does not work"),
        (type("CUDARuntimeError", (RuntimeError,), {"__module__": "cupy_backends.cuda.api.runtime"})("cudaErrorUnknown"), "no longer responds"),
    ):  # fmt: skip
        opened: list[str] = []
        open_ = CpuExecutor.open

        def falls_off(self: CpuExecutor, op: Any, build: Any, candidate: Any) -> Any:
            opened.append(candidate.precision)  # noqa: B023
            if candidate.precision == "bf16":
                raise error  # noqa: B023
            return open_(self, op, build, candidate)  # noqa: B023

        db = tmp_path / f"{len(says)}.sqlite"
        with monkeypatch.context() as patch:
            patch.setattr(CpuExecutor, "open", falls_off)
            patch.setattr(sys, "argv", ["msbench", "bench", "vector_add", *BENCH[2:], "--db", str(db)])
            assert _end.ended(app) == 2
        assert opened == ["fp32", "bf16"]
        complained = capsys.readouterr().err
        assert re.fullmatch(r"error: .+\n", complained) and says in complained
        with Store(db) as store:
            assert [v.task_id for v in store.versions()] == ["vector_add/fp32"]
        assert check_files([db]) == []


def test_a_damaged_database_makes_no_site_and_no_merge(told: Path) -> None:
    file = told / "db" / "local.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("UPDATE version SET source = 'other'")
    connection.commit()
    connection.close()
    for arguments in (("build-site", "--db", file, "--out", "site"), ("db", "merge", file, "--db", "new.sqlite")):
        code, _, complained = run(told, *arguments)
        assert "problem(s)" in one_error(code, complained)
    assert not (told / "site").exists()


@turns.costly
def test_a_database_on_a_read_only_medium_is_one_error(told: Path) -> None:
    with Store(told / "other.sqlite") as store:
        factories.story(store, [factories.operator("shift")])
    mount = f'mount --bind "{told}" "{told}" && mount -o remount,ro,bind "{told}"'
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "sh", "-c", mount]).returncode != 0:
        pytest.skip("only root may mount something read-only")
    site = ("build-site", "--db", "other.sqlite", "--out", "site")
    for arguments in (msbench(*BENCH), msbench("db", "merge", "other.sqlite"), msbench(*site)):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f'{mount} && cd "{told}" && exec "$@"', "sh", *arguments],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )  # fmt: skip
        assert one_error(done.returncode, done.stderr), arguments
