"""Looks at a file's text, before anything is compiled: what it includes, what it hides, which names it uses.

Only what can be said for certain without a compiler; calls that macros put together are found in the object (``objects``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from msbench.harness.screen.rules import UNSEEN, broken, unseen_by_linkers

_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")
_BLANK = r"[ \t\f\v\0]"  # what a directive's words may have between them
_LEXEMES = re.compile(
    rf"""
    (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<number>(?<!\w)\.?\d(?:'?\w|(?<=[eEpP])[+-]|\.)*)
  | (?<!\w)(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{{0,16}})\((?P<raw>.*?)\)(?P=mark)"
  | (?P<include>^{_BLANK}*\#{_BLANK}*include\b)
  | (?:(?<!\w)(?:u8|[uUL]))?"(?P<string>(?:[^"\\\n]|\\.)*)"
  | (?P<char>(?:(?<!\w)(?:u8|[uUL]))?'(?:[^'\\\n]|\\.)+')
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DIRECTIVE = re.compile(rf"^{_BLANK}*#{_BLANK}*(?P<name>\w+)(?P<rest>.*)$", re.MULTILINE)
_INCLUDED = re.compile(rf'{_BLANK}*(?:"([^"\n]+)"|<([^>\n]+)>)')
_PRAGMA = re.compile(
    r"(?:\bpragma|\b_Pragma)\W+(comment|redefine_extname|weak|extern_prefix|init|fini|include_alias)\b"
)
_ASSEMBLY = re.compile(
    r"\.(?:incbin|include|macro|pushsection|section|init_array)\b|\bsyscall\b|\bsysenter\b|\bint\s+\$?0x80"
)
_WORD = re.compile(r"(?<![\w.])(?P<scope>(?:[A-Za-z_]\w*::)*)(?P<name>[A-Za-z_]\w*)")
_TELLING = re.compile(
    r"cuda[A-Z]\w+|(?:cublas|cudnn|cusparse|cufft|curand|cusolver|nvrtc|nvJitLink)[A-Z]\w+|pthread_\w+|dl[mv]?(?:open|sym)|v?fork|"
    r"ptrace|prctl|getppid|setrlimit|seccomp|atexit|syscall"
)
"""Names that mean one thing wherever they stand. Others (``read``, ``kill``, ``time``) may be a kernel's own words."""

_DEVICE_WIDE = re.compile(r"\b(cub\s*::\s*Device\w+|thrust\s*::\s*(?!complex\b)\w+)")
_THREADS = re.compile(
    r"\bstd\s*::\s*(thread|jthread|async|fstream|ofstream|ifstream|filesystem|system|getenv|atexit)\b"
)
_ASM = re.compile(r"\b(?:asm|__asm|__asm__)\b")
_RUNTIME = re.compile(r"\bmsbench_cpu\w*")
_MARKER = re.compile(r'# \d+ "(?P<file>[^"]*)"')
_HEADERS_ALONE = "rewritten/headers"
_CONSTANT = re.compile(r"\b__constant__\b(?P<declaration>[^;={]*)[;={]")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")


def stripped(source: str) -> str:
    """The text without comments and without what strings hold; lines keep their numbers."""
    return _LEXEMES.sub(_blank, _SPLICE.sub("", source))


def constants(source: str) -> frozenset[str]:
    """The names of ``__constant__`` variables: the host keeps a shadow of each, which is no state."""
    declarations = (m["declaration"] for m in _CONSTANT.finditer(stripped(source)))
    return frozenset(name[1] for d in declarations if (name := _NAME.search(d.rstrip())))


def names(source: str) -> list[str]:
    """The words of its code."""
    return [word["name"] for word in _WORD.finditer(stripped(source))]


def tricks(source: str, library: bool) -> str | None:
    """What the file's text shows that it may not do, as the rest of a sentence that begins with "the file".

    ``library``: it may call CUDA and the vendor libraries as it likes.
    """
    spliced = _SPLICE.sub("", source)
    code = _LEXEMES.sub(_blank, spliced)
    if "%:" in code or "??=" in code:
        return "spells # as a digraph or trigraph"
    if _unclear(spliced, joined=spliced != source):
        return (
            "hides its text from a reader (a raw string, with joined lines or right behind another literal): "
            "write it as an ordinary string, or join no lines"
        )
    for directive in _DIRECTIVE.finditer(_without_comments(spliced)):
        if trick := _directive(directive["name"], directive["rest"]):
            return trick
    if found := _PRAGMA.search(_without_comments(spliced)):
        return f"changes what its symbols mean (#pragma {found[1]})"
    if found := _ASSEMBLY.search(_strings(_without_comments(spliced))):
        what = found[0].strip()
        if what in (".incbin", ".include"):
            return f"takes in another file ({what} in an asm statement)"
        return f"holds assembly for the host ({what} in an asm statement)"
    return _names(code, library)


