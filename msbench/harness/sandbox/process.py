"""The parent's side of a worker process: start it, call it, survive whatever it does.

A candidate's code runs in such a process, so it may crash, hang, print or fork; the caller gets an answer or a
``WorkerError``, and nothing is left behind. The child's side is ``wire.serve``.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from msbench.errors import WorkerCrashed, WorkerError, WorkerTimeout
from msbench.harness.sandbox import wire
from msbench.harness.sandbox.confine import Rules
from msbench.harness.sandbox.guard import Guard
from msbench.harness.spans import span

Watch = Callable[[int], str | None]
"""Given a worker's process id, why it has to be killed, as in ``"took 9 GiB of …,"``; None where it has not."""

TAIL_BYTES = 8_000
"""How much of the end of a worker's output is kept for the message."""

_LOOK_S = 0.1  # how often a worker that is at work is looked at
_FAREWELL_S = 1.0  # to leave by itself once its pipe is closed
_DEATH_S = 0.8  # to be gone after SIGKILL; only a process stuck in a driver takes longer


class _Killed(Exception):
    """A worker has to be killed; the message says what it did, ``kind`` is a ``model.Fault``'s value."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class WorkerProcess:
    """One worker in its own session and process group, killed with everything it started.

    ``argv`` runs a script that ends in ``wire.serve``. ``env`` replaces the environment, as in ``subprocess``. What the
    worker prints goes to ``log`` (None: a temporary file). ``rules`` are what ``wire.confine`` holds it to. ``watch`` is asked several times a second, while the worker is at work, why it
    has to be killed (None: it has not); ``memory_bytes`` is such a reason, the memory of its own that it may fill. (A
    limit on address space would not do: CUDA and AddressSanitizer reserve terabytes.) Not for use by two threads at once.

    Raises:
        WorkerCrashed: ``argv`` can't be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        memory_bytes: int | None = None,
        cpu_seconds: int | None = None,
        rules: Rules | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile() if log is None else log.open("w+b")  # noqa: SIM115
        self._ended = ""
        self._stopped = False
        self._pending = b""
        self._memory_bytes = memory_bytes
        self._rules = rules
        self.watch = watch
        self._guard: Guard | None = None
        self._channel, child_channel = socket.socketpair()
        child_requests, self._requests = os.pipe()
        self._replies, child_replies = os.pipe()
        settings = {
            "requests": child_requests,
            "replies": child_replies,
            "channel": child_channel.fileno(),
            "parent": os.getpid(),
            "rules": rules,
            "cpu_seconds": cpu_seconds,
        }
        environment = {**(os.environ if env is None else env), wire.SETTINGS: json.dumps(settings)}
        try:
            start = starter(os.getpid()).submit(
                subprocess.Popen,
                list(argv),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                pass_fds=(child_requests, child_replies, child_channel.fileno()),
            )
            with span("worker: start"):
                self._process: subprocess.Popen[bytes] = start.result()
        except OSError as error:
            os.close(self._requests)
            os.close(self._replies)
            self._channel.close()
            self._log.close()
            raise WorkerCrashed(f"The worker {argv[0]} can't be started: {error}.") from error
        finally:
            os.close(child_requests)
            os.close(child_replies)
            child_channel.close()
        os.set_blocking(self._requests, False)
        os.set_blocking(self._replies, False)

    @property
    def pid(self) -> int:
        """The worker's process id, which is also its process group's."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be called."""
        return not self._ended

    def call(self, command: str, timeout_s: float, file: int | None = None, **payload: Any) -> dict[str, Any]:
        """Ask the worker and wait for its answer. ``file``: a descriptor that goes with it, for ``wire.take_file``.

        Raises:
            WorkerTimeout: no answer within ``timeout_s``; the worker and what it started are killed.
            WorkerCrashed: it ended, or broke the protocol; the signal is named, ``log`` is the end of its output. Or it
                was killed for what it did (kind ``forbidden``) or took (``out_of_memory``).
            WorkerError: it answered with an error (``kind``, ``log``) and lives on.
        """
        if self._ended:
            raise WorkerCrashed(f"The worker can't run {command!r}: {self._ended}", log=self.tail())
        if self._pending or self._has_spoken():
            self._end("it spoke before it was asked and was killed.", kill=True)
            raise WorkerCrashed(
                f"Something in the worker answered before it was asked for {command!r}: a forged message.",
                "forbidden",
                self.tail(),
            )
        if self._stopped:
            os.killpg(self.pid, signal.SIGCONT)
            self._stopped = False
        number = secrets.token_hex(8)  # not to be guessed: what answers has read the question
        message = {"id": number, "command": command, "payload": payload}
        deadline = time.monotonic() + timeout_s
        try:
            with span(f"worker: {command}"):
                if file is not None:
                    socket.send_fds(self._channel, [b"f"], [file])
                line = self._exchange(json.dumps(message).encode() + b"\n", deadline)
        except _Killed as killed:
            self._end(f"it {killed} and was killed.", kill=True)
            raise WorkerCrashed(f"The kernel's code {killed} and was killed.", killed.kind, self.tail()) from None
        except TimeoutError:
            self._end(f"it did not finish {command!r} within {timeout_s:g} s and was killed.", kill=True)
            raise WorkerTimeout(
                f"The worker did not finish {command!r} within {timeout_s:g} s and was killed.", "timeout", self.tail()
            ) from None
        except (EOFError, BrokenPipeError):
            raise self._crashed(command) from None
        try:
            answer = json.loads(line)
            fresh = answer["id"] == number
        except (ValueError, KeyError, TypeError):
            fresh = False
        if not fresh:
            self._end("it broke the protocol and was killed.", kill=True)
            raise WorkerCrashed(f"The worker answered {command!r} with garbage and was killed.", "crash", self.tail())
        if "error" in answer:
            error = answer["error"]
            raise WorkerError(error["message"], error["kind"], error.get("log") or self.tail())
        return dict(answer["result"])

    def stop(self) -> None:
        """Have all its threads stand still until the next call."""
        if self.alive:
            os.killpg(self.pid, signal.SIGSTOP)
            self._stopped = True

    def kill(self) -> None:
        """End it whatever it is at, from another thread than the one that calls it; that one is told that it crashed, and closes it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def tail(self) -> str:
        """The end of what the worker printed."""
        if self._log.closed:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        raw = os.pread(self._log.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES))
        return raw.decode(errors="replace").replace("\0", "").strip()

    def close(self) -> None:
        """End the worker, by asking and then by force, within two seconds; harmless when repeated."""
        if not self._log.closed:
            if not self._ended:
                with span("worker: end"):
                    self._end("it was closed.")
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _has_spoken(self) -> bool:
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(0))

    def _exchange(self, request: bytes, deadline: float) -> bytes:
        """Send a line and receive one, without ever blocking on a worker that neither reads nor writes."""
        unsent = memoryview(request)
        received = [self._pending]
        looked = time.monotonic()
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        poll.register(self._requests, select.POLLOUT)
        poll.register(self._guard.fd if self._guard else self._channel, select.POLLIN)
        while b"\n" not in received[-1]:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            ready = poll.poll(min(left, _LOOK_S) * 1000)
            if time.monotonic() - looked >= _LOOK_S:
                self._look()
                looked = time.monotonic()
            for fd, event in ready:
                if self._guard and fd == self._guard.fd:
                    if not event & select.POLLIN:  # nobody is left to be heard of
                        poll.unregister(fd)
                    elif violation := self._guard.violation():
                        raise _Killed("forbidden", f"{violation}, which is forbidden,")
                elif fd == self._channel.fileno():
                    poll.unregister(fd)
                    self._guard = self._meet()
                    if self._guard:
                        poll.register(self._guard.fd, select.POLLIN)
                elif fd == self._replies:
                    chunk = os.read(fd, 1 << 20)
                    if not chunk:
                        raise EOFError
                    received.append(chunk)
                else:
                    try:
                        unsent = unsent[os.write(fd, unsent[: 1 << 20]) :]
                    except BrokenPipeError:  # it has closed its end: what it still had to say may be in the other pipe
                        unsent = unsent[:0]
                    if not unsent:
                        poll.unregister(fd)
        line, _, self._pending = b"".join(received).partition(b"\n")
        return line

    def _meet(self) -> Guard | None:
        """Take the listener that a worker sends when it confines itself; None where it has only closed its end."""
        fds: list[int] = []
        with suppress(OSError):
            fds = socket.recv_fds(self._channel, 1, 1)[1]
        return Guard(fds[0], self.pid, self._rules.writable if self._rules else None) if fds else None

    def _look(self) -> None:
        """See whether the worker has to be killed."""
        if self._memory_bytes is not None and (taken := _own_memory(self.pid)) > self._memory_bytes:
            limit = f"more than {self._memory_bytes / 2**30:.3g} GiB"
            raise _Killed("out_of_memory", f"took {taken / 2**30:.3g} GiB of the host's memory, {limit},")
        if self.watch is not None and (reason := self.watch(self.pid)):
            raise _Killed("out_of_memory", reason)

    def _crashed(self, command: str) -> WorkerCrashed:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL_S)  # so that its own signal is reported, not our SIGKILL
        code = self._process.poll()
        how = "closed its pipe and was killed" if code is None else describe_end(code)
        self._end(f"it {how} during {command!r}.", kill=True)
        log = self.tail()
        if code == -signal.SIGSYS:  # where the kernel tells no more
            raise WorkerCrashed(
                "The kernel's code made a system call that is forbidden, and was killed.", "forbidden", log
            )
        said = f" It last said: {log.splitlines()[-1].strip()[:300]}" if log else ""
        return WorkerCrashed(f"The worker {how} during {command!r}.{said}", "crash", log)

    def _end(self, why: str, kill: bool = False) -> None:
        self._ended = why
        os.close(self._requests)
        os.close(self._replies)
        if not (kill or self._stopped):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_FAREWELL_S)
        # Also after the worker's own end: what it started is in its group, whose id is not reused while one lives.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_S)
        self._channel.close()
        if self._guard:  # not before: what waits to be heard would go on
            os.close(self._guard.fd)
            self._guard = None


@cache
def starter(parent: int) -> ThreadPoolExecutor:
    """The one thread that starts every worker of process ``parent``.

    Linux sends the parent-death signal when the *thread* that started a process ends, so a worker started by a pool's
    thread would die with that thread. This one lives as long as the process.
    """
    return ThreadPoolExecutor(1, thread_name_prefix=f"msbench-starter-{parent}")


def describe_end(code: int) -> str:
    """For example ``"died of SIGKILL"``; ``code`` is ``Popen.returncode``."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"died of {signal.Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"


def _own_memory(pid: int) -> int:
    """The bytes of memory that a process has filled and shares with nobody."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
