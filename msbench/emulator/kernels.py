"""Finds the ``__global__`` functions of a file, so that a launch knows whether its kernel's address is unambiguous."""

from __future__ import annotations

from dataclasses import dataclass

from msbench.emulator.lexer import Kind
from msbench.emulator.syntax import NotUnderstood, SourceFile

_ATTRIBUTES = (
    "__launch_bounds__",
    "__cluster_dims__",
    "__maxnreg__",
    "__attribute__",
    "__block_size__",
    "alignas",
    "decltype",
)
_OF_THE_C_LIBRARY = frozenset((
    "abs", "accept", "access", "bind", "close", "connect", "dup", "exp", "floor", "gamma", "index", "link", "log", "open", "pipe",
    "pow", "read", "recv", "remove", "rename", "round", "select", "send", "signal", "sync", "tee", "time", "truncate", "wait", "write",
))  # fmt: skip
"""What its headers declare and a kernel may be called: then that name has two meanings."""
_SPECIFIERS = ("static", "inline", "extern", "constexpr", "__forceinline__", "__noinline__", "void")


@dataclass(frozen=True)
class Kernel:
    """One declaration: ``template_parameters`` is None for a plain function, -1 where a pack makes the number open."""

    name: str
    template_parameters: int | None
    parameters: int
    defined: bool


def kernels(file: SourceFile) -> list[Kernel]:
    """Every kernel that a file declares; what can't be understood is left out."""
    found = []
    for i, token in enumerate(file.tokens):
        if token.kind == Kind.WORD and token.text == "__global__":
            try:
                found.append(_kernel(file, i))
            except NotUnderstood:
                continue
    return found


def _kernel(file: SourceFile, index: int) -> Kernel:
    i = index + 1
    while not (file.is_(i + 1, "(") and file.tokens[i].kind == Kind.WORD and file.tokens[i].text not in _ATTRIBUTES):
        if i >= len(file.tokens) or file.is_(i, ";", "{", "}"):
            raise NotUnderstood("__global__ without a function")
        i = file.partner(i) + 1 if file.is_(i, "(") else i + 1
    closing = file.partner(i + 1)
    after = closing + 1
    while file.is_(after, "noexcept"):
        after += 1
    return Kernel(
        file.tokens[i].text, _template(file, index), len(file.arguments(i + 1, closing)), file.is_(after, "{")
    )


def _template(file: SourceFile, index: int) -> int | None:
    """The number of template parameters of the function whose ``__global__`` is at ``index``."""
    i = index - 1
    while i >= 0:
        if file.is_(i, ")", "]"):
            i = file.partner(i) - 1
        elif file.is_(i, *_SPECIFIERS, *_ATTRIBUTES) or file.tokens[i].kind == Kind.STRING:
            i -= 1
        else:
            break
    if not file.is_(i, ">"):
        return None
    opening = file.angle_before(i)
    if not file.is_(opening - 1, "template"):
        return None
    parameters = file.arguments(opening, i)
    return -1 if any(file.is_(k, "...") for part in parameters for k in part) else len(parameters)


class KernelTable:
    """All kernels of a compilation."""

    def __init__(self, found: list[Kernel]) -> None:
        self._by_name: dict[str, list[Kernel]] = {}
        for kernel in found:
            self._by_name.setdefault(kernel.name, []).append(kernel)

    def knows(self, name: str) -> bool:
        """Whether a kernel is called that."""
        return name in self._by_name

    def address_is_unique(self, name: str, template_arguments: int | None) -> bool:
        """Whether ``&name<…>`` with so many arguments can only mean one function."""
        if name in _OF_THE_C_LIBRARY:
            return False
        known = self._by_name.get(name, [])
        shapes = {(k.template_parameters, k.parameters) for k in known}
        if len(shapes) != 1 or sum(k.defined for k in known) > 1:
            return False
        expected = known[0].template_parameters
        return expected != -1 and expected == template_arguments
