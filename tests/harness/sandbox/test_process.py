"""A worker process may do anything; the caller gets an answer or one error, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from msbench.errors import WorkerCrashed, WorkerError, WorkerTimeout
from msbench.harness.sandbox.process import WorkerProcess

ROOT = str(Path(__file__).parents[2])

WORKER = """
import sys; sys.path.insert(0, ROOT)
import ctypes, os, resource, signal, subprocess, sys, time
from msbench.harness.sandbox import wire

class Refused(Exception):
    kind, log = "launch", "what the tool said"

def refuse():
    raise Refused("cudaErrorInvalidValue")

def fail():
    raise KeyError("missing")

def chatter(count):
    print("garbage\\n" * count, flush=True)
    print("more garbage", file=sys.stderr, flush=True)

def crash():
    sys.stderr.write("double free or corruption\\n"); sys.stderr.flush()
    ctypes.string_at(0)

def child():
    return {"pid": subprocess.Popen(["sleep", "300"], close_fds=False).pid}

def open_files():
    return {"names": [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]}

def spoil_the_pipe():
    for fd in range(3, 64):
        try: os.write(fd, b"{}\\n[]\\nnonsense\\n")
        except OSError: pass

def forge():
    import threading
    line = b'{"id": 2, "result": {"ms": [0.001]}}\\n'
    fds = [n for n in range(3, 64) if os.path.exists(f"/proc/self/fd/{n}")]
    def write():
        for fd in fds:
            try: os.write(fd, line)
            except OSError: pass
    threading.Timer(0.1, write).start()

wire.serve({
    "echo": lambda **payload: payload,
    "nothing": lambda: None,
    "refuse": refuse, "fail": fail, "chatter": chatter, "crash": crash, "child": child, "open_files": open_files,
    "spoil": spoil_the_pipe, "forge": forge,
    "exit": lambda code: os._exit(code),
    "sleep": lambda seconds: time.sleep(seconds),
    "ignore_signals": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN) and None,
    "sleep_forever": lambda: time.sleep(300),
    "unanswerable": lambda: {"x": object()},
    "allocate": lambda size: {"size": len(bytearray(size))},
    "spin": lambda: [None for _ in iter(int, 1)],
    "fill_disk": lambda path: open(path, "wb").write(bytes(300 * 2**20)),
    "stdin": lambda: {"read": sys.stdin.read()},
})
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "worker.py"
    path.write_text(WORKER.replace("ROOT", repr(ROOT)))
    return path


