"""Published calling conventions: which function computes which of our operators, and what its parameters are.

A convention is one file, ``abis/<name>.toml``, whose name is the one on the command line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msbench.errors import UnknownNameError
from msbench.spec import Precision

_FOLDER = Path(__file__).with_name("abis")
_PARAMETER = re.compile(
    r"^(?P<const>const )?(?P<ctype>\w+)(?P<pointer>\*?) (?P<name>\w+)(?: = (?P<default>[-+.\w]+))?$"
)


@dataclass(frozen=True)
class Parameter:
    """One parameter; ``name`` is that of an array, scalar or dimension of the operator, ``ctype`` C's or ``"T"``.

    One with a ``default`` may be left out by the function.
    """

    name: str
    ctype: str
    pointer: bool
    const: bool
    default: float | None

    def declared(self, precision: Precision) -> str:
        """For example ``"const __nv_bfloat16* x"``."""
        return f"{'const ' if self.const else ''}{self.element(precision)}{'*' if self.pointer else ''} {self.name}"

    def element(self, precision: Precision) -> str:
        """The C type without ``const`` and ``*``."""
        return precision.ctype if self.ctype == "T" else self.ctype


@dataclass(frozen=True)
class Function:
    """What a convention calls one operator, and how it is called.

    ``zeroed``: the caller fills the outputs with zeros. ``in_place``: by output, the input that it holds at the call.
    ``host_pointers``: the precisions in which arrays are in host memory.
    """

    name: str
    operator: str
    parameters: tuple[Parameter, ...]
    zeroed: bool
    in_place: Mapping[str, str]
    host_pointers: frozenset[Precision]

    def taken(self, count: int) -> tuple[Parameter, ...]:
        """The parameters of a function that takes ``count`` of them; all where that is not possible."""
        left_out = self.parameters[count:]
        return self.parameters[:count] if all(p.default is not None for p in left_out) else self.parameters


@dataclass(frozen=True)
class Symbol:
    """One function name of a convention."""

    name: str
    function: Function
    precision: Precision
    optimized: bool

    @property
    def task(self) -> str:
        """For example ``"rms_norm/fp32"``."""
        return f"{self.function.operator}/{self.precision}"

    @property
    def host_pointers(self) -> bool:
        """Whether arrays are in host memory."""
        return self.precision in self.function.host_pointers

    def prototype(self) -> str:
        """For example ``extern "C" void RELU(float* y, const float* x, int N)``."""
        parameters = (
            p.declared(self.precision) + ("" if p.default is None else f" = {p.default:g}")
            for p in self.function.parameters
        )
        return f'extern "C" void {self.name}({", ".join(parameters)})'


@dataclass(frozen=True)
class Abi:
    """A calling convention."""

    name: str
    functions: tuple[Function, ...]

    def symbols(self) -> dict[str, Symbol]:
        """Every function name there is, originals and optimized ones, in both precisions."""
        found = (
            Symbol(f"{function.name}{suffix}{ending}", function, precision, bool(ending))
            for function in self.functions
            for precision, suffix in ((Precision.FP32, ""), (Precision.BF16, "_bf16"))
            for ending in ("", "_optimized")
        )
        return {symbol.name: symbol for symbol in found}

    def prototypes(self, operator: str) -> list[str]:
        """Those of one operator's functions; none where the convention has no such operator."""
        return [symbol.prototype() for symbol in self.symbols().values() if symbol.function.operator == operator]


def names() -> tuple[str, ...]:
    """The conventions that there are."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def load(name: str) -> Abi:
    """A convention by its name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name not in names():
        raise UnknownNameError("calling convention", name, names())
    table = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return Abi(
        name,
        tuple(
            Function(
                name=function,
                operator=entry["operator"],
                parameters=tuple(map(_parameter, entry["parameters"].split(", "))),
                zeroed=entry.get("zeroed", False),
                in_place=entry.get("in_place", {}),
                host_pointers=frozenset(map(Precision, entry.get("host_pointers", ()))),
            )
            for function, entry in table.items()
        ),
    )


def _parameter(text: str) -> Parameter:
    found = _PARAMETER.match(text)
    assert found is not None, text
    default = None if found["default"] is None else float(found["default"])
    return Parameter(found["name"], found["ctype"], bool(found["pointer"]), bool(found["const"]), default)
