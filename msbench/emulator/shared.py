"""Rewrites ``__shared__`` declarations into references to the block's own storage (msbench_cpu/runtime.hpp)."""

from __future__ import annotations

from collections.abc import Iterator

from msbench.emulator.lexer import Kind
from msbench.emulator.syntax import Edit, NotUnderstood, SourceFile
from msbench.errors import UnsupportedError

_ALIGNMENT = ("alignas", "__align__", "__attribute__")


def shared_variables(file: SourceFile, prefix: str) -> Iterator[Edit]:
    """The edits for every shared variable of a file; ``prefix`` makes the names they introduce unique to it.

    Raises:
        UnsupportedError: a declaration of a form that the cpu executor does not know; the line is named.
    """
    done = -1
    for i, token in enumerate(file.tokens):
        if token.kind != Kind.WORD or token.text != "__shared__" or i <= done:
            continue
        try:
            start, end = file.statement_start(i), file.statement_end(i)
            done = end
            if any(file.is_(k, "extern") for k in range(start, i + 3)):
                yield from _dynamic(file, start, end)
            elif file.in_function(i):
                names = _declared_names(file, start, end)
                yield from _static(file, start, end, names, f"{prefix}{i}")
                yield from _captures(file, end, names)
            else:
                raise NotUnderstood("it stands outside of any function")
        except NotUnderstood as problem:
            raise UnsupportedError(
                f"{file.name}:{file.line(i)}: the cpu executor can't run this __shared__ declaration: {problem}."
            ) from None


def _static(file: SourceFile, start: int, end: int, names: list[str], unique: str) -> Iterator[Edit]:
    """``__shared__ float a[32], b;`` becomes a struct of its declarators, of which the block has one."""
    for k in range(start, end):
        if file.is_(k, "__shared__", "static"):
            yield Edit(file.tokens[k].start, file.tokens[k].end, "")
    storage, variable = f"MsbenchShared{unique}", f"msbench_shared{unique}"
    references = "".join(f" auto& {name} = {variable}.{name};" for name in names)
    yield Edit(file.tokens[start].start, file.tokens[start].start, f"struct {storage} {{ ")
    closing = f'; }}; auto& {variable} = ::msbench_cpu::shared<{storage}>("{", ".join(names)}");{references}'
    yield Edit(file.tokens[end].start, file.tokens[end].end, closing)


def _captures(file: SourceFile, after: int, names: list[str]) -> Iterator[Edit]:
    """A lambda uses a shared variable without capturing it; a reference has to be captured, by reference."""
    scope = file.scope(after)
    for k in range(after, file.partner(scope) if scope is not None else len(file.tokens)):
        if not file.is_(k, "[") or file.is_(k + 1, "[") or file.is_(k - 1, "[") or _is_operand(file, k - 1):
            continue
        closing = file.partner(k)
        everything = file.is_(k + 1, "&") and file.is_(k + 2, "]", ",")
        if everything or not file.is_(closing + 1, "(", "{"):
            continue
        body = next((b for b in range(closing, len(file.tokens)) if file.is_(b, "{", ";")), k)
        inside = range(body, file.partner(body)) if file.is_(body, "{") else range(0)
        captured = range(k, closing)
        used = [
            f"&{name}"
            for name in names
            if any(file.is_(b, name) for b in inside) and not any(file.is_(c, name) for c in captured)
        ]
        at = file.tokens[closing].start
        if used:
            yield Edit(at, at, (", " if closing > k + 1 else "") + ", ".join(used))


def _is_operand(file: SourceFile, index: int) -> bool:
    """Whether ``[]`` after this token is a subscript or part of a declaration, and no lambda."""
    return file.is_(index, "]", ")") or (file.tokens[index].kind == Kind.WORD and not file.is_(index, "return"))


def _dynamic(file: SourceFile, start: int, end: int) -> Iterator[Edit]:
    """``extern __shared__ float s[];`` becomes a pointer to the launch's dynamic shared memory."""
    words: list[int] = []
    k = start
    while k < end:
        if file.is_(k, *_ALIGNMENT) and file.is_(k + 1, "("):
            k = file.partner(k + 1)
        elif not file.is_(k, "extern", "__shared__", "static"):
            words.append(k)
        k += 1
    bracket = next((n for n, k in enumerate(words) if file.is_(k, "[")), 0)
    if bracket < 2 or not file.is_(words[bracket] + 1, "]") or file.tokens[words[bracket - 1]].kind != Kind.WORD:
        raise NotUnderstood("an extern one has to be an array of unknown size, T name[]")
    if any(file.is_(k, ",") for k in words[bracket:]):
        raise NotUnderstood("an extern one has to declare one name")
    type_, name = file.source_of(words[: bracket - 1]), file.tokens[words[bracket - 1]].text
    extents = file.source_of(words[bracket + 2 :])
    if file.in_function(start):
        text = f"{type_} (*{name}){extents} = reinterpret_cast<{type_} (*){extents}>(::msbench_cpu::dynamic_shared());"
    elif extents:
        raise NotUnderstood("outside of a function it has to have one dimension")
    else:
        text = f"[[maybe_unused]] static const ::msbench_cpu::DynamicShared<{type_}> {name};"
        yield from (Edit(at, at, "+") for at in _casts(file, end, name))
    # Word by word, so that line breaks and comments in between stay where they are.
    for index in range(start, end):
        yield Edit(file.tokens[index].start, file.tokens[index].end, "")
    yield Edit(file.tokens[end].start, file.tokens[end].end, text)


def _casts(file: SourceFile, after: int, name: str) -> Iterator[int]:
    """Where ``name`` is cast to a pointer, which the language does with pointers alone: ``(float4*)s``, ``reinterpret_cast<…>(s``."""
    for k in range(after, len(file.tokens)):
        if file.tokens[k].kind != Kind.WORD or not file.is_(k, name):
            continue
        old = file.is_(k - 1, ")") and file.is_(k - 2, "*")
        opening = next(
            (b for b in range(k - 2, max(after, k - 24), -1) if file.is_(b, "reinterpret_cast", ";", "(")), k
        )
        if old or (file.is_(k - 1, "(") and file.is_(k - 2, ">") and file.is_(opening, "reinterpret_cast")):
            yield file.tokens[k].start


def _declared_names(file: SourceFile, start: int, end: int) -> list[str]:
    return [_declarator(file, part) for part in file.arguments(start - 1, end)]


def _declarator(file: SourceFile, part: range) -> str:
    """The name that ``float a[4][5]`` or ``*b`` or ``(*c)[4]`` declares: the last word outside of brackets."""
    name = ""
    k, angles = part.start, 0
    while k < part.stop:
        if file.is_(k, "(") and file.is_(k + 1, "*", "&"):
            return _declarator(file, range(k + 2, file.partner(k)))
        if file.is_(k, "(", "[", "{"):
            k = file.partner(k)
        elif file.is_(k, "<"):
            angles += 1
        elif file.is_(k, ">"):
            angles -= 1
        elif file.is_(k, "="):
            break
        elif file.tokens[k].kind == Kind.WORD and not angles:
            name = file.tokens[k].text
        k += 1
    if not name:
        raise NotUnderstood("it declares no name")
    return name
