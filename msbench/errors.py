"""Every error that msbench raises on purpose.

MsbenchError                 one clear sentence: what, where, what to do; the CLI prints it and exits
├── SpecError                an operator's spec is wrong (file and field are named)
├── UnknownNameError         no operator, version, plugin, case, run … of that name (lists those that exist)
├── ToolchainError           a compiler or library is missing, or too old
├── BuildError               the compiler refused a kernel (its message is kept)
├── ExecutorError            an executor can't do what was asked
│   ├── UnsupportedError     this executor can't run this kernel (the construct is named)
│   └── DeviceError          the GPU is missing, busy, lost or unhealthy
├── WorkerError              a worker process answered with an error, or ended before it answered
│   ├── WorkerCrashed        it ended by a signal or an exit code
│   ├── WorkerTimeout        it outran its time limit and was killed
│   └── LaunchFailed         the kernel's launcher returned an error
├── ProviderError            a language model could not be asked
│   ├── ProviderUnavailable  no key, no endpoint, no network
│   │   └── RecordingDiffers a prompt was not recorded (the difference is shown)
│   ├── ReplyError           the reply holds no kernel that can be used
│   ├── RecordingEnded       a recorded conversation has no further answer
│   └── WaitingForAnswer     the manual provider waits for a person (the prompt's file is named)
├── BudgetExceeded           the run's budget is spent
└── StoreError               a database can't be read or written
    └── IntegrityError       a database contradicts itself
"""

from __future__ import annotations

from typing import Any


class MsbenchError(Exception):
    """Base of all expected errors, which are not bugs."""


class SpecError(MsbenchError):
    """An operator's spec is wrong."""


class UnknownNameError(MsbenchError):
    """Nothing has the name that was asked for.

    Args:
        kind: of what.
        name: what was asked for.
        known: what there is.
        hint: what else to do about it, in one sentence.
        listing: the sentence that stands for a long list of what is known, where one name is near.
    """

    def __init__(
        self, kind: str, name: str, known: list[str] | tuple[str, ...], hint: str = "", listing: str = ""
    ) -> None:
        near = _near(name, [str(one) for one in known])
        listed = listing if near and listing else f"Known: {', '.join(known) or 'none'}." if known or not hint else ""
        meant = f"Did you mean {near!r}?" if near else ""
        super().__init__(" ".join(filter(None, (f"There is no {kind} {name!r}.", meant, listed, hint))))


def _near(name: str, known: list[str]) -> str | None:
    """The known name that was meant, perhaps. ``N=1024`` is none for ``N=0``: a size is not misspelt."""
    import difflib
    import re

    def without_sizes(text: str) -> str:
        return re.sub(r"=[^,]*", "=", text)

    for close in difflib.get_close_matches(name, known, n=1):
        if "=" not in name or without_sizes(close) != without_sizes(name):
            return close
    return None


class ToolchainError(MsbenchError):
    """A compiler or library is missing or does not work."""


class BuildError(MsbenchError):
    """The compiler refused a kernel; ``log`` is the compiler's message.

    ``kind`` is a ``model.Fault``'s value where it hit a limit of time, memory or file size.
    """

    def __init__(self, message: str, log: str = "", kind: str = "") -> None:
        super().__init__(message)
        self.log = log
        self.kind = kind


class ExecutorError(MsbenchError):
    """An executor can't do what was asked."""


class UnsupportedError(ExecutorError):
    """This executor can't run this kernel."""


class DeviceError(ExecutorError):
    """The GPU is missing, busy, lost or unhealthy."""


class DeviceFull(DeviceError):
    """A device has not enough memory for one case; others may fit."""


class WorkerError(MsbenchError):
    """A worker process answered with an error, or ended before it answered.

    ``kind`` names the error for programs (a ``model.Fault``'s value where one fits); ``log`` is the end of the worker's
    output.
    """

    def __init__(self, message: str, kind: str = "", log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.log = log


class WorkerCrashed(WorkerError):
    """The worker process ended by a signal or an exit code."""


class WorkerTimeout(WorkerError):
    """The worker process outran its time limit and was killed."""


class LaunchFailed(WorkerError):
    """The kernel's launcher returned an error code, or the device reported one afterwards."""


class ProviderError(MsbenchError):
    """A language model could not be asked."""


class ProviderUnavailable(ProviderError):
    """No key, no endpoint or no network."""


class ReplyError(ProviderError):
    """The reply holds nothing that can be used.

    ``kind``: empty, refused, truncated, tool_call, too_long, no_code (prose only), no_launcher (code without the operator's
    launcher), library (code that links a vendor library). ``reply``, a ``conversation.Reply``, has what it cost all the same.
    """

    def __init__(self, message: str, kind: str = "no_code", reply: Any = None) -> None:
        super().__init__(message.encode("utf-8", "replace").decode("utf-8"))
        self.kind = kind
        self.reply = reply


class RecordingEnded(ProviderError):
    """A recorded conversation has no further answer."""


class RecordingDiffers(ProviderUnavailable):
    """A prompt is none of those that were recorded; the message shows where it differs."""


class WaitingForAnswer(ProviderError):
    """The manual provider waits for a person to write an answer file."""


class BudgetExceeded(MsbenchError):
    """The run's budget is spent."""


class StoreError(MsbenchError):
    """A database can't be read or written."""


class IntegrityError(StoreError):
    """A database contradicts itself."""