@pytest.fixture
def worker(script: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess([sys.executable, str(script)]) as process:
        yield process


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def descriptors(pid: int) -> list[str]:
    """What a process has open; files that it closes meanwhile are left out."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return found


def gone(pid: int, within_s: float = 2.0) -> bool:
    """Whether a process has ended (a zombie that another process must reap counts as ended)."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_it_answers(worker: WorkerProcess) -> None:
    assert worker.call("echo", 10, text="µ\n\0", numbers=[1, 2.5, None]) == {"text": "µ\n\0", "numbers": [1, 2.5, None]}
    assert worker.call("nothing", 10) == {}
    assert worker.call("stdin", 10) == {"read": ""}


def test_payloads_larger_than_a_pipe(worker: WorkerProcess) -> None:
    text = "x" * 20_000_000
    assert worker.call("echo", 60, text=text)["text"] == text


def test_error_answers_leave_it_alive(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerError, match="cudaErrorInvalidValue") as refused:
        worker.call("refuse", 10)
    assert (refused.value.kind, refused.value.log) == ("launch", "what the tool said")
    assert not isinstance(refused.value, WorkerCrashed)
    with pytest.raises(WorkerError, match="missing") as failed:
        worker.call("fail", 10)
    assert failed.value.kind == "KeyError"
    assert "Traceback" in failed.value.log
    with pytest.raises(WorkerError, match="no command 'dance'"):
        worker.call("dance", 10)
    assert worker.alive
    assert worker.call("echo", 10, a=1) == {"a": 1}


def test_printing_does_not_disturb_the_protocol(worker: WorkerProcess) -> None:
    worker.call("chatter", 30, count=200_000)
    assert worker.call("echo", 10, a=1) == {"a": 1}
    assert worker.tail().endswith("more garbage")
    assert len(worker.tail()) < 10_000


def test_a_crash_names_the_signal_and_keeps_the_last_words(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerCrashed, match=r"died of SIGSEGV during 'crash'\. It last said: double free") as crashed:
        worker.call("crash", 10)
    assert crashed.value.kind == "crash"
    assert not worker.alive
    with pytest.raises(WorkerCrashed, match="it died of SIGSEGV during 'crash'"):
        worker.call("echo", 10)


def test_an_exit_names_the_code(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerCrashed, match="ended with exit code 3 during 'exit'"):
        worker.call("exit", 10, code=3)


def test_a_hang_is_killed_on_time_with_all_it_started(worker: WorkerProcess) -> None:
    child = worker.call("child", 10)["pid"]
    start = time.monotonic()
    with pytest.raises(WorkerTimeout, match=r"did not finish 'sleep_forever' within 0\.3 s and was killed") as hung:
        worker.call("sleep_forever", 0.3)
    assert time.monotonic() - start < 2
    assert hung.value.kind == "timeout"
    assert gone(worker.pid)
    assert gone(child)
    assert not Path(f"/proc/{worker.pid}").exists()  # reaped: no zombie


def test_a_worker_that_never_reads_does_not_block_a_large_request(tmp_path: Path) -> None:
    with WorkerProcess(["sleep", "300"]) as deaf:
        start = time.monotonic()
        with pytest.raises(WorkerTimeout):
            deaf.call("echo", 0.3, text="x" * 5_000_000)
        assert time.monotonic() - start < 2


def test_what_a_crashed_worker_started_is_killed(worker: WorkerProcess) -> None:
    child = worker.call("child", 10)["pid"]
    with pytest.raises(WorkerCrashed):
        worker.call("crash", 10)
    assert gone(child)


def test_an_answer_that_comes_before_the_question_is_forged(worker: WorkerProcess) -> None:
    worker.call("forge", 10)
    time.sleep(0.5)
    with pytest.raises(WorkerCrashed, match="answered before it was asked") as forged:
        worker.call("echo", 10, ms=[4.0])
    assert forged.value.kind == "forbidden"
    assert not worker.alive


def test_garbage_in_the_pipe_is_a_crash(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerCrashed, match="garbage"):
        worker.call("spoil", 10)
    assert gone(worker.pid)


def test_close_ends_it_within_two_seconds(script: Path) -> None:
    worker = WorkerProcess([sys.executable, str(script)])
    worker.call("ignore_signals", 10)
    child = worker.call("child", 10)["pid"]
    start = time.monotonic()
    worker.close()
    worker.close()
    assert time.monotonic() - start < 2
    assert gone(worker.pid)
    assert gone(child)
    with pytest.raises(WorkerCrashed, match="it was closed"):
        worker.call("echo", 1)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, also where a shell started pytest in the background and told it to ignore that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_busy_worker_is_closed_too(script: Path) -> None:
    """As after Ctrl-C in the middle of a call."""
    worker = WorkerProcess([sys.executable, str(script)])
    worker.call("nothing", 10)
    interrupted = threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    interrupted.start()
    with pytest.raises(KeyboardInterrupt):
        worker.call("sleep_forever", 30)
    start = time.monotonic()
    worker.close()
    assert time.monotonic() - start < 2
    assert gone(worker.pid)


def test_it_survives_the_thread_that_started_it(script: Path) -> None:
    started: list[WorkerProcess] = []

    def start() -> None:
        started.append(WorkerProcess([sys.executable, str(script)]))
        started[0].call("nothing", 10)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with started[0] as worker:
        assert worker.call("echo", 10, a=1) == {"a": 1}
        time.sleep(0.2)
        assert worker.call("echo", 10, a=2) == {"a": 2}


def test_it_dies_with_its_parent(script: Path) -> None:
    parent = f"""
import sys; sys.path.insert(0, {ROOT!r})
from msbench.harness.sandbox.process import WorkerProcess
worker = WorkerProcess([sys.executable, {str(script)!r}])
worker.call("nothing", 30)
print(worker.pid, flush=True)
worker.call("sleep_forever", 300)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    assert gone(pid)


def test_workers_do_not_hold_each_others_pipes(script: Path) -> None:
    """Else a worker would not see that its parent has closed its end, nor the parent that a worker is gone."""
    with WorkerProcess([sys.executable, str(script)]) as first, WorkerProcess([sys.executable, str(script)]) as second:
        mine, theirs = (set(w.call("open_files", 10)["names"]) for w in (first, second))
        assert not {n for n in mine & theirs if n.startswith("pipe:")}
        child = first.call("child", 10)["pid"]
        assert not [name for name in descriptors(child) if name.startswith("pipe:")]


def test_limits(script: Path, tmp_path: Path) -> None:
    with WorkerProcess([sys.executable, str(script)], memory_bytes=2**30) as worker:
        assert worker.call("allocate", 10, size=2**20) == {"size": 2**20}
        with pytest.raises(WorkerError) as full:
            worker.call("fill_disk", 10, path=str(tmp_path / "large"))
        assert full.value.kind == "OSError"
        with pytest.raises(WorkerCrashed, match=r"took .* GiB of the host's memory, more than 1 GiB") as refused:
            worker.call("allocate", 20, size=2**32)
        assert refused.value.kind == "out_of_memory"
    with (
        WorkerProcess([sys.executable, str(script)], cpu_seconds=1) as worker,
        pytest.raises(WorkerCrashed, match=r"SIGXCPU|SIGKILL"),
    ):
        worker.call("spin", 20)


def test_the_log_can_be_kept(script: Path, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with WorkerProcess([sys.executable, str(script)], log=log) as worker:
        worker.call("chatter", 10, count=1)
    assert "garbage" in log.read_text()


def test_an_answer_that_json_cannot_hold_ends_the_worker(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerCrashed, match="TypeError"):
        worker.call("unanswerable", 10)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["/does/not/exist"], "can't be started"),
        ([sys.executable, "-c", "import nonexistent_module"], "nonexistent_module"),
    ],
)
def test_a_worker_that_cannot_start(argv: list[str], says: str) -> None:
    before = open_descriptors()
    with pytest.raises(WorkerCrashed, match=says), WorkerProcess(argv) as worker:
        worker.call("echo", 10)
    assert open_descriptors() == before


def test_no_file_descriptors_are_lost(script: Path) -> None:
    def once(use: Callable[[WorkerProcess], object]) -> None:
        with WorkerProcess([sys.executable, str(script)]) as worker:
            use(worker)

    once(lambda w: w.call("nothing", 10))
    before = open_descriptors()
    once(lambda w: w.call("nothing", 10))
    for error, command, timeout_s in ((WorkerCrashed, "crash", 10), (WorkerTimeout, "sleep_forever", 0.1)):
        with pytest.raises(error):
            once(lambda w, command=command, timeout_s=timeout_s: w.call(command, timeout_s))  # type: ignore[misc]
    assert open_descriptors() == before
