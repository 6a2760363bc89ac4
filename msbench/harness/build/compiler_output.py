"""Reads what nvcc, ptxas and cuobjdump print. Pure functions of text."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from msbench.model import Failure, Fault

_EDG = re.compile(r"^(?P<file>[^\s(:]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$")
_GCC = re.compile(r"^(?P<file>[^\s(:]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$")
_END = re.compile(r"^At end of source: error: (?P<text>.*)$")
_PTX = re.compile(r"^ptxas [^\s,]+, line \d+; (?:error|fatal)\s*: (?P<text>.*)$")
_TOOL = re.compile(r"^(?P<tool>ptxas|nvcc|nvlink|cicc)\b(?:[^:]*?) *(?:error|fatal)\s*: (?P<text>.*)$")
_UNDEFINED = re.compile(r"undefined reference to [`'\"]?(?P<symbol>[^`'\"]+)")
_NO_LIBRARY = re.compile(r"ld: cannot find (?P<library>\S+)")

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P(?:T|\d+)\s+)?(?P<opcode>[A-Z][A-Z0-9_]*)(?P<suffix>[.\w]*)"
)
_MEMORY_OPCODES = frozenset({"LD", "LDG", "LDL", "LDS", "ST", "STG", "STL", "STS", "LDGSTS"})


def clean_log(log: str) -> str:
    """A compiler log without what differs from run to run: times, names of temporary files."""
    lines = (re.sub(r"tmpxft_[0-9a-f_]+-", "", line.rstrip()) for line in log.splitlines())
    return "\n".join(line for line in lines if line and "Compile time = " not in line)


def classify_failure(log: str, operator: str, prototype: str) -> Failure:
    """Say in one sentence why a build failed: the first error, with file and line.

    ``operator`` is the launcher's name. A declaration that contradicts the generated header, or a launcher that is not
    there when linking, is a wrong signature; the sentence then shows ``prototype``.
    """
    log = clean_log(log)
    expected = f"The launcher must be: {prototype}"
    for line in log.splitlines():
        for pattern in (_EDG, _GCC):
            if found := pattern.match(line):
                text = found["text"].strip().rstrip(".")
                where = f"{found['file'].rpartition('/')[2]} line {found['line']}"
                if "static assertion" in text and f"msbench: {operator} " in text:
                    return Failure(
                        Fault.SIGNATURE, f"{operator} takes other parameters than it should. {expected}.", log
                    )
                if _contradicts(text, operator):
                    return Failure(Fault.SIGNATURE, f"{where}: {text}. {expected}", log)
                return Failure(Fault.COMPILE, f"{where}: {text}.", log)
        for pattern, where in ((_END, "At the end of the file"), (_PTX, "In the PTX, most likely of an asm statement")):
            if found := pattern.match(line):
                return Failure(Fault.COMPILE, f"{where}: {found['text'].strip().rstrip('.')}.", log)
        if found := _UNDEFINED.search(line):
            if found["symbol"] == operator:
                return Failure(
                    Fault.SIGNATURE, f"There is no launcher {operator} of the right signature. {expected}", log
                )
            return Failure(Fault.LINK, f"The kernel uses {found['symbol']}, which nothing defines.", log)
        if found := _NO_LIBRARY.search(line):
            return Failure(Fault.LINK, f"The linker can't find {found['library']}.", log)
        if found := _TOOL.match(line):
            return Failure(Fault.COMPILE, f"{found['tool']}: {found['text'].strip().rstrip('.')}.", log)
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "it says nothing")
    return Failure(Fault.COMPILE, f"The compiler failed: {last.strip()[:300]}", log)


def named_after(text: str, function: str, file: str) -> str:
    """A message for people: what was compiled as ``<function>.cu`` has the name that they know it by."""
    return re.sub(rf"(?<![\w/.]){re.escape(function)}\.cu\b", lambda _: file, text)


def _contradicts(text: str, operator: str) -> bool:
    clash = (
        "overload",
        "linkage",
        "conflicting",
        "ambiguat",
        "incompatible with previous",
        "already defined as",
        "redeclar",
    )
    named = re.search(rf"""["'](?:[^"']*\s)?{operator}\b""", text)  # nvcc quotes "name", g++ 'type name(...)'
    return (bool(named) and any(word in text for word in clash)) or "distinguished by return type alone" in text


def kernels(log: str) -> list[dict[str, Any]]:
    """What ``ptxas -v`` says of each kernel, in order: mangled name, registers, static shared, spill, stack bytes."""
    found: list[dict[str, Any]] = []
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            found.append({"name": entry["name"]})
        elif found and (frame := _FRAME.search(line)):
            stack, stores, loads = map(int, frame.groups())
            found[-1] |= {"stack_bytes": stack, "spill_store_bytes": stores, "spill_load_bytes": loads}
        elif found and (used := _USED.search(line)):
            shared = _SHARED.search(line)
            found[-1] |= {"registers": int(used[1]), "shared_bytes": int(shared[1]) if shared else 0}
    # CUB instantiates an empty kernel in every program that includes it, to ask for its architecture.
    return [k for k in found if "EmptyKernel" not in k["name"]]


def sass_mix(disassembly: str) -> dict[str, int]:
    """How often each instruction occurs in ``cuobjdump -sass``'s output, most frequent first.

    Memory accesses carry their width in bits (``LDG.128``), ``MUFU`` its function (``MUFU.EX2``).
    """
    counts: Counter[str] = Counter()
    for line in disassembly.splitlines():
        if found := _INSTRUCTION.match(line):
            opcode, modifiers = found["opcode"], found["suffix"].split(".")
            if opcode in _MEMORY_OPCODES:
                opcode += "." + _width(modifiers)
            elif opcode == "MUFU" and len(modifiers) > 1:
                opcode += "." + modifiers[1]
            if opcode != "NOP":
                counts[opcode] += 1
    return dict(counts.most_common())


def _width(modifiers: list[str]) -> str:
    for modifier in modifiers:
        if modifier in ("64", "128"):
            return modifier
        if modifier in ("U8", "S8", "U16", "S16"):
            return modifier[1:]
    return "32"
