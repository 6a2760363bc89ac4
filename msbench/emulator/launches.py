"""Rewrites kernel launches: ``k<<<grid, block>>>(a)`` becomes a call of msbench_cpu/launch.hpp."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from msbench.emulator.kernels import KernelTable
from msbench.emulator.lexer import Kind
from msbench.emulator.syntax import Edit, NotUnderstood, SourceFile
from msbench.errors import BuildError

_NO_CALLEE = ("return", "else", "do")
_BY_POINTER = {"cudaLaunchKernel": 0, "cudaLaunchCooperativeKernel": 0, "cudaLaunchKernelExC": 1}
"""Which of its arguments is the kernel."""


def launches(file: SourceFile, table: KernelTable) -> Iterator[Edit]:
    """The edits for every launch of a file, and for every kernel whose address becomes a ``void*``.

    Raises:
        BuildError: a launch that is no C++ whatever the rest of the file says; the line is named.
    """
    typed: set[int] = set()  # where a launch has the kernel itself
    for i, token in enumerate(file.tokens):
        if token.kind == Kind.PUNCTUATION and token.text == "<<<":
            try:
                yield from _launch(file, i, table)
            except NotUnderstood as problem:
                message = f"{file.name}:{file.line(i)}: error: a kernel launch with {problem}"
                raise BuildError(message, message) from None
        elif token.kind == Kind.WORD and token.text in _BY_POINTER and file.is_(i + 1, "("):
            argument = _kernel_argument(file, i + 1, _BY_POINTER[token.text])
            typed.add(argument)
            yield from _strip_cast(file, argument)
        elif (
            i not in typed
            and (last := _cast_end(file, i)) >= 0
            and _names_kernel(file, last + 1, table)
            and _to_void(file, i, last)
        ):
            yield Edit(token.start, file.tokens[last].end, "::msbench_cpu::Known()->*")


def _launch(file: SourceFile, opening: int, table: KernelTable) -> Iterator[Edit]:
    start, name, template_arguments = _callee(file, opening)
    closing = _configuration_end(file, opening)
    if not file.is_(closing + 3, "("):
        raise NotUnderstood("no arguments")
    tokens = file.tokens
    config = f'"{name}", ::msbench_cpu::Config('
    if name and table.address_is_unique(name, template_arguments):
        yield Edit(tokens[start].start, tokens[start].start, "::msbench_cpu::bind<&")
        yield Edit(tokens[opening].start, tokens[opening].end, f">({config}")
    else:
        yield Edit(tokens[start].start, tokens[start].start, "::msbench_cpu::bind_call([=](auto&&... msbench_a) { ")
        yield Edit(tokens[opening].start, tokens[opening].end, f"(msbench_a...); }}, {config}")
    yield Edit(tokens[closing].start, tokens[closing + 2].end, "))")


def _configuration_end(file: SourceFile, opening: int) -> int:
    """The first of the three ``>`` that close a launch's configuration."""
    i = opening + 1
    while i < len(file.tokens):
        if file.is_(i, "(", "[", "{"):
            i = file.partner(i)
        elif file.is_(i, ">") and file.is_(i + 1, ">") and file.is_(i + 2, ">"):
            first, last = file.tokens[i], file.tokens[i + 2]
            if last.end - first.start == 3:
                return i
        elif file.is_(i, ";", "<<<", ")", "]", "}"):
            break
        i += 1
    raise NotUnderstood("no matching '>>>'")


def _callee(file: SourceFile, opening: int) -> tuple[int, str, int | None]:
    """What is launched: (its first token, the kernel's name or "" if it is an expression, its template arguments)."""
    i = opening - 1
    template_arguments = None
    if file.is_(i, ">"):
        angle = file.angle_before(i)
        template_arguments = len(file.arguments(angle, i))
        i = angle - 1
    if file.is_(i, ")", "]"):
        i = file.partner(i)
        if file.is_(i - 1, ">"):
            i = file.angle_before(i - 1)  # f<3>(x)<<<…>>>
        if i > 0 and file.tokens[i - 1].kind == Kind.WORD and not file.is_(i - 1, *_NO_CALLEE):
            i -= 1  # f(x)<<<…>>>, kernels[i]<<<…>>>
        return i, "", None
    if i < 0 or file.tokens[i].kind != Kind.WORD:
        raise NotUnderstood("nothing to launch before '<<<'")
    name, plain = file.tokens[i].text, True
    while file.is_(i - 1, "::", ".", "->", "##"):
        plain = plain and file.is_(i - 1, "::")
        if file.is_(i - 2, ">"):
            i = file.angle_before(i - 2) - 1
        elif i >= 2 and file.tokens[i - 2].kind == Kind.WORD and not file.is_(i - 2, *_NO_CALLEE):
            i -= 2
        elif file.is_(i - 1, "::"):
            i -= 1  # ::k
        else:
            raise NotUnderstood("a kernel that is neither a name nor in parentheses")
    return i, name if plain else "", template_arguments


def _kernel_argument(file: SourceFile, opening: int, number: int) -> int:
    """Where it begins; -1 where there is none."""
    with suppress(NotUnderstood):  # the compiler will say so
        given = file.arguments(opening, file.partner(opening))
        if number < len(given):
            return given[number].start
    return -1


def _strip_cast(file: SourceFile, index: int) -> Iterator[Edit]:
    """``(void*)k`` hides the parameters' types, which the launch needs."""
    if (last := _cast_end(file, index)) >= 0:
        yield Edit(file.tokens[index].start, file.tokens[last].end, "")


def _cast_end(file: SourceFile, index: int) -> int:
    """Where the cast to ``void*`` ends that begins here, as any ``reinterpret_cast`` or ``static_cast``; -1 where none does."""
    last = -1
    if index >= 0 and file.is_(index, "("):
        inside = [file.tokens[k].text for k in range(index + 1, min(index + 5, len(file.tokens)))]
        if inside[:3] == ["void", "*", ")"]:
            last = index + 3
        elif inside[:4] in (["const", "void", "*", ")"], ["void", "const", "*", ")"]):
            last = index + 4
    elif index >= 0 and file.is_(index, "reinterpret_cast", "static_cast") and file.is_(index + 1, "<"):
        last = index + 2
        while last < len(file.tokens) and not file.is_(last, ">"):
            last += 1
    return last if last < len(file.tokens) else -1


def _to_void(file: SourceFile, first: int, last: int) -> bool:
    """Whether the cast between these tokens is to a ``void*``: ``static_cast<int>(sum)`` may stand beside a kernel called ``sum``."""
    return any(file.is_(i, "void") for i in range(first, last))


def _names_kernel(file: SourceFile, index: int, table: KernelTable) -> bool:
    """Whether what is cast has a kernel's name, with or without parentheses, an ampersand and namespaces: it may be a variable's, too."""
    while file.is_(index, "(", "&"):
        index += 1
    while file.is_(index + 1, "::"):
        index += 2
    return index < len(file.tokens) and table.knows(file.tokens[index].text)
