"""Where kernels run: one module per executor; ``pick`` finds one by name, or the best that works here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msbench import plugins
from msbench.errors import DeviceError, ToolchainError, UnknownNameError

if TYPE_CHECKING:
    from msbench.harness.protocols import Executor
    from msbench.store.store import Store

AUTO = "auto"


@dataclass(frozen=True)
class Options:
    """What an executor is made with.

    ``device``: which one, by index, UUID or recorded name; None for the first. ``store``: what was measured before.
    ``sanitize``: check under a sanitizer; an executor that has none refuses.
    """

    device: str | None = None
    store: Store | None = None
    sanitize: bool = False


def names() -> tuple[str, ...]:
    """What ``pick`` knows."""
    return (AUTO, *plugins.names(__name__))


def require(name: str) -> None:
    """Raises UnknownNameError: there is no such executor."""
    if name not in names():
        raise UnknownNameError("executor", name, names())


def pick(name: str, *, device: str | None = None, store: Store | None = None, sanitize: bool = False) -> Executor:
    """The executor called ``name``, made with these ``Options``; the caller closes it.

    ``auto`` is ``cuda`` where a GPU and a compiler for it work, else ``recorded``; with ``sanitize`` it is ``cpu``, the
    one that can.

    Raises:
        UnknownNameError: there is no such executor.
        ExecutorError: it can't do what the options say.
        DeviceError, ToolchainError: it doesn't work here; the message says what is missing and how to get it.
    """
    require(name)
    options = Options(device, store, sanitize)
    if name != AUTO:
        return _create(name, options)
    if sanitize:
        return _create("cpu", options)
    try:
        return _create("cuda", options)
    except (DeviceError, ToolchainError):
        return _create("recorded", options)


def _create(name: str, options: Options) -> Executor:
    executor: Executor = plugins.load(__name__, name, "executor").create(options)
    return executor
