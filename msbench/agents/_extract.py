"""Finds the kernel in a language model's reply, however it is wrapped."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msbench.agents._source import balanced, code_only, launcher_end, program
from msbench.errors import ReplyError
from msbench.model import normalise

_FENCE = re.compile(r"^(?P<indent>[ \t]*(?:>[ \t]?)*)(?P<fence>`{3,}+|~{3,}+)(?P<info>[^\n`]*+)$")
_TAGS = ("code", "kernel", "cuda", "answer", "solution", "file")
_THINK = re.compile(r"<(?P<end>/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_CODE_START = re.compile(
    r"""^\s*(?:\#\s*(?:include|define|pragma|if|ifdef|ifndef)\b | // | /\* | extern\s*"C" | template\s*<
    | (?:__global__|namespace|using|static|constexpr|cudaError_t)\b)""",
    re.VERBOSE,
)
_CODE_WORD = re.compile(r"#\s*include|__global__|\bvoid\b|cudaError_t|extern")
_OBJECT = re.compile(r'\{(?=\s*["}])')
_FILE_NAME = re.compile(r"(?<![\w./-])[\w./-]+\.(?:cuh|cu|h|hpp|hxx|inl|inc)\b")
_LOCAL_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_LAUNCH = re.compile(r"\b(\w++)\s*+(?:<[^<>;{}]*+>\s*+)?<<<")
_DEFINED = re.compile(r"\b(\w++)\s*+\(")
_KERNEL = "__global__"
_WORK = 16
_FAILURES = 500
"""How much of a text may be read again for objects that turn out to be none, in lengths of the text; and how many. A failure
takes time, too: it counts the lines before it."""


@dataclass(frozen=True)
class Block:
    """One piece of a reply that may be code. ``closed`` is False where the reply ended inside it."""

    text: str
    closed: bool = True
    file: str = ""


def extract_kernel(reply: str, operator: str, known: str = "") -> str:
    """The source in ``reply`` that defines ``operator``'s launcher, normalised.

    Reasoning is dropped first. Fenced blocks of any spelling, tags, JSON strings and bare code are understood, escaped
    HTML is unescaped, and a kernel that is spread over several blocks or files is put together. Of several complete
    kernels the last counts, as replies quote the old one first; one that is ``known``, but for comments and layout, only counts
    where there is no other.

    Raises:
        ReplyError: kind ``empty``, ``truncated``, ``no_code`` or ``no_launcher``.
    """
    if not reply.strip():
        raise ReplyError("The reply is empty.", "empty")
    text, thinking = without_reasoning(reply)
    blocks = [Block(_unescape(b.text), b.closed, b.file) for b in _blocks(text)]
    defining = [b for b in blocks if launcher_end(code_only(b.text), operator) is not None]
    whole = [b for b in defining if b.closed or balanced(code_only(b.text))]
    if whole:
        old = program(known)
        new = [b for b in whole if not old or program(b.text) != old]
        return normalise(_assemble((new or whole)[-1], blocks, operator))
    if defining or thinking or any(not b.closed for b in blocks) or _cut_json(text, operator):
        raise ReplyError("The reply ends in the middle of the code.", "truncated")
    if not any(_looks_like_code(b.text) for b in blocks):
        raise ReplyError("The reply holds no code.", "no_code")
    raise ReplyError(f"The reply's code does not define the launcher {operator}().", "no_launcher")


def without_reasoning(reply: str) -> tuple[str, bool]:
    """``reply`` without its reasoning, and whether it ended while still reasoning."""
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    kept: list[str] = []
    at, inside, last = 0, False, len(text.rstrip())
    for tag in _THINK.finditer(text):
        if not tag["end"]:
            if not inside:
                kept.append(text[at : tag.start()])
            inside = True
        elif inside:
            at, inside = tag.end(), False
        elif tag.end() < last:  # the chat template opened the reasoning, so the reply shows only its end
            kept, at = [], tag.end()
    return "".join(kept if inside else [*kept, text[at:]]), inside


def json_objects(text: str) -> Iterator[Any]:
    """Every JSON object that stands in ``text``, outermost only. Raw line ends in strings are forgiven."""
    decoder = json.JSONDecoder(strict=False)
    start, read, failures = _OBJECT.search(text), 0, 0
    while start and read <= _WORK * len(text) and failures < _FAILURES:
        try:
            value, end = decoder.raw_decode(text, start.start())
            yield value
        except ValueError as error:
            end = start.start() + 1
            failures += 1
            read += getattr(error, "pos", end) - start.start()
        except RecursionError:  # thousands of levels: a model that repeats itself, and every level would be tried
            return
        start = _OBJECT.search(text, end)


def _blocks(text: str) -> list[Block]:
    """The pieces of ``text`` that may be code: strings in JSON, else fences, else tags, else the bare text."""
    wrapped = _in_json(text)
    if wrapped:
        return wrapped
    found = [inner for block in _fences(text) for inner in _in_json(block.text) or [block]]
    if any(_looks_like_code(b.text) for b in found):
        return found
    tagged = [b for inner in _tagged(text) for b in _fences_or_all(inner)]
    return found + tagged or [_bare(text)]


def _in_json(text: str) -> list[Block]:
    """The code in the strings of a JSON document; nothing, where ``text`` is none or holds no code."""
    if not text.lstrip().startswith(("{", "[")):
        return []
    found = [b for value in json_objects(text) for s in _strings(value) for b in _fences_or_all(s)]
    return found if any(_looks_like_code(b.text) for b in found) else []


def _fences_or_all(text: str) -> list[Block]:
    return list(_fences(text)) or [Block(text)]


def _strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, in order; keys are none."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, (dict, list)):
            waiting += reversed(list(item.values() if isinstance(item, dict) else item))


def _tagged(text: str) -> Iterator[str]:
    """What stands between ``<code>`` and ``</code>`` and the like, with or without CDATA."""
    for name in _TAGS:
        opening, at = re.compile(rf"<{name}\b[^<>]*>(?:\s*<!\[CDATA\[)?"), 0
        while (start := opening.search(text, at)) and (end := text.find(f"</{name}>", start.end())) >= 0:
            yield text[start.end() : end].rstrip().removesuffix("]]>")
            at = end


def _fences(text: str) -> Iterator[Block]:
    """The fenced blocks (CommonMark 0.31, section 4.5), with two liberties: any indentation opens one, and an opening
    fence inside a block ends that block, as replies forget to close and C++ has no such line."""
    fence = indent = file = before = ""
    lines: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match and fence and match["fence"][0] == fence[0] and len(match["fence"]) >= len(fence):
            if any(lines):
                yield Block("\n".join(lines), True, file)
            opens, before = bool(match["info"].strip()), ""
            fence, lines = "", []
            if not opens:
                continue
        if match and not fence:
            fence, indent, lines = match["fence"], match["indent"], []
            named = _FILE_NAME.search(match["info"]) or _FILE_NAME.search(before)
            file = named[0] if named else ""
        elif fence:
            lines.append(line.removeprefix(indent) if line.startswith(indent) else line.lstrip(" \t>"))
        elif line.strip():
            before = line
    if fence:
        yield Block(_trim("\n".join(lines)), False, file)


def _bare(text: str) -> Block:
    """Code without any fence: from the first line that looks like code to the last closed brace."""
    lines = text.split("\n")
    start = next((i for i, line in enumerate(lines) if _CODE_START.match(line)), len(lines))
    code = _trim("\n".join(lines[start:]))
    return Block(code, balanced(code_only(code)))


def _trim(text: str) -> str:
    """``text`` without the prose after its last top-level brace; preprocessor lines that follow the brace are kept."""
    code = code_only(text)
    end = depth = 0
    for match in re.finditer(r"[{}]", code):
        depth += 1 if match[0] == "{" else -1
        if match[0] == "}" and depth == 0:
            end = match.end()
    if depth or not end:
        return text
    tail = re.compile(r";?[^\n]*+(?:\n\s*+#[^\n]*+)*+").match(code, end)
    return text[: tail.end() if tail else end]


def _unescape(text: str) -> str:
    """HTML entities undone, where the whole text is escaped: a kernel launch needs ``<``, so real code has one."""
    return html.unescape(text) if "<" not in text and re.search(r"&(?:lt|gt|amp|quot|#39|#x27);", text) else text


def _looks_like_code(text: str) -> bool:
    return bool(re.search(r"[;{}]", code_only(text)) and _CODE_WORD.search(text))


def _cut_json(text: str, operator: str) -> bool:
    """Whether ``text`` is the beginning of a JSON object that was to hold the kernel."""
    return text.lstrip().startswith("{") and operator in text and not list(json_objects(text))


def _assemble(main: Block, blocks: list[Block], operator: str) -> str:
    """``main`` with what it includes from other blocks, and with the kernels it launches that other blocks define."""
    others = [b for b in blocks if b is not main and launcher_end(code_only(b.text), operator) is None]
    used: list[Block] = []

    def inline(match: re.Match[str]) -> str:
        name = match[1].rpartition("/")[2]
        for block in others:
            first = _FILE_NAME.search(block.text.lstrip().partition("\n")[0])
            if name in (block.file.rpartition("/")[2], first[0].rpartition("/")[2] if first else ""):
                used.append(block)
                return re.sub(r"^\s*#\s*pragma\s+once\s*$", "", block.text, flags=re.MULTILINE)
        return match[0]

    text = _LOCAL_INCLUDE.sub(inline, main.text)
    code = code_only(text)
    missing = set(_LAUNCH.findall(code)) - _defined(code)
    before = []
    for block in others if missing else ():
        if block not in used and missing & _defined(code_only(block.text)):
            before.append(block.text)
    return "\n\n".join([*before, text])


def _defined(code: str) -> set[str]:
    """The kernels that ``code`` declares or defines."""
    found: set[str] = set()
    for piece in re.split(r"[;{}]", code):
        _, kernel, declared = piece.partition(_KERNEL)
        if kernel:
            found.update(_DEFINED.findall(declared))
    return found
