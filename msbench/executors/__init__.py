"""Where kernels run: one module an executor; ``pick`` finds one by name, or the best that works here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msbench import plugins
from msbench.errors import DeviceError, ToolchainError, UnknownNameError

if TYPE_CHECKING:
    from msbench.harness.protocols import Executor

AUTO = "auto"


def names() -> tuple[str, ...]:
    """What ``pick`` knows."""
    return (AUTO, *plugins.names(__name__))


def pick(name: str, **options: Any) -> Executor:
    """The executor called ``name``, ready to use; the caller closes it.

    ``auto`` is ``cuda`` where a GPU and a compiler for it work, else ``recorded``; with ``sanitize`` it is ``cpu``, the
    one that can.

    Args:
        options: ``sanitize``, ``store`` (a ``Store`` of what was measured before), ``device``.

    Raises:
        UnknownNameError: there is no such executor.
        DeviceError, ToolchainError: it doesn't work here; the message says what is missing and how to get it.
    """
    if name not in names():
        raise UnknownNameError("executor", name, names())
    if name != AUTO:
        return _create(name, options)
    if options.get("sanitize"):
        return _create("cpu", options)
    try:
        return _create("cuda", options)
    except (DeviceError, ToolchainError):
        return _create("recorded", options)


def _create(name: str, options: dict[str, Any]) -> Executor:
    executor: Executor = plugins.load(__name__, name, "executor").create(**options)
    return executor
