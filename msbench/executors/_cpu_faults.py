"""Says in one sentence what the emulator's runtime or AddressSanitizer found, with the kernel's line where it is known."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench import emulator
from msbench.model import Fault

_FAULT_LINE = re.compile(r"^msbench-fault: (?P<json>\{.*\})$", re.MULTILINE)
_FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ in .*? (?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?\s*$", re.MULTILINE)
_SUMMARY = re.compile(r"^SUMMARY: AddressSanitizer: (?P<kind>[\w-]+)", re.MULTILINE)
_STACK_VARIABLE = re.compile(
    r"'(?P<name>\w+)'(?: \(line \d+\))? <== Memory access at offset \d+ (?P<how>\w+) this variable"
)
_NEARBY = re.compile(
    r"is located (?P<distance>\d+) bytes (?P<side>to the right of|to the left of|after|before|inside of) (?P<what>[^\n(\[]+)"
)
_DANGLING = ("heap-use-after-free", "stack-use-after-return", "stack-use-after-scope")
_OWN_DIRECTORY = str(Path(emulator.__file__).parent)  # frames there are not the kernel's

_ILLEGAL_ADDRESS, _LAUNCH_TIMEOUT = 700, 702  # cudaErrorIllegalAddress, cudaErrorLaunchTimeout
_ADDRESS = re.compile(r"illegal access to address (?P<address>0x[0-9a-f]+)")


@dataclass(frozen=True)
class Region:
    """A stretch of the worker's memory that a kernel may access: an array, or the workspace."""

    name: str
    start: int
    nbytes: int


def describe_failure(text: str, library: Path, regions: Sequence[Region]) -> tuple[str, str]:
    """The runtime's JSON as (a ``model.Fault``'s value, a sentence without its full stop)."""
    failure = json.loads(text)
    kind = {_ILLEGAL_ADDRESS: Fault.OUT_OF_BOUNDS, _LAUNCH_TIMEOUT: Fault.TIMEOUT}.get(failure["error"], Fault.LAUNCH)
    place = _line_of(library, failure["pc"])
    if place is None and failure["line"]:
        place = Path(failure["file"]).name, failure["line"]
    message = failure["message"]
    if found := _ADDRESS.search(message):
        address = int(found["address"], 16)
        if near := _nearest(address, regions, 1 << 20):
            message = f"{message}, {near}"
        elif address < 1 << 16:
            message = f"{message} (a null pointer)"
    return kind.value, f"{message}{_where(place, failure)}"


def describe_report(log: str, regions: Sequence[Region]) -> str | None:
    """What AddressSanitizer said before it ended the process, in one sentence; None if it said nothing."""
    summary = _SUMMARY.search(log)
    if summary is None:
        return None
    found = _FAULT_LINE.search(log)
    fault: dict[str, Any] = json.loads(found["json"]) if found else {}
    failure = fault.get("failure", {})
    access = "write" if fault.get("write") else "read"
    what = (
        f"out-of-bounds {access} of {fault['size']} bytes" if fault.get("size") else summary["kind"].replace("-", " ")
    )
    if summary["kind"] in _DANGLING:
        what = f"{access} of {fault.get('size', 'some')} bytes of memory that is no longer valid ({summary['kind']})"
    near = _nearest(fault.get("address", 0), regions, 1 << 12) or _shared(failure) or _reported_neighbour(log)
    frames = [(Path(f["file"]).name, int(f["line"])) for f in _FRAME.finditer(log) if _OWN_DIRECTORY not in f["file"]]
    place = next((frame for frame in frames if frame[0].endswith((".cu", ".cuh", ".h"))), None)
    return f"{what}{', ' + near if near else ''}{_where(place, failure)}"


def _where(place: tuple[str, int] | None, failure: Mapping[str, Any]) -> str:
    at = f" at {place[0]}:{place[1]}" if place else ""
    if "thread" in failure:
        thread, block = (f"({','.join(map(str, failure[key]))})" for key in ("thread", "block"))
        return f"{at} (thread {thread} of block {block} of {failure['kernel']})"
    return f"{at} ({failure['kernel']})" if failure.get("kernel") else at


def _nearest(address: int, regions: Sequence[Region], reach: int) -> str:
    """The region that an address lies beside, and how far off."""
    best: tuple[int, str] | None = None
    for region in regions:
        end = region.start + region.nbytes
        if region.start <= address < end:
            return f"inside {region.name}"
        if address >= end:
            distance, text = address - end, f"{_bytes(address - end)} after {region.name}"
        else:
            distance, text = region.start - address, f"{_bytes(region.start - address)} before {region.name}"
        if distance < reach and (best is None or distance < best[0]):
            best = distance, text
    return best[1] if best else ""


def _bytes(count: int) -> str:
    return "just" if count == 0 else f"{count} bytes"


def _shared(failure: Mapping[str, Any]) -> str:
    """The runtime's ``name<TAB>offset<TAB>size`` of a shared variable."""
    parts = failure.get("message", "").split("\t")
    if len(parts) != 3:
        return ""
    name, offset, size = parts[0], int(parts[1]), int(parts[2])
    what = name if name.startswith("the ") else f"shared array {name}"
    return f"{_bytes(offset - size)} after {what}" if offset >= size else f"{_bytes(-offset)} before {what}"


def _reported_neighbour(log: str) -> str:
    if found := _STACK_VARIABLE.search(log):
        return f"{'beyond' if found['how'] == 'overflows' else 'before'} local array {found['name']}"
    if found := _NEARBY.search(log):
        side = {"to the right of": "after", "to the left of": "before"}.get(found["side"], found["side"])
        return f"{_bytes(int(found['distance']))} {side} {found['what'].strip()}"
    return ""


def _line_of(library: Path, pc: int) -> tuple[str, int] | None:
    """The kernel's line of an instruction, by addr2line, which comes with g++'s own binutils."""
    if not pc:
        return None
    try:
        done = subprocess.run(
            ["addr2line", "-i", "-e", str(library), hex(pc)], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    for frame in done.stdout.splitlines():
        file, _, line = frame.partition(" (")[0].rpartition(":")
        if line.isdigit() and int(line) and _OWN_DIRECTORY not in file:
            return Path(file).name, int(line)
    return None
