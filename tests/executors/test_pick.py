"""The right executor is found by name, and ``auto`` takes the best that works."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from msbench import executors, plugins
from msbench.errors import DeviceError, MsbenchError, ToolchainError, UnknownNameError


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, MsbenchError]:
    """Stands in for the executors' modules; one whose name is in the dict raises that error."""
    broken: dict[str, MsbenchError] = {}

    def load(package: str, name: str, kind: str) -> SimpleNamespace:
        assert (package, kind) == ("msbench.executors", "executor")

        def create(options: executors.Options) -> str:
            if name in broken:
                raise broken[name]
            return f"{name} {options.device} {options.sanitize}"

        return SimpleNamespace(create=create)

    monkeypatch.setattr(plugins, "load", load)
    monkeypatch.setattr(plugins, "names", lambda package: ("cpu", "cuda", "recorded"))
    return broken


def test_by_name() -> None:
    assert executors.pick("cpu", sanitize=True, device="0") == "cpu 0 True"


def test_auto_prefers_a_gpu() -> None:
    assert executors.pick("auto") == "cuda None False"


@pytest.mark.parametrize("error", [DeviceError("no GPU"), ToolchainError("no nvcc")])
def test_auto_falls_back_to_what_was_recorded(modules: dict[str, MsbenchError], error: MsbenchError) -> None:
    modules["cuda"] = error
    assert executors.pick("auto") == "recorded None False"
    with pytest.raises(type(error), match=str(error)):
        executors.pick("cuda")


def test_only_the_cpu_executor_sanitizes() -> None:
    assert executors.pick("auto", sanitize=True) == "cpu None True"


def test_an_option_that_there_is_not_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="sanitise"):
        executors.pick("cpu", sanitise=True)  # type: ignore[call-arg]


def test_unknown_names_are_told_what_there_is() -> None:
    with pytest.raises(
        UnknownNameError, match=r"no executor 'cdua'. Did you mean 'cuda'\? Known: auto, cpu, cuda, recorded"
    ):
        executors.pick("cdua")