def _names(code: str, library: bool) -> str | None:
    """What code without comments and strings names that it may not."""
    if trick := unseen_by_linkers(code):
        return trick
    if "msbench_cpu" in code:
        return "reaches into the cpu executor's own runtime (msbench_cpu)"
    if not library and (found := _DEVICE_WIDE.search(code)):
        return f"calls a library's own kernels ({''.join(found[1].split())}) in a version that declares none"
    if found := _THREADS.search(code):
        return _standard(found[1])
    for word in _WORD.finditer(code):
        name = word["name"]
        if name.endswith("_t") or not _TELLING.fullmatch(name) or word["scope"].rstrip(":") not in ("", "std"):
            continue
        if rule := broken(name, library and name.startswith("cu")):
            return f"{rule.trick} ({name}){_unless_left_out(code, word.start())}"
    return None


def _unless_left_out(code: str, place: int) -> str:
    """What to do about a name that may never reach the compiler."""
    before = code[:place].split("\n")
    opened = sum(line.lstrip().startswith("#if") - line.lstrip().startswith("#endif") for line in before)
    if opened or before[-1].lstrip().startswith("#define"):
        return ", also where the preprocessor leaves it out: delete it"
    return ""


def preprocessed_tricks(text: str, headers: str, file_name: str, runtime_name: str, library: bool) -> str | None:
    """What g++'s preprocessor made of a file for the cpu executor: its macros are gone, so nothing is put together any more.

    Args:
        text: the preprocessor's output; what stands before the file's first line is msbench's own.
        headers: the same of the headers alone, in which none of the file's macros can have changed anything.
        file_name: what the file's lines are called.
        runtime_name: how the rewriter's own text names the emulator's runtime.
    """
    own, others = _by_origin(text, file_name)
    if _unclear(own, joined=False):
        return "hides its text from a reader (a raw string right behind another literal)"
    code = _LEXEMES.sub(_blank, own).replace(runtime_name, "")
    if found := _PRAGMA.search(code):
        return f"changes what its symbols mean (#pragma {found[1]})"
    if "pch_preprocess" in code:
        return "takes in another file (#pragma GCC pch_preprocess)"
    if _ASM.search(code):
        return "holds assembly for the host"
    if trick := _names(code, library):
        return trick
    known = _only_headers_may(_by_origin(headers, file_name)[1], runtime_name)
    for (file, what), count in _only_headers_may(others, runtime_name).items():
        if count > known[file, what]:
            return f"changes the headers that it includes by macros of its own ({what} in {file.rpartition('/')[2]})"
    return None


def _by_origin(text: str, file_name: str) -> tuple[str, dict[str, str]]:
    """The file's own lines, and by its name those of every other file that come after the first of them."""
    own: list[str] = []
    others: dict[str, list[str]] = {}
    begun, file = False, ""
    for line in text.split("\n"):
        if found := _MARKER.match(line):
            file = found["file"]
            begun = begun or file in (file_name, _HEADERS_ALONE)
        elif begun:
            (own if file == file_name else others.setdefault(file, [])).append(line)
    return "\n".join(own), {file: "\n".join(lines) for file, lines in others.items()}


def _only_headers_may(others: Mapping[str, str], runtime_name: str) -> Counter[tuple[str, str]]:
    """How often each header holds what a version may not."""
    found: Counter[tuple[str, str]] = Counter()
    for file, text in others.items():
        code = _LEXEMES.sub(_blank, text).replace(runtime_name, "")
        found.update(
            (file, word[0]) for pattern in (_ASM, _PRAGMA, UNSEEN, _RUNTIME) for word in pattern.finditer(code)
        )
    return found


def _unclear(text: str, joined: bool) -> bool:
    """Whether only a compiler can say where its raw strings end: there joined lines come apart again, and whether one begins
    behind another literal depends on macros."""
    raw = [found.start() for found in _LEXEMES.finditer(text) if found["raw"] is not None]
    return bool(raw) and (joined or any(text[start - 1] in "\"'" for start in raw if start))


def _directive(name: str, rest: str) -> str | None:
    if name in ("include_next", "import", "embed", "assert", "ident", "sccs"):
        return f"takes in another file (#{name})"
    if name == "line" or name.isdigit():
        return "says that lines of it come from another file (#line)"
    if name != "include":
        return None
    found = _INCLUDED.match(rest)
    if found is None:
        return "includes a file whose name a macro makes"
    path = found[1] or found[2]
    if path.startswith(("/", "~")) or ".." in path.split("/"):
        return f"includes a file from outside: {path}"
    return None


def _standard(name: str) -> str:
    if name in ("thread", "jthread", "async"):
        return f"starts threads (std::{name})"
    rule = broken(name)
    return f"{rule.trick} (std::{name})" if rule else f"opens files, pipes or sockets (std::{name})"


def _blank(found: re.Match[str]) -> str:
    if found["include"] or found["number"]:
        return found[0]
    filler = "\n" * found[0].count("\n")
    return f'""{filler}' if found["comment"] is None else f" {filler}"


def _without_comments(text: str) -> str:
    return _LEXEMES.sub(lambda m: m[0] if m["comment"] is None else " " + "\n" * m[0].count("\n"), text)


def _strings(text: str) -> str:
    """What the strings hold, those that stand beside each other joined as the compiler joins them."""
    joined, end = [], -1
    for found in _LEXEMES.finditer(text):
        held = found["string"] if found["string"] is not None else found["raw"]
        if held is None:
            continue
        if end < 0 or text[end : found.start()].strip():
            joined.append("\n")
        joined.append(held.replace(r"\n", "\n").replace(r"\t", "\t"))
        end = found.end()
    return "".join(joined)
