"""Inline PTX: the few instructions that mean something simple on a host are translated, the others are named.

An instruction that is not known becomes a call of a function that g++ may not emit, so only code that is really reached
by the kernels counts: a header full of PTX helpers does no harm to a kernel that uses none of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from msbench.emulator.lexer import Kind
from msbench.emulator.syntax import Edit, NotUnderstood, SourceFile

_ASM = ("asm", "__asm__", "__asm")
_QUALIFIERS = ("volatile", "__volatile__", "inline", "goto")

_NOTHING = re.compile(
    r"cp\.async\.(commit_group|wait_group|wait_all)|prefetch|griddepcontrol|membar|fence\.(acq_rel|sc)|discard"
)
"""Instructions that order or hint what is in order here anyway."""

_COPY = re.compile(
    r"cp\.async\.c[ag]\.shared(?:::cta)?\.global[\w.:]*\s+\[(\S+?)\]\s*,\s*\[(\S+?)\]\s*,\s*(\S+?)(?:\s*,\s*(\S+))?"
)
_LOAD = re.compile(
    r"ld\.(?:weak\.|volatile\.|relaxed\.\w+\.|acquire\.\w+\.)?global([\w.:]*)\s+(\{.*\}|\S+)\s*,\s*\[(\S+?)\]"
)
_STORE = re.compile(
    r"st\.(?:weak\.|volatile\.|relaxed\.\w+\.|release\.\w+\.)?global([\w.:]*)\s+\[(\S+?)\]\s*,\s*(\{.*\}|\S+)"
)
_SPECIAL = re.compile(r"mov\.[bus]\d\d\s+(\S+?)\s*,\s*%%?([a-z_]+)")
_UNARY = re.compile(r"(ex2|lg2|rcp|rsqrt|sqrt|tanh|sin|cos)\.(?:approx|rn)(?:\.ftz)?\.f32\s+(\S+?)\s*,\s*(\S+)")
_MEMORY_TYPE = re.compile(r"\.([busf])(8|16|32|64|128)$")
_VECTOR = re.compile(r"\.v([24])\.")

_SPECIAL_REGISTERS = {
    "laneid": "::msbench_cpu::lane()",
    "warpid": "(::msbench_cpu::thread_rank() / 32u)",
    "smid": "0u",
    "nsmid": "1u",
    "lanemask_eq": "(1u << ::msbench_cpu::lane())",
    "lanemask_lt": "((1u << ::msbench_cpu::lane()) - 1u)",
    "lanemask_le": "(((1u << ::msbench_cpu::lane()) << 1) - 1u)",
    "lanemask_gt": "(~(((1u << ::msbench_cpu::lane()) << 1) - 1u))",
    "lanemask_ge": "(~((1u << ::msbench_cpu::lane()) - 1u))",
    "globaltimer": "globaltimer()",
}
_FUNCTIONS = {
    "ex2": "exp2f({})",
    "lg2": "log2f({})",
    "rcp": "(1.0f / ({}))",
    "rsqrt": "rsqrtf({})",
    "sqrt": "sqrtf({})",
    "tanh": "::msbench_fast::tanh({})",
    "sin": "::msbench_fast::sin({})",
    "cos": "::msbench_fast::cos({})",
}


def inline_ptx(file: SourceFile) -> Iterator[Edit]:
    """The edits for every asm statement in device code; host assembly is left alone."""
    for i, token in enumerate(file.tokens):
        if token.kind != Kind.WORD or token.text not in _ASM:
            continue
        opening = i + 1
        while file.is_(opening, *_QUALIFIERS):
            opening += 1
        try:
            if not file.is_(opening, "(") or not file.in_device_code(i):
                continue
            closing = file.partner(opening)
            code = _translate(file, opening, closing, file.line(i))
        except NotUnderstood:
            continue  # the compiler will say so
        # Word by word, so that line breaks stay where they are.
        for k in range(i, closing):
            yield Edit(file.tokens[k].start, file.tokens[k].end, "")
        yield Edit(file.tokens[closing].start, file.tokens[closing].end, code)


def _translate(file: SourceFile, opening: int, closing: int, line: int) -> str:
    template, operands = _parts(file, opening, closing)
    statements = []
    instructions = list(_instructions(template))
    for number, instruction in enumerate(instructions):
        statement = _statement(instruction, operands)
        if statement is None:
            return _refusal(_opcode(instructions[number:]), file.name, line)
        statements.append(statement)
    return f"({{ {' '.join(statements)} }})"


def _opcode(instructions: list[str]) -> str:
    """The first one, past the brace, the registers and the label that a block begins with."""
    for instruction in instructions:
        words = [word for word in re.sub(r"[{}]", " ", instruction).split() if word[0] != "@" and word[-1] != ":"]
        if words and not words[0].startswith("."):
            return words[0]
    return instructions[0].split()[0]


def _refusal(opcode: str, name: str, line: int) -> str:
    message = f"msbench_unsupported: inline PTX '{opcode}' ({name}:{line})".replace("\\", "/").replace('"', "'")
    function = f"msbench_ptx_{line}"
    return f'({{ [[gnu::error("{message}")]] void {function}(); {function}(); }})'


def _parts(file: SourceFile, opening: int, closing: int) -> tuple[str, list[str]]:
    """The template's text, and the operands' expressions in the order in which ``%0``, ``%1`` … count them."""
    i = opening + 1
    template = ""
    while i < closing and file.tokens[i].kind == Kind.STRING:
        template += _unquote(file.tokens[i].text)
        i += 1
    operands = []
    while i < closing:
        if file.tokens[i].kind == Kind.STRING and file.is_(i + 1, "("):
            end = file.partner(i + 1)
            operands.append(f"({file.source_of(range(i + 2, end))})")
            i = end
        i += 1
    return template, operands


def _unquote(literal: str) -> str:
    if literal.endswith('"') and 'R"' in literal[:4]:
        return literal[literal.index("(") + 1 : literal.rindex(")")]
    try:
        return str(ast.literal_eval(literal))
    except (SyntaxError, ValueError):
        return literal


def _instructions(template: str) -> Iterator[str]:
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.DOTALL)
    for part in plain.split(";"):
        if instruction := " ".join(part.split()):
            yield instruction


def _statement(instruction: str, operands: list[str]) -> str | None:
    """C++ for one instruction, or None where there is none."""

    def value(operand: str) -> str:
        found = re.fullmatch(r"%(\d+)", operand)
        if not found:
            if not re.fullmatch(r"-?\w+", operand):
                raise NotUnderstood(operand)
            return operand
        if int(found[1]) >= len(operands):
            raise NotUnderstood(operand)
        return operands[int(found[1])]

    try:
        if _NOTHING.match(instruction):
            return "(void)0;"
        if found := _COPY.fullmatch(instruction):
            given = [value(part) for part in found.groups() if part]
            return f"::msbench_cpu::cp_async({', '.join(given)});"
        if found := _LOAD.fullmatch(instruction):
            return _memory(found[1], found[3], found[2], value, "load")
        if found := _STORE.fullmatch(instruction):
            return _memory(found[1], found[2], found[3], value, "store")
        if (found := _SPECIAL.fullmatch(instruction)) and found[2] in _SPECIAL_REGISTERS:
            return f"{value(found[1])} = {_SPECIAL_REGISTERS[found[2]]};"
        if found := _UNARY.fullmatch(instruction):
            return f"{value(found[2])} = {_FUNCTIONS[found[1]].format(value(found[3]))};"
    except NotUnderstood:
        pass
    return None


def _memory(suffix: str, address: str, registers: str, value: Callable[[str], str], how: str) -> str:
    """A load or store of one, two or four registers; ``address`` may have a constant offset: ``%4+16``."""
    type_, vector = _MEMORY_TYPE.search(suffix), _VECTOR.search(suffix)
    names = [part.strip() for part in registers.strip("{}").split(",")]
    base, _, offset = address.partition("+")
    if not type_ or type_[2] == "128" or len(names) != (int(vector[1]) if vector else 1):
        raise NotUnderstood(suffix)
    width = int(type_[2]) // 8
    where = f"{value(base)}, {offset or 0}"
    return f"::msbench_cpu::ptx_{how}<{width}>({where}, {', '.join(map(value, names))});"
