"""Sends one request and returns its body, within a time limit that holds whatever the endpoint does."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

LONGEST_BODY = 64 * 2**20
"""Bytes after which an answer is no answer any more."""

LASTING = 1
"""In the place of an HTTP status: another request would come to the same."""

_DONE = (b"\ndata: [DONE]", b"\ndata:[DONE]")


class Problem(Exception):
    """A request that failed. ``sent``: it may have reached the other side. ``status``: the HTTP status, 0 without one."""

    def __init__(
        self, message: str, *, sent: bool = True, status: int = 0, wait_s: float | None = None, timed_out: bool = False,
        body: bytes = b"",
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.sent = sent
        self.status = status
        self.wait_s = wait_s
        self.timed_out = timed_out
        self.body = body


def fetch(send: Callable[[float], AbstractContextManager[Any]], total_s: float, idle_s: float) -> bytes:
    """The body that a request brings.

    Args:
        send: opens the response, given the most seconds of silence.
        total_s: until the body is there. A response that trickles in, headers included, is given up then.

    Raises:
        Problem: it did not come; what ``send`` raises comes as it is.
    """
    box: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()
    given_up = threading.Event()

    def work() -> None:
        try:
            box.put(_body(send(min(idle_s, total_s)), given_up))
        except BaseException as error:
            box.put(error)

    threading.Thread(target=work, name="msbench-request", daemon=True).start()
    try:
        found = box.get(timeout=max(total_s, 0.0))
    except queue.Empty:
        raise Problem(f"did not answer within {total_s:.0f} s", status=LASTING, timed_out=True) from None
    finally:
        given_up.set()
    if isinstance(found, BaseException):
        raise found
    return found


def _body(opened: AbstractContextManager[Any], given_up: threading.Event) -> bytes:
    parts: list[bytes] = []
    length, tail = 0, b"\n"
    with opened as response:
        try:
            for chunk in response.iter_bytes():
                parts.append(chunk)
                length += len(chunk)
                tail = tail[-16:] + chunk
                if given_up.is_set() or any(done in tail for done in _DONE):
                    break
                if length > LONGEST_BODY:
                    raise Problem("sends without an end", status=LASTING, body=b"".join(parts[:16]))
        except Problem:
            raise
        except Exception as error:  # of the HTTP library, which the openai package does not wrap here
            silent = "Timeout" in type(error).__name__
            what = "fell silent" if silent else f"broke off ({error or type(error).__name__})"
            raise Problem(what, timed_out=silent, body=b"".join(parts)) from error
    return b"".join(parts)


def pause(seconds: float) -> None:
    """Wait, in a place that tests can find."""
    time.sleep(seconds)
