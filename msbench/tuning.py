"""A kernel's tunable constants, and the kernel with other values of them (docs/contract.md).

``// tune: TILE = 64 | 128 | 256`` names a constant and its values. The source defines it once, as
``constexpr int TILE = 64;`` or ``#define TILE 64``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from msbench.errors import MsbenchError

_TUNE = re.compile(r"^[ \t]*//[ \t]*tune:[ \t]*(?P<rest>.*?)[ \t]*$", re.MULTILINE)
_DECLARED = re.compile(r"(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*(?P<values>[^|]+(?:\|[^|]+)+)")
_VALUE = re.compile(r"-?\d+|true|false")


@dataclass(frozen=True)
class Tunable:
    """A constant, the values that it may have, and the one that the source gives it."""

    name: str
    values: tuple[str, ...]
    given: str


Point = Mapping[str, str]
"""A value for each constant."""


def tunables(source: str) -> tuple[Tunable, ...]:
    """What a source declares, in order.

    Raises:
        MsbenchError: a declaration can't be read, or its constant is not defined exactly once.
    """
    found: dict[str, Tunable] = {}
    for line in _TUNE.finditer(source):
        declared = _DECLARED.fullmatch(line["rest"])
        values = tuple(dict.fromkeys(v.strip() for v in declared["values"].split("|"))) if declared else ()
        if declared is None or len(values) < 2 or not all(_VALUE.fullmatch(v) for v in values):
            raise MsbenchError(
                f"`// tune: {line['rest']}`: expected a name and integers, such as `// tune: TILE = 64 | 128`."
            )
        name = declared["name"]
        definitions = list(_definition(name).finditer(source))
        if name in found or len(definitions) != 1:
            how = "declared twice" if name in found else f"defined {len(definitions)} times"
            raise MsbenchError(
                f"{name} is {how}: one `// tune:` line and one `constexpr int {name} = …;` or `#define {name} …` are required."
            )
        found[name] = Tunable(name, values, definitions[0]["value"])
    return tuple(found.values())


def size(space: Sequence[Tunable]) -> int:
    """How many points there are."""
    return prod(len(one.values) for one in space)


def points(space: Sequence[Tunable]) -> Iterator[Point]:
    """All of them."""
    for values in product(*(one.values for one in space)):
        yield dict(zip((one.name for one in space), values, strict=True))


def written(source: str, point: Point) -> str:
    """The source with these values in its definitions."""
    for name, value in point.items():
        defined = _definition(name).search(source)
        if defined:
            source = source[: defined.start("value")] + value + source[defined.end("value") :]
    return source


def _definition(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<head>^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+|\b(?:constexpr|const)\b[ \t]+(?:[\w:]+[ \t]+)+{name}[ \t]*=[ \t]*)"
        rf"(?P<value>{_VALUE.pattern})\b",
        re.MULTILINE,
    )
