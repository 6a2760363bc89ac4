"""The child's side of the protocol between msbench and a worker process: one JSON object per line over two inherited pipes.

A worker is a small script that ends in ``wire.serve({"launch": launch, …})``. Stdin, stdout and stderr are no part of
the protocol, so that a kernel may print what it likes. The parent's side is ``process.WorkerProcess``.
This module imports the standard library only: what a measured process loads must not disturb what is measured.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SETTINGS = "MSBENCH_WIRE"
"""The environment variable that carries the pipes' numbers, the parent's process id and the limits, as JSON."""

OPEN_FILES = 4096
"""How many files a worker may have open."""

LOG_BYTES = 256 * 2**20
"""No file that a worker writes grows beyond this: a kernel that prints for ever fills no disk."""

Handler = Callable[..., "dict[str, Any] | None"]

_channel: socket.socket | None = None  # carries descriptors both ways
_rules: str | None = None


def serve(handlers: dict[str, Handler]) -> None:
    """Answer the parent's calls until it closes its end; ``handlers`` maps a command to a function of its payload.

    A handler returns a dict that JSON can hold (None: an empty one). An exception becomes an error answer and the
    worker lives on: its kind is the exception's ``kind`` where it has one, else its class name; ``log`` likewise.
    """
    global _channel, _rules
    settings = json.loads(os.environ.pop(SETTINGS))
    for fd in (settings["requests"], settings["replies"], settings["channel"]):
        os.set_inheritable(fd, False)
    _channel = socket.socket(fileno=settings["channel"])
    _rules = settings.get("rules")
    die_with(settings["parent"])
    _limit(settings.get("cpu_seconds"))
    with open(settings["requests"], "rb") as requests, open(settings["replies"], "wb") as replies:  # noqa: PTH123
        for line in requests:
            answer = _answer(handlers, json.loads(line))
            try:
                replies.write(json.dumps(answer).encode() + b"\n")
                replies.flush()
            except BrokenPipeError:
                os._exit(1)


def take_file() -> int:
    """The descriptor that came with the current call."""
    assert _channel is not None
    _, (fd,), _, _ = socket.recv_fds(_channel, 1, 1)
    return fd


def rules() -> str | None:
    """What ``confine`` holds this process to, a ``confine.Rules``'s value; None: nothing."""
    return _rules


def confine() -> None:
    """Confine this process, before it loads a candidate, as its parent asked; forbidden calls are reported to the parent."""
    from msbench.harness.sandbox.confine import Rules
    from msbench.harness.sandbox.confine import confine as forbid

    if _rules is None:
        return
    assert _channel is not None
    listener = forbid(Rules(_rules)).listener
    if listener is not None:
        socket.send_fds(_channel, [b"g"], [listener])
        os.close(listener)


def _answer(handlers: dict[str, Handler], message: dict[str, Any]) -> dict[str, Any]:
    command = message["command"]
    if command not in handlers:
        unknown = {"kind": "protocol", "message": f"The worker knows no command {command!r}."}
        return {"id": message["id"], "error": unknown}
    try:
        return {"id": message["id"], "result": handlers[command](**message["payload"]) or {}}
    except Exception as error:
        kind = getattr(error, "kind", "")
        if not kind:  # a bug of the worker's; else its message says all, and what it printed is the kernel's own
            traceback.print_exc()
            sys.stderr.flush()
            kind = type(error).__name__
        return {"id": message["id"], "error": {"kind": kind, "message": str(error), "log": getattr(error, "log", "")}}


def die_with(parent: int) -> None:
    """Have Linux kill this process when its parent ends, even by SIGKILL; elsewhere the closed pipe ends it."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1  # PR_SET_PDEATHSIG, linux/prctl.h
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)


def _limit(cpu_seconds: int | None) -> None:
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, LOG_BYTES), (resource.RLIMIT_NOFILE, OPEN_FILES)]
    if cpu_seconds is not None:
        limits.append((resource.RLIMIT_CPU, cpu_seconds))
    for what, value in limits:
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))
    with suppress(OSError):  # where memory ends, this process goes first, and not the referee
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
