"""What a recorded call may consist of, and how it is described: a list of operations as ``native/runner/record.cuh`` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Node = Mapping[str, Any]
Range = tuple[int, int]
"""A stretch of device memory: where it begins and ends."""

KERNEL, COPY, MEMSET, _EMPTY = 0, 1, 2, 5  # CUgraphNodeType
_OTHERS = {
    3: "runs host code in its stream",
    4: "launches a graph",
    6: "uses events",
    7: "uses events",
    8: "uses external semaphores",
    9: "uses external semaphores",
    10: "allocates device memory in its stream",
    11: "frees device memory in its stream",
}
_PLAIN = ("name", "grid", "block", "cluster", "shared", "early", "cooperative")


def refused(nodes: Sequence[Node], readable: Sequence[Range], writable: Sequence[Range]) -> str | None:
    """What a launcher did that is forbidden, as a clause; None if nothing.

    ``readable``, ``writable``: the arrays and the workspace, which copies and memsets keep to.
    """
    if not nodes:
        return "the launcher put nothing into its stream: its work is on another stream, or done by the host"
    if nodes[0]["early"]:
        return (
            "the call's first kernel may start before what precedes it in the stream has ended: "
            "launch it without cudaLaunchAttributeProgrammaticStreamSerialization"
        )
    return next((found for node in nodes if (found := _refused(node, readable, writable))), None)


def _refused(node: Node, readable: Sequence[Range], writable: Sequence[Range]) -> str | None:
    kind = node["kind"]
    if node["odd"]:
        return f"the launcher uses {node['odd']} in {'a kernel' if kind == KERNEL else 'a copy'}, which is not played"
    if kind in (KERNEL, _EMPTY):
        return None
    if kind == MEMSET:
        span = node["width"] * node["element"]
        return (
            None if _inside(node, "to", span, writable) else "the launcher sets memory that is no output or workspace"
        )
    if kind == COPY:
        if not _inside(node, "to", node["width"], writable):
            return "the launcher copies to memory that is no output or workspace: the host's, or a variable"
        if not _inside(node, "from", node["width"], readable):
            return "the launcher copies from memory that is no array or workspace: the host's, or a variable"
        return None
    return f"the launcher {_OTHERS.get(kind, f'puts an operation of type {kind} into its stream')}"


def _inside(node: Node, where: str, width: int, ranges: Sequence[Range]) -> bool:
    begin: int = node[where]
    end = begin + (node["height"] - 1) * node[f"{where}_pitch"] + width
    return any(start <= begin and end <= stop for start, stop in ranges)


def refused_of_library(nodes: Sequence[Node], binary: bytes, declared: bool) -> str | None:
    """The same of a version that may call libraries.

    ``declared``: by its ``link`` directive alone, so that a library's kernel has to be among them; its own names are in ``binary``.
    """
    for node in nodes:
        if node["kind"] in _OTHERS:
            return f"the launcher {_OTHERS[node['kind']]}"
    kernels = [node["name"] for node in nodes if node["kind"] == KERNEL]
    if declared and all(name.encode() in binary for name in kernels):
        return "the file declares a library and calls nothing of it: leave out the link directive"
    return None


def summary(nodes: Sequence[Node]) -> str:
    """For example ``"2 kernels, 1 memset"``."""
    counts = [(sum(node["kind"] == kind for node in nodes), word) for kind, word in _WORDS]
    return ", ".join(f"{count} {word if count == 1 else plural}" for count, (word, plural) in counts if count)


_WORDS = ((KERNEL, ("kernel", "kernels")), (MEMSET, ("memset", "memsets")), (COPY, ("copy", "copies")))


def plain(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Each operation without addresses, as it is stored."""
    return [_plain(node) for node in nodes]


def _plain(node: Node) -> dict[str, Any]:
    if node["kind"] == KERNEL:
        return {"kind": "kernel"} | {key: node[key] for key in _PLAIN}
    name = {COPY: "copy", MEMSET: "memset"}.get(node["kind"], "empty")
    return {"kind": name, "bytes": node["width"] * max(1, node["element"]) * node["height"]}
