"""One call, as it is described to a worker and a recorder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msbench.gpu.shared_memory import Block
from msbench.gpu.timing.permute import movable
from msbench.harness.arena import Arena, Slot
from msbench.spec import Case, Operator


@dataclass(frozen=True)
class Job:
    """One call: where each array of each input set lies, and the scalars and dimensions in the prototype's order.

    ``permuted``: of each array how many elements may be permuted between cold repetitions, and an element's bytes.
    ``workspace``: memory for all versions' workspaces, where they fit; otherwise each has its own.
    """

    sets: tuple[Mapping[str, Any], ...]
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    scalars: tuple[float, ...]
    dims: tuple[int, ...]
    poison: bool
    permuted: tuple[int, ...] = ()
    workspace: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        op: Operator,
        case: Case,
        arenas: Sequence[Arena],
        *,
        poison: bool = False,
        workspace: Block | None = None,
    ) -> Job:
        """The job of a case on one or more arenas; ``poison``: cold repetitions overwrite the outputs first."""
        return cls(
            sets=tuple({"handle": a.handle, "offsets": list(a.layout.offsets)} for a in arenas),
            input_bytes=tuple(s.nbytes for s in arenas[0].layout.inputs),
            output_bytes=tuple(s.nbytes for s in arenas[0].layout.outputs),
            scalars=tuple(float(v) for v in op.scalar_values(case).values()),
            dims=tuple(case.dim(d.name) for d in op.dims),
            poison=poison,
            permuted=tuple(n for s in arenas[0].layout.slots for n in _movable(s)),
            workspace={"handle": workspace.handle, "nbytes": workspace.nbytes} if workspace else None,
        )

    def ranges(
        self, row: Sequence[int], workspace: int | None, workspace_bytes: int
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Where what a call may read begins and ends, and what it may write, with its arrays at ``row``."""
        outputs = len(self.output_bytes)
        sizes = (*self.input_bytes, *self.output_bytes)
        every = [(at, at + nbytes) for at, nbytes in zip(row, sizes, strict=True)]
        scratch = [(workspace, workspace + workspace_bytes)] if workspace else []
        return every + scratch, every[-outputs:] + scratch

    def payload(self) -> dict[str, Any]:
        """As the worker wants it."""
        return {
            "sets": list(self.sets),
            "output_bytes": self.output_bytes,
            "scalars": self.scalars,
            "dims": self.dims,
            "poison": self.poison,
            "permuted": self.permuted,
            "workspace": self.workspace,
        }


def _movable(slot: Slot) -> tuple[int, int]:
    return (0 if slot.output else movable(slot.nbytes, slot.dtype), slot.dtype.itemsize)
