"""How a command ends: every error as one sentence, every signal without a traceback, and an exit code that says which.

0 all is well (also if nobody reads the output any more), 1 something did not pass, 2 an error, 3 waiting for an answer,
70 a bug in msbench, 128 + n ended by signal n (130: Ctrl-C).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import FrameType

from rich.markup import escape

from msbench.cli import _interruption
from msbench.cli._options import err
from msbench.errors import MsbenchError, WaitingForAnswer
from msbench.guarded import end_all

ERROR, WAITING, BUG = 2, 3, 70
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FULL = "the disk is full: free some space, then try again; what was finished is stored"
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: "your quota is used up: free some space, then try again; what was finished is stored",
    errno.EFBIG: "the file would exceed the size limit (`ulimit -f`): raise it, then try again",
    errno.EACCES: "permission denied: check its permissions",
    errno.EPERM: "not permitted: check its permissions",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.ENOENT: "it does not exist: check the path",
    errno.EMFILE: "too many open files: raise `ulimit -n`, then try again",
    errno.ENOMEM: "there is not enough memory: end other processes, then try again",
    errno.EIO: "I/O error: check the disk",
}


def ended(command: Callable[[], object]) -> int:
    """Run a command and say how it ended, if not well; returns the exit code."""
    _print_anything()
    _interruption.begin()
    with _signals() as caught:
        try:
            code = _run(command)
            _flush()
        except BrokenPipeError:  # the reader of our output has gone, and the last of it with them: `msbench ops | head`
            _discard_output()
            code = 0
        except OSError as error:  # or what an interruption made of a system call
            code = ERROR if caught else _said(ERROR, "red]error:[/", os_error(error))
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
        if caught or code == 128 + signal.SIGINT:  # which typer makes of an interruption
            end_all()
            code = _interrupted(caught)
    return code


def _run(command: Callable[[], object]) -> int:
    try:
        command()
        return 0
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # what typer and rich make of it
            raise end.__context__ from None
        return end.code if isinstance(end.code, int) else 0 if end.code is None else ERROR
    except WaitingForAnswer as waiting:
        return _said(WAITING, "yellow]waiting:[/", str(waiting))
    except MsbenchError as error:
        return _said(ERROR, "red]error:[/", str(error))
    except MemoryError:
        return _said(ERROR, "red]error:[/", f"msbench ran out of memory; {_ADVICE[errno.ENOMEM]}.")
    except (OSError, KeyboardInterrupt):
        raise
    except Exception as error:
        if type(error).__module__.startswith(("cupy.", "cupy_backends.")):
            return _said(
                ERROR, "red]error:[/", f"The GPU no longer responds ({error}). Check nvidia-smi, then start again."
            )
        return _said(BUG, "red]error:[/", _bug(error))


def os_error(error: OSError) -> str:
    """One sentence for a failed system call: on what, why, what to do."""
    where = " and ".join(
        os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)
    )
    why = error.strerror or str(error) or type(error).__name__
    advice = _ADVICE.get(error.errno or 0, f"{why[:1].lower()}{why[1:]}: check it, then try again")
    return f"{where or 'The output, or a file,'} could not be read or written: {advice}."


def _bug(error: Exception) -> str:
    """What is worth reporting; with MSBENCH_DEBUG also the traceback."""
    if os.environ.get("MSBENCH_DEBUG"):
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    what = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return (
        f"This is a bug in msbench, or a database was edited by hand ({what}, at {where}). "
        "Try `msbench db check`; to report it, run it again with MSBENCH_DEBUG=1 for the traceback."
    )


def _said(code: int, label: str, text: str) -> int:
    with suppress(OSError):  # nobody hears it; the exit code still tells
        err.print(f"[{label}] {escape(' '.join(text.split()) if code == BUG else text)}", soft_wrap=True)
    return code


# ------------------------------------------------------------------ signals


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Within the block the usual ways to end a process interrupt it; yields the signals that came.

    The second one ends it at once. What ignores a signal (``nohup``) goes on ignoring it.
    """
    caught: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        if len(caught) > 1:
            os._exit(128 + number)
        raise KeyboardInterrupt

    def unraisable(seen: sys.UnraisableHookArgs) -> None:
        # An interruption in a destructor gets lost: end here, since nobody else will.
        if isinstance(seen.exc_value, KeyboardInterrupt):
            os._exit(_interrupted(caught))
        sys.__unraisablehook__(seen)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    hook, sys.unraisablehook = sys.unraisablehook, unraisable
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield caught
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupted(caught: list[int]) -> int:
    number = caught[0] if caught else int(signal.SIGINT)
    how = _interruption.current
    if number == signal.SIGINT and how.is_the_end:
        return 0
    name = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    then = f"; what was finished is stored. Continue with: {escape(how.go_on)}" if how.go_on else ""
    with suppress(OSError):
        err.print(f"\n{name}{then}", soft_wrap=True)
    return 128 + number


# ------------------------------------------------------------------ output


def _print_anything() -> None:
    """What the terminal's encoding lacks, or what is no text at all (a file's name), is shown as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def _discard_output() -> None:
    """So that the interpreter, when it ends, does not try and complain once more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
